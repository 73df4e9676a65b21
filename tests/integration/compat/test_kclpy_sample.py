"""The sample application of amazon_kclpy with only its imports changed, on real parts."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_kinesis_agg.aggregator import RecordAggregator

from sparkinesis.local import Call, Fault, LocalServer
from tests import pace
from tests.integration.compat.sample import change_imports, find_sdist, read_sample
from tests.streams import put, split

SPARKINESIS = str(Path(sys.executable).with_name("sparkinesis"))
PATIENCE = pace.seconds(60.0)
"""Seconds after which a test fails."""

_RECORD = re.compile(
    r"Record \(Partition Key: (?P<key>[^,]*), Sequence Number: (?P<sequence>[0-9]+), "
    r"Subsequence Number: (?P<sub>[0-9]+), Data Size: [0-9]+"
)


class Throttling:
    """A fault plan that, while on, fails all writes to the lease table."""

    def __init__(self) -> None:
        self.starts_when: Callable[[Call], bool] = lambda _: False
        self.is_on = False

    def __call__(self, call: Call) -> Fault | None:
        if self.starts_when(call):
            self.is_on = True
            self.starts_when = lambda _: False
        if self.is_on and call.operation == "UpdateItem":
            return Fault.error("ProvisionedThroughputExceededException")
        return None


@pytest.fixture
def throttling() -> Throttling:
    return Throttling()


@pytest.fixture
def server(throttling: Throttling) -> Iterator[LocalServer]:
    with LocalServer(limits=False, faults=throttling, dynamodb=True) as running:
        yield running


class Program:
    """A running program and its output so far."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    @property
    def records(self) -> list[tuple[str, str, int]]:
        """The partition key, sequence number and sub-sequence number of each processed record."""
        return [(m["key"], m["sequence"], int(m["sub"])) for m in _RECORD.finditer(self.said)]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        pace.eventually(lambda: condition() or self._process.poll() is not None)
        assert condition(), self.said

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def running(command: list[str], folder: Path) -> Iterator[Program]:
    program = Program(command, folder)
    try:
        yield program
    finally:
        program.end()


@pytest.fixture
def kinesis(server: LocalServer) -> Any:
    client = server.client("kinesis")
    client.create_stream(StreamName="words", ShardCount=2)
    client.get_waiter("stream_exists").wait(StreamName="words")
    return client


@pytest.fixture
def properties(server: LocalServer, kinesis: Any, tmp_path: Path) -> Path:
    """The sample's own file, followed by lines with the addresses of the local server."""
    sdist = find_sdist(tmp_path)
    (tmp_path / "sample_kclpy_app.py").write_text(
        change_imports(read_sample(sdist, "sample_kclpy_app.py"))
    )
    stream = kinesis.describe_stream_summary(StreamName="words")["StreamDescriptionSummary"]
    file = tmp_path / "sample.properties"
    where = f"""
streamArn = {stream["StreamARN"]}
streamName = words
kinesisEndpoint = {server.endpoint_url}
dynamoDBEndpoint = {server.endpoint_url}
shutdownGraceMillis = 20000
"""
    file.write_text(read_sample(sdist, "sample.properties") + where)
    return file


def leases(server: LocalServer) -> dict[str, dict[str, Any]]:
    rows = server.client("dynamodb").scan(TableName="PythonKCLSample", ConsistentRead=True)["Items"]
    return {
        row["leaseKey"]["S"]: {name: next(iter(value.values())) for name, value in row.items()}
        for row in rows
        if "leaseCounter" in row
    }


def test_the_sample_reads_a_stream_through_a_reshard_and_throttling(
    server: LocalServer, kinesis: Any, properties: Path, throttling: Throttling
) -> None:
    put(kinesis, "words", [b"word-%d" % n for n in range(40)])
    aggregator = RecordAggregator()
    for n in range(5):
        aggregator.add_user_record(f"packed-{n}", b"data")
    key, _, data = aggregator.clear_and_get().get_contents()
    packed = kinesis.put_record(StreamName="words", PartitionKey=key, Data=data)

    read: set[str | None] = set()

    def both_shards_are_read(call: Call) -> bool:
        if call.operation == "GetRecords":
            read.add(call.shard)
        return len(read) == 2

    # Both leases are taken by then, and the sample checkpoints after its first records.
    throttling.starts_when = both_shards_are_read
    with running([SPARKINESIS, "kclpy", str(properties)], properties.parent) as program:
        program.wait_until(lambda: len(program.records) >= 45)
        program.wait_until(lambda: "Was throttled while checkpointing" in program.said)
        throttling.is_on = False

        split(kinesis, "words")
        put(kinesis, "words", [b"later-%d" % n for n in range(20)])
        program.wait_until(lambda: len(program.records) >= 65)
        program.wait_until(lambda: "Shard has ended checkpointing" in program.said)
        assert program.stop() == 0
        said, records = program.said, program.records

    assert "giving up" not in said
    assert "Encountered an" not in said
    keys = [key for key, _, _ in records]
    expected = [f"word-{n}" for n in range(40)] + [f"packed-{n}" for n in range(5)]
    assert sorted(keys) == sorted(expected + [f"later-{n}" for n in range(20)])
    subs = [(sequence, sub) for key, sequence, sub in records if key.startswith("packed")]
    assert subs == [(packed["SequenceNumber"], n) for n in range(5)]

    rows = leases(server)
    parent = next(row for row in rows.values() if row["checkpoint"] == "SHARD_END")
    assert said.count("Shard has ended checkpointing") == 1
    live = [row for row in rows.values() if row is not parent]
    assert len(live) == 3
    assert said.count("Shutdown has been requested, checkpointing.") == 3
    assert said.count("Lease has been lost") == 3
    assert not any("leaseOwner" in row for row in live), "released, for others to take at once"
    # A child that got none of the later records may stand at its start.
    last = {sequence for _, sequence, _ in records}
    assert {row["checkpoint"] for row in live} <= last | {"TRIM_HORIZON"}
    newest = max(int(sequence) for sequence in last)
    assert newest in {int(row["checkpoint"]) for row in live if row["checkpoint"].isdigit()}


EXITING = """
import sys

from sample_kclpy_app import RecordProcessor
from sparkinesis.compat.kclpy import kcl


class Exiting(RecordProcessor):
    def process_records(self, process_records_input):
        sys.exit(7)


kcl.KCLProcess(Exiting()).run()
"""


def test_a_processor_that_exits_ends_the_program_and_checkpoints_nothing(
    server: LocalServer, kinesis: Any, properties: Path
) -> None:
    put(kinesis, "words", [b"a"])
    program_file = properties.parent / "exiting.py"
    program_file.write_text(EXITING)
    with running(
        [sys.executable, str(program_file), str(properties)], properties.parent
    ) as program:
        assert program.wait() == 7
    rows = leases(server)
    assert {row["checkpoint"] for row in rows.values()} == {"TRIM_HORIZON"}
    assert not any("leaseOwner" in row for row in rows.values())
