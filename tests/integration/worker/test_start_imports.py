"""A worker starts with what it needs: CPU, and memory for as long as it runs, are spent on no more.

Each test runs a Python of its own and asserts what it has loaded.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from sparkinesis import aggregate
from sparkinesis.local import LocalServer

NEVER = {
    *("asyncio", "multiprocessing", "boto3", "moto", "pyspark", "pandas", "rich", "typer"),
    "opentelemetry",
    *("sparkinesis.fleet", "sparkinesis.cli", "sparkinesis.source", "sparkinesis.local"),
    *("sparkinesis.metrics.cloudwatch", "sparkinesis.worker.reporting.cloudwatch"),
}
"""What no record processor needs, whichever way it reads."""

ARROW = {"pyarrow", "numpy"}
PROTOBUF = {"google.protobuf"}
OF_FEATURES = {
    "sparkinesis.stream.putting",
    "sparkinesis.stream.kpl.messages",
    "sparkinesis.stream.reading.arrow",
    "sparkinesis.worker.dead_letters.file",
    "sparkinesis.worker.sink.storage",
}

LOADED = """
import sys

def loaded(prefixes):
    modules = [f"{module}." for module in sys.modules]
    found = [name for name in prefixes if any(m.startswith(f"{name}.") for m in modules)]
    return " ".join(sorted(found)) or "nothing"
"""

WORKER = (
    LOADED
    + """
import threading
from sparkinesis import Application, DeadLetter, RecordProcessor, Retry
from sparkinesis.sinks import DeadLetterStream

endpoint, stream, ask, *names = sys.argv[1:]
shards = set()

class Processor(RecordProcessor):
    def initialize(self, shard):
        self.shard = shard

    def process_records(self, batch, checkpointer):
        if not batch:
            return
        if ask == "arrow":
            batch.to_arrow()
        elif ask == "objects":
            assert [record.data for record in batch.records]
        checkpointer.checkpoint()
        shards.add(self.shard.id)
        if len(shards) == 2:
            print(loaded(names), flush=True)
            self.shard.request_shutdown()

Application(
    stream, stream, Processor, "us-east-1", endpoint,
    initial_position="trim_horizon",
    on_error=Retry(attempts=2, then=DeadLetter(DeadLetterStream("other", "us-east-1", endpoint))),
).run()
"""
)


def python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_application_is_made_without_libraries_that_only_some_need() -> None:
    names = NEVER | ARROW | PROTOBUF | OF_FEATURES
    code = (
        LOADED
        + "from sparkinesis import Application, RecordProcessor\n"
        + "class Mine(RecordProcessor): process_records = print\n"
        + "Application('flights-app', 'flights', Mine, 'us-east-1')\n"
        + "print(loaded(sys.argv[1:]))"
    )
    assert python(code, *names) == "nothing"


def test_importing_the_package_loads_its_errors_only() -> None:
    code = LOADED + (
        "before = set(sys.modules)\nimport sparkinesis\n"
        "print(*sorted(m for m in set(sys.modules) - before if 'sparkinesis' in m))\n"
        "print(loaded(sys.argv[1:]))"
    )
    names = NEVER | ARROW | PROTOBUF | {"botocore", "msgspec", "dataclasses"}
    own = "sparkinesis sparkinesis.errors sparkinesis.public"
    assert python(code, *names) == f"{own}\nnothing"


@pytest.mark.parametrize(
    ("ask", "data", "expected"),
    [
        ("nothing", b"plain", set()),
        ("objects", b"plain", set()),
        ("objects", b"aggregated", PROTOBUF),
        ("arrow", b"plain", {"pyarrow"}),
    ],
)
def test_a_worker_loads_what_its_records_need(
    server: LocalServer, ask: str, data: bytes, expected: set[str]
) -> None:
    stream = f"{ask}-{data.decode()}"
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream, ShardCount=2)
    kinesis.get_waiter("stream_exists").wait(StreamName=stream)
    if data == b"aggregated":
        data = next(aggregate([("k", None, b"1"), ("k", None, b"2")])).data
    for hash_key in ("0", str(2**127)):
        kinesis.put_record(StreamName=stream, Data=data, PartitionKey="k", ExplicitHashKey=hash_key)
    names = NEVER | ARROW | PROTOBUF
    if "pyarrow" in expected:
        names = names - {"numpy", "pandas"}  # pyarrow imports both where they are installed
    loaded = python(WORKER, server.endpoint_url, stream, ask, *names)
    assert loaded == (" ".join(sorted(expected)) or "nothing")
