"""A worker starts with what it needs: CPU, and memory for as long as it runs, are spent on no more.

Each test runs a Python of its own and asserts what it has loaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparkinesis import LeaseTableOptions, aggregate
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.stream.address import stream_address
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.fan_out.registered_consumers import register_consumer

NEVER = {
    *("asyncio", "multiprocessing", "boto3", "moto", "pyspark", "pandas", "rich", "typer"),
    "opentelemetry",
    *("sparkinesis.fleet", "sparkinesis.cli", "sparkinesis.source", "sparkinesis.local"),
    *("sparkinesis.metrics.cloudwatch", "sparkinesis.worker.reporting.cloudwatch"),
}
"""What no record processor needs, whichever way it reads."""

ARROW = {"pyarrow", "numpy"}
PROTOBUF = {"google.protobuf"}
LIBRARIES = """
import base64, concurrent.futures.thread, contextvars, dataclasses, datetime, encodings.idna, enum
import functools, graphlib, hashlib, heapq, hmac, ipaddress, logging, queue, random, select
import signal, socket
import struct, threading, traceback, urllib.parse, uuid
import botocore.exceptions, msgspec, pybase64, zlib_ng.zlib_ng
"""
"""All that a worker imports of other packages, with what these import themselves."""

OF_FEATURES = {
    "sparkinesis.stream.calls.answers.cbor",
    "sparkinesis.stream.putting",
    "sparkinesis.stream.kpl.message_types",
    "sparkinesis.stream.reading.arrow",
    "sparkinesis.worker.dead_letters.stored",
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
    LIBRARIES
    + "import sys\nbefore = set(sys.modules)\n"
    + LOADED
    + """
from sparkinesis import Application, DeadLetter, RecordProcessor, Retry, WorkerOptions
from sparkinesis.sinks import DeadLetterStream

endpoint, stream, retrieval, ask, *names = sys.argv[1:]
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
            new = set(sys.modules) - before
            print(loaded(names), flush=True)
            print(*sorted(m for m in new if m.partition(".")[0] != "sparkinesis"), flush=True)
            self.shard.request_shutdown()

Application(
    stream, stream, Processor, "us-east-1", endpoint,
    initial_position="trim_horizon",
    options=WorkerOptions(retrieval=retrieval),
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
        ("objects", b"aggregated", PROTOBUF),
        ("arrow", b"plain", {"pyarrow"}),
    ],
)
def test_a_worker_loads_what_its_records_need(
    server: LocalServer, ask: str, data: bytes, expected: set[str]
) -> None:
    stream = f"{ask}-{data.decode()}"
    if data == b"aggregated":
        data = next(aggregate([("k", None, b"1"), ("k", None, b"2")])).data
    put_two(server, stream, data)
    names = NEVER | ARROW | PROTOBUF
    if "pyarrow" in expected:
        names = names - {"numpy", "pandas"}  # pyarrow imports both where they are installed
    loaded, _ = run(server, stream, "polling", ask, names)
    assert loaded == (" ".join(sorted(expected)) or "nothing")


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("retrieval", ["polling", "efo"])
@pytest.mark.usefixtures("usual")
def test_a_worker_that_processes_plain_records_imports_no_other_module(
    server: LocalServer, retrieval: str, is_first: bool
) -> None:
    """The first worker of an application makes the lease table and the consumer."""
    stream = f"plain-{retrieval}-{is_first}"
    put_two(server, stream, b"plain")
    if not is_first:
        LeaseTable(stream, "us-east-1", server.endpoint_url).provision(LeaseTableOptions())
        register_consumer(
            StreamClient(stream_address(stream, "us-east-1", server.endpoint_url)), stream
        )
    names = NEVER | OF_FEATURES
    loaded, of_libraries = run(server, stream, retrieval, "objects", names)
    assert loaded == "nothing"
    assert of_libraries == "", "add it to LIBRARIES if each worker needs it"


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is set that only botocore understands."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name in [name for name in os.environ if name.startswith(("AWS_", "BOTO"))]:
        if name not in {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


def put_two(server: LocalServer, stream: str, data: bytes) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream, ShardCount=2)
    kinesis.get_waiter("stream_exists").wait(StreamName=stream)
    for hash_key in ("0", str(2**127)):
        kinesis.put_record(StreamName=stream, Data=data, PartitionKey="k", ExplicitHashKey=hash_key)


def run(
    server: LocalServer, stream: str, retrieval: str, ask: str, names: set[str]
) -> tuple[str, str]:
    """Run a worker until two shards have records; return what it has loaded of ``names``, and what
    it has loaded besides its libraries."""
    told = python(WORKER, server.endpoint_url, stream, retrieval, ask, *sorted(names))
    loaded, _, of_libraries = told.partition("\n")
    return loaded, of_libraries
