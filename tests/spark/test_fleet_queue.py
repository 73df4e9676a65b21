"""A fleet of a queue's workers on the executors of a local Spark: a death, and an orderly end."""

from __future__ import annotations

import functools
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkinesis import Fleet, FleetOptions, Stop
from sparkinesis.errors import FleetError, ProcessorError
from sparkinesis.local import LocalServer
from sparkinesis.queue import NewQueue, QueueApplication, QueueOptions, QueueRecord
from tests import pace
from tests.pace import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REGION = "us-east-1"
FLEET = FleetOptions(
    heartbeat_interval=0.3, lost_after=pace.seconds(5.0), first_backoff=0.3, log_level="ERROR"
)
RECORDS = {f"{n}" for n in range(50)}


def handle(folder: str, record: QueueRecord) -> None:
    """Make an empty file of each delivery; a crash takes the process with it, once."""
    data = record.data.decode()
    Path(folder, f"{data}-{os.getpid()}-{record.receive_count}").touch()
    if data == "crash" and record.receive_count == 1:
        os._exit(1)
    if data == "bad":
        raise ValueError("This record cannot be handled.")


def delivered(folder: Path) -> list[tuple[str, str]]:
    """The data of each delivery, and the process that got it."""
    return [(data, pid) for data, pid, _ in (path.name.split("-") for path in folder.iterdir())]


def states(fleet: Fleet) -> list[str]:
    return [worker.state.value for worker in fleet.status().workers]


def put(server: LocalServer, stream: str, *datas: str) -> None:
    entries = [{"Data": data.encode(), "PartitionKey": data} for data in datas]
    answer = server.client("kinesis").put_records(StreamName=stream, Records=entries)
    assert answer["FailedRecordCount"] == 0


def application(server: LocalServer, stream: str, folder: Path) -> QueueApplication:
    server.client("kinesis").create_stream(
        StreamName=stream, StreamModeDetails={"StreamMode": "ON_DEMAND"}
    )
    return QueueApplication(
        "orders",
        functools.partial(handle, str(folder)),
        region=REGION,
        endpoint=server.endpoint_url,
        create=NewQueue(stream, starting_position="trim_horizon"),
        # Short: what a killed worker had in hand comes again after it.
        options=QueueOptions(wait_time=1, visibility_timeout=round(pace.seconds(4))),
        on_error=Stop(),
    )


def test_workers_on_executors_are_replaced_and_end_in_order(
    spark: SparkSession, server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    app = application(server, stream_name, tmp_path)
    with app.run(spark, workers=2, fleet=FLEET) as fleet:
        eventually(lambda: states(fleet) == ["running", "running"])
        before = {worker.worker_id for worker in fleet.status().workers}
        put(server, stream_name, *RECORDS, "crash")
        eventually(lambda: len([data for data, _ in delivered(tmp_path) if data == "crash"]) == 2)
        eventually(lambda: {data for data, _ in delivered(tmp_path)} == {*RECORDS, "crash"})
        eventually(lambda: states(fleet) == ["running", "running"])
        status = fleet.status()
        assert (status.stream, status.shards, status.unread) == ("queue orders", (), ())
        assert len(before & {worker.worker_id for worker in status.workers}) == 1
        (lost,) = [note for note in status.notes if note.startswith("Lost worker")]
        assert "the records that it had in hand are delivered again" in lost
        assert str(os.getpid()) not in {pid for _, pid in delivered(tmp_path)}
        assert fleet.shutdown(pace.seconds(20))
    deliveries = Counter(data for data, _ in delivered(tmp_path))
    assert deliveries.pop("crash") == 2
    again = {data for data, count in deliveries.items() if count > 1}
    (killed,) = {pid for data, pid in delivered(tmp_path) if data == "crash"} - {
        str(worker.pid) for worker in status.workers
    }
    assert all((data, killed) in delivered(tmp_path) for data in again), "it had them in hand"
    kinesis = server.client("kinesis")
    (queue,) = kinesis.list_queues()["QueueSummaries"]
    answer = kinesis.receive_queue_records(QueueARN=queue["QueueARN"], WaitTimeSeconds=1)
    assert answer["QueueRecords"] == [], "all are acknowledged"


def test_stop_fails_the_fleet_with_the_error_of_the_handler(
    spark: SparkSession, server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    """Workers that took the place of others would spend one delivery after the other."""
    fleet = application(server, stream_name, tmp_path).run(spark, workers=2, fleet=FLEET)
    put(server, stream_name, "bad")
    with pytest.raises(FleetError, match="ValueError: This record cannot be handled"):
        fleet.await_termination(pace.seconds(60))
    assert len(delivered(tmp_path)) <= 2, "it stops each worker that it reaches, once"


def test_what_cannot_be_sent_is_told_before_a_job_is_submitted(
    spark: SparkSession, server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    file = (tmp_path / "file").open("w")
    app = replace(
        application(server, stream_name, tmp_path),
        handler=lambda record: file.write(record.data.decode()),
    )
    with file, pytest.raises(ProcessorError, match=r"its handler .* in its first call, which runs"):
        app.run(spark, workers=1, fleet=FLEET)
