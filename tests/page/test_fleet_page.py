"""The page of a fleet on a real Spark: what its driver knows of its workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import sparkinesis.ui
from sparkinesis import (
    Application,
    Fleet,
    FleetOptions,
    RecordBatch,
    RecordProcessor,
    WorkerOptions,
)
from sparkinesis.local import LocalServer
from sparkinesis.worker.checkpointer import Checkpointer
from tests import pace
from tests.spark.conftest import drivers, spark, stream_name  # noqa: F401 - fixtures
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.page.browser import Browser


class Failing(RecordProcessor):
    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if any(record.data == b"odd" for record in batch.records):
            raise ValueError("an odd record")
        checkpointer.checkpoint()


@pytest.fixture
def fleet(server: LocalServer, stream_name: str, spark: SparkSession) -> Iterator[Fleet]:  # noqa: F811
    server.client("kinesis").create_stream(StreamName=stream_name, ShardCount=4)
    application = Application(
        stream_name,
        stream_name,
        Failing,
        region="us-east-1",
        endpoint=server.endpoint_url,
        initial_position="trim_horizon",
        options=WorkerOptions(failover_time=pace.seconds(2.0), idle_time=0.25),
    )
    options = FleetOptions(heartbeat_interval=0.3, lost_after=pace.seconds(5.0), log_level="ERROR")
    running = application.run(spark, workers=2, fleet=options)
    yield running
    running.shutdown(10)


def test_a_fleet(browser: Browser, fleet: Fleet, server: LocalServer, stream_name: str) -> None:  # noqa: F811
    kinesis = server.client("kinesis")
    put(kinesis, stream_name, [b"%d" % n for n in range(100)])
    put(kinesis, stream_name, [b"odd"])
    # At once, while no worker has made the lease table yet.
    with sparkinesis.ui.serve(fleet, port=0, interval=0.5) as page:
        browser.open(page.url)
        browser.until(lambda: "ValueError: an odd record" in browser.text("failures"))
        browser.until(lambda: len(browser.table("worker-table")) == 2)
        workers = {row[0]: row for row in browser.table("worker-table")}
        assert workers.keys() == {one.worker_id for one in fleet.status().workers}
        browser.until(lambda: [row[1] for row in browser.table("worker-table")] == ["2", "2"])

        def is_counted() -> bool:
            put(kinesis, stream_name, [b"%d" % n for n in range(40)])
            return any(row[5] not in {"-", "0.0"} for row in browser.table("worker-table"))

        browser.until(is_counted)
