"""The workers of a fleet on a real Spark, seen by OpenTelemetry from where they run."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis import (
    Application,
    Checkpointer,
    FleetOptions,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)
from sparkinesis.local import LocalServer
from sparkinesis.metrics import OpenTelemetryMetrics
from tests import pace
from tests.otlp import Receiver, attributes_of, metrics_of
from tests.pace import eventually
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = "aws.kinesis.client."


class Counting(RecordProcessor):
    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        checkpointer.checkpoint()


def measured(endpoint: str) -> RecordProcessor:
    """Make a processor, in a process whose SDK is set up before its first one."""
    from opentelemetry import metrics  # noqa: PLC0415 - on an executor
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import (  # noqa: PLC0415
        OTLPMetricExporter,
    )
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    if not isinstance(metrics.get_meter_provider(), MeterProvider):
        exporter = OTLPMetricExporter(endpoint=endpoint)
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=500)
        metrics.set_meter_provider(MeterProvider([reader]))
    return Counting()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.close()


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(port=0, dynamodb=True) as running:
        yield running


def latest(receiver: Receiver, name: str) -> dict[tuple[str, str], float]:
    """The latest value of each worker, and shard if it has one."""
    found: dict[tuple[str, str], float] = {}
    for request in list(receiver.got):
        metric: Any = metrics_of(request).get(JAVA + name)
        if metric is None:
            continue
        data = metric.gauge if metric.HasField("gauge") else metric.sum
        for point in data.data_points:
            said = attributes_of(point)
            key = said["aws.kinesis.consumer.name"], said.get("aws.kinesis.shard.id", "")
            found[key] = point.as_double or point.as_int
    return found


def test_counters_of_all_workers_add_up_to_what_was_processed(
    server: LocalServer, spark: SparkSession, stream_name: str, receiver: Receiver
) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream_name, ShardCount=4)
    application = Application(
        stream_name,
        stream_name,
        functools.partial(measured, receiver.endpoint),
        region="us-east-1",
        endpoint=server.endpoint_url,
        initial_position="trim_horizon",
        options=WorkerOptions(
            failover_time=pace.seconds(10.0), idle_time=0.25, metrics=(OpenTelemetryMetrics(),)
        ),
    )
    options = FleetOptions(heartbeat_interval=0.3, lost_after=pace.seconds(30.0), log_level="ERROR")
    fleet = application.run(spark, workers=2, fleet=options)
    try:
        eventually(lambda: sorted(latest(receiver, "current_leases").values()) == [2, 2])
        put(kinesis, stream_name, [b"%d" % n for n in range(100)])
        eventually(lambda: sum(latest(receiver, "records_processed").values()) == 100)
        lags = latest(receiver, "consumer.lag.duration")
        workers = {worker for worker, _ in lags}
        assert len(workers) == 2
        assert {shard[-1] for _, shard in lags} == set("0123")
        # The last records of a worker arrive although its process may end with it.
        put(kinesis, stream_name, [b"%d" % n for n in range(50)])
        eventually(lambda: fleet.status().records == 150)
    finally:
        fleet.shutdown(60)
    found = latest(receiver, "records_processed")
    assert sum(found.values()) == 150
    assert {worker for worker, _ in found} == workers
