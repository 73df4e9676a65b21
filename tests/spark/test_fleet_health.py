"""The driver of a fleet on a real Spark tells the health and the metrics of its workers."""

from __future__ import annotations

import functools
import json
import os
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkinesis import (
    Application,
    Fleet,
    FleetOptions,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)
from sparkinesis.events import Event
from sparkinesis.local import LocalServer
from sparkinesis.worker.checkpointer import Checkpointer
from tests import pace
from tests.pace import eventually
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Counting(RecordProcessor):
    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """The file in which the workers write down their events."""
    return tmp_path / "events"


def write_down(path: str, event: Event) -> None:
    """Append an event's type and worker; an ``on_event`` that runs on Spark's executors."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{type(event).__name__} {getattr(event, 'worker_id', '')}\n".encode())
    os.close(file)


@pytest.fixture
def fleet(
    server: LocalServer, stream_name: str, spark: SparkSession, events: Path
) -> Iterator[Fleet]:
    server.client("kinesis").create_stream(StreamName=stream_name, ShardCount=4)
    application = Application(
        stream_name,
        stream_name,
        Counting,
        region="us-east-1",
        endpoint=server.endpoint_url,
        initial_position="trim_horizon",
        options=WorkerOptions(
            failover_time=pace.seconds(10.0),
            idle_time=0.25,
            http="127.0.0.1:0",
            on_event=functools.partial(write_down, str(events)),
        ),
    )
    options = FleetOptions(heartbeat_interval=0.3, lost_after=pace.seconds(30.0), log_level="ERROR")
    running = application.run(spark, workers=2, fleet=options)
    yield running
    running.shutdown(10)


def read(fleet: Fleet, path: str) -> str:
    with urllib.request.urlopen(f"{fleet.http_url}{path}", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def values(fleet: Fleet, name: str) -> dict[str, float]:
    """The values of a metric, summed for each worker."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(read(fleet, "/metrics")):
        for sample in family.samples:
            if sample.name == name:
                worker = sample.labels["worker"]
                found[worker] = found.get(worker, 0.0) + sample.value
    return found


def test_counters_of_all_workers_add_up_to_what_was_processed(
    fleet: Fleet, server: LocalServer, stream_name: str
) -> None:
    records = "sparkinesis_records_processed_total"
    eventually(lambda: sorted(values(fleet, "sparkinesis_leases_held").values()) == [2, 2])
    put(server.client("kinesis"), stream_name, [b"%d" % n for n in range(100)])
    eventually(lambda: sum(values(fleet, records).values()) == 100)
    assert json.loads(read(fleet, "/readyz"))["ready"]
    assert json.loads(read(fleet, "/livez"))["live"]
    status: Any = json.loads(read(fleet, "/status"))
    assert len(status["shards"]) == 4
    assert status["records"] == 100

    # Some of these are processed by the worker that leaves, after its last regular report.
    put(server.client("kinesis"), stream_name, [b"%d" % n for n in range(50)])
    fleet.scale(1)
    eventually(lambda: len(values(fleet, "sparkinesis_leases_held")) == 1)
    eventually(lambda: sum(values(fleet, records).values()) == 150)
    assert len(values(fleet, records)) == 2


def test_the_workers_of_a_fleet_tell_their_events_where_they_run(
    fleet: Fleet, events: Path
) -> None:
    eventually(lambda: sorted(values(fleet, "sparkinesis_leases_held").values()) == [2, 2])
    assert fleet.shutdown(60)
    told = Counter(events.read_text().splitlines())
    workers = {line.partition(" ")[2] for line in told if line.startswith("WorkerStarted")}
    assert len(workers) == 2
    for kind in ("WorkerStarted", "ShutdownBegan", "WorkerEnded"):
        assert [told[f"{kind} {worker}"] for worker in workers] == [1, 1], kind
    assert told["LeaseCreated "] == 4
