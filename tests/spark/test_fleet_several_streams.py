"""A fleet of an application of several streams, which come, go and return while its workers run."""

from __future__ import annotations

import functools
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis import (
    Application,
    Checkpointer,
    FleetOptions,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)
from sparkinesis.local import LocalServer
from sparkinesis.status import FleetStream
from sparkinesis.worker.lifecycle.streams import several_streams
from tests import pace
from tests.spark.test_fleet_local import wait
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = WorkerOptions(failover_time=pace.seconds(2.0), idle_time=0.25)
FLEET = FleetOptions(heartbeat_interval=0.3, lost_after=pace.seconds(5.0), log_level="ERROR")
SHARD = "shardId-000000000000"


class Writing(RecordProcessor):
    """Writes a line for each record: its stream and its data."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def initialize(self, shard: ProcessorShard) -> None:
        self._stream = shard.stream
        path = Path(self._folder, f"records-{uuid.uuid4().hex}.jsonl")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        for record in batch.records:
            line = json.dumps([self._stream, record.data.decode(), os.getpid()])
            os.write(self._file, line.encode() + b"\n")
        checkpointer.checkpoint()


class Wanted:
    """The function of streams: a file names those to read now."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """On an executor; the workers there ask often."""
        self.__dict__.update(state)
        several_streams.ASK_EVERY = 0.3
        several_streams._RETRY = (0.3, 0.6)
        several_streams._SOON = 0.1

    def __call__(self) -> list[str]:
        Path(self._folder, f"asked-{os.getpid()}-{threading.current_thread().name}").touch()
        return Path(self._folder, "streams").read_text().split()


def read_from(folder: Path) -> dict[str, list[str]]:
    """The records that were processed, by stream."""
    found: dict[str, list[str]] = {}
    for path in folder.glob("records-*.jsonl"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                stream, data, _ = json.loads(line)
                found.setdefault(stream, []).append(data)
    return {stream: sorted(datas) for stream, datas in found.items()}


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


def test_streams_that_are_missing_come_go_and_return_while_two_workers_run(
    server: LocalServer, spark: SparkSession, tmp_path: Path, stream_name: str
) -> None:
    kinesis = server.client("kinesis")
    web, app, late = (f"{stream_name}-{kind}" for kind in ("web", "app", "late"))

    def want(*streams: str) -> None:
        new = tmp_path / "streams.new"
        new.write_text("\n".join(streams))
        new.replace(tmp_path / "streams")

    def fill(stream: str, *datas: str) -> None:
        put(kinesis, stream, [data.encode() for data in datas])

    for name in (web, app):
        kinesis.create_stream(StreamName=name, ShardCount=2)
    want(web, app, late)
    fill(web, "1", "2", "3")
    fill(app, "1")
    application = Application(
        stream_name,
        processor=functools.partial(Writing, str(tmp_path)),
        streams=Wanted(tmp_path),
        region="us-east-1",
        endpoint=server.endpoint_url,
        initial_position="trim_horizon",
        options=OPTIONS,
    )
    with application.run(spark, workers=2, fleet=FLEET) as fleet:

        def stream(name: str) -> FleetStream | None:
            return next((one for one in fleet.status().streams if one.stream == name), None)

        def is_right(name: str, is_wanted: Callable[[FleetStream], Any]) -> Callable[[], bool]:
            return lambda: (one := stream(name)) is not None and bool(is_wanted(one))

        wait(lambda: read_from(tmp_path) == {web: ["1", "2", "3"], app: ["1"]})
        wait(is_right(late, lambda one: len(one.failing_on) == 2))
        missing = stream(late)
        assert missing is not None
        assert missing.problem is not None
        assert missing.problem.startswith(f"StreamNotFoundError: There is no stream '{late}'")
        assert missing.failing_for is not None
        wait(lambda: len({shard.worker_id for shard in fleet.status().shards}) == 2)
        wait(lambda: [stream(name).shards for name in (web, app)] == [2, 2])  # type: ignore[union-attr]
        shards = fleet.status().shards
        assert [(shard.stream, shard.shard_id) for shard in shards] == [
            (app, SHARD),
            (app, SHARD[:-1] + "1"),
            (web, SHARD),
            (web, SHARD[:-1] + "1"),
        ]

        kinesis.create_stream(StreamName=late, ShardCount=1)
        fill(late, "1")
        wait(lambda: read_from(tmp_path).get(late) == ["1"])
        wait(is_right(late, lambda one: one.problem is None and one.shards == 1))

        want(web, late)
        wait(lambda: stream(app) is None)
        wait(lambda: app not in {shard.stream for shard in fleet.status().shards})
        fill(app, "2")
        fill(web, "4")
        wait(lambda: "4" in read_from(tmp_path)[web])
        wait(lambda: app not in {shard.stream for shard in fleet.status().unread})
        assert read_from(tmp_path)[app] == ["1"]

        want(web, late, app)
        wait(is_right(app, lambda one: one.shards == 2))
        wait(lambda: read_from(tmp_path)[app] == ["1", "2"])
        notes = [note for note in fleet.status().notes if late in note]
        assert fleet.status().failures == (), "the streams that cannot be read say it all"
        assert fleet.shutdown(10)
    assert read_from(tmp_path) == {web: ["1", "2", "3", "4"], app: ["1", "2"], late: ["1"]}
    assert len(notes) == 2, "it could not be read, and then it could"
    assert "cannot read stream" in notes[0]
    assert notes[1] == f"All workers can read stream {late} now"
    asked = [path.name.split("-", 2)[1:] for path in tmp_path.glob("asked-*")]
    assert len({pid for pid, _ in asked}) == 2, "each worker asks"
    assert str(os.getpid()) not in {pid for pid, _ in asked}
    assert not [thread for _, thread in asked if thread.endswith(("-renew", "-take", "MainThread"))]
