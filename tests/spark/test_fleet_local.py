"""Fleets on the executors of a local Spark: what processors do to them, and how they fail."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis import (
    Application,
    Fleet,
    FleetOptions,
    ProcessorShard,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)
from sparkinesis.events import Event, ShardStarted, WorkerEnded
from sparkinesis.local import LocalServer
from sparkinesis.worker.checkpointer import Checkpointer
from tests import pace
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE = pace.seconds(90.0)
OPTIONS = WorkerOptions(failover_time=pace.seconds(2.0), idle_time=0.25)
FLEET = FleetOptions(
    heartbeat_interval=0.3, lost_after=pace.seconds(5.0), first_backoff=0.3, log_level="ERROR"
)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


@pytest.fixture
def stream(server: LocalServer, stream_name: str) -> str:
    server.client("kinesis").create_stream(StreamName=stream_name, ShardCount=4)
    return stream_name


@pytest.fixture
def run(server: LocalServer, stream: str, spark: SparkSession) -> Iterator[Callable[..., Fleet]]:
    """Starts fleets; they are shut down when the test is over."""
    fleets: list[Fleet] = []

    def start(processor: Any, workers: int = 2, of: str = stream, **options: Any) -> Fleet:
        application = Application(
            stream,
            of,
            processor,
            region="us-east-1",
            endpoint=server.endpoint_url,
            initial_position="trim_horizon",
            options=replace(OPTIONS, **options),
        )
        fleets.append(application.run(spark, workers=workers, fleet=FLEET))
        return fleets[-1]

    yield start
    for fleet in fleets:
        fleet.shutdown(10)


def wait(condition: Callable[[], object]) -> None:
    """Looked at again and again; only a failure takes as long as this waits."""
    again = threading.Event()
    for _ in range(int(PATIENCE / 0.1)):
        if condition():
            return
        again.wait(0.1)
    raise AssertionError("it did not come to that")


class Noting(RecordProcessor):
    """Makes an empty file named after each record, and does what a record says."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        for record in batch.records:
            name = record.data.decode()
            if name == "crash" and len(list(Path(self._folder).glob("crashed-*"))) < 2:
                Path(self._folder, f"crashed-{os.getpid()}").touch()
                os._exit(1)
            if name.startswith("bad"):
                raise ValueError(f"{name} cannot be processed, seen {os.urandom(4).hex()}")
            if name == "stop":
                self._shard.request_shutdown()
            Path(self._folder, name).touch()
        checkpointer.checkpoint()


def note_event(folder: str, event: Event) -> None:
    """Make an empty file of the event and this process, for what concerns a shard or the end."""
    if isinstance(event, ShardStarted):
        Path(folder, f"started-{os.getpid()}-{event.shard_id}").touch()
    elif isinstance(event, WorkerEnded):
        Path(folder, f"ended-{os.getpid()}-{event.worker_id}").touch()


def noted(folder: Path, event: str) -> set[tuple[str, str]]:
    """Return the process ids, and the shards or workers, of the events that were told."""
    names = [path.name.split("-", 2) for path in folder.glob(f"{event}-*")]
    return {(pid, of) for _, pid, of in names}


def test_a_worker_whose_process_dies_is_started_again_and_others_go_on(
    run: Callable[..., Fleet], server: LocalServer, stream: str, tmp_path: Path
) -> None:
    """The workers' events reach ``on_event`` in their own processes, also the last ones."""
    fleet = run(
        functools.partial(Noting, str(tmp_path)),
        on_event=functools.partial(note_event, str(tmp_path)),
    )
    kinesis = server.client("kinesis")
    put(kinesis, stream, [f"record-{n}".encode() for n in range(50)])
    wait(lambda: len(list(tmp_path.glob("record-*"))) == 50)
    wait(lambda: len({shard for _, shard in noted(tmp_path, "started")}) == 4)
    assert str(os.getpid()) not in {pid for pid, _ in noted(tmp_path, "started")}
    before = {worker.worker_id for worker in fleet.status().workers}
    put(kinesis, stream, [b"crash"])
    put(kinesis, stream, [f"record-{n}".encode() for n in range(50, 100)])
    wait(lambda: len(list(tmp_path.glob("crashed-*"))) == 2)
    wait(lambda: (tmp_path / "crash").exists() and len(list(tmp_path.glob("record-*"))) == 100)
    wait(lambda: [w.state.value for w in fleet.status().workers] == ["running", "running"])
    status = fleet.status()
    assert any("Lost worker" in note for note in status.notes)
    again = [note for note in status.notes if "is submitted again" in note]
    assert again, "local Spark gives a job up at its first failure"
    assert all("Python worker exited unexpectedly" in note for note in again)
    assert {worker.worker_id for worker in status.workers} != before
    assert status.lost_workers >= 1, "each crash loses a worker"
    wait(lambda: not fleet.status().unread and len(fleet.status().shards) == 4)
    assert fleet.shutdown(10)
    ended = noted(tmp_path, "ended")
    assert {worker for _, worker in ended} == {worker.worker_id for worker in status.workers}
    assert all(worker.split("-")[-2] == pid for pid, worker in ended)


def test_a_traceback_reaches_the_driver_once(
    run: Callable[..., Fleet],
    server: LocalServer,
    stream: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    fleet = run(functools.partial(Noting, str(tmp_path)))
    # Enough for each shard to have some, of both workers.
    put(server.client("kinesis"), stream, [f"bad-{n}".encode() for n in range(40)])
    wait(lambda: sum(failure.count for failure in fleet.status().failures) >= 12)
    (failure,) = fleet.status().failures
    assert failure.error.startswith("ValueError: bad-")
    assert "in process_records" in failure.traceback
    assert len(failure.shard_ids) == 4
    logged = [record for record in caplog.records if "Traceback" in record.getMessage()]
    assert [record.levelno for record in logged] == [logging.ERROR]
    assert "cannot be processed" in logged[0].getMessage()
