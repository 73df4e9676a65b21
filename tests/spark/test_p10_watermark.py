"""P10 as a user sees it: Spark's watermark drops nothing of a skewed backlog in limited batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests.spark.reading import read_stream, rows_dropped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTES = 10
BUSY, LIGHT = 100, 2
"""Records a second of the two shards."""
COUNT = MINUTES * 60 * (BUSY + LIGHT)
TIME = "approximateArrivalTimestamp"


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    return ManualClock(1_790_000_000_000)


@pytest.fixture(scope="module")
def server(clock: ManualClock) -> Iterator[LocalServer]:
    with LocalServer(port=0, limits=False, clock=clock) as running:
        kinesis = running.client("kinesis")
        kinesis.create_stream(StreamName="skewed", ShardCount=2)
        for second in range(MINUTES * 60):
            put(kinesis, second, BUSY, LIGHT)
            clock.advance(1000)
        # What makes the watermark pass all these windows.
        clock.advance(60_000)
        put(kinesis, MINUTES * 60, 1, 1)
        clock.advance(60_000)
        yield running


def put(kinesis: Any, second: int, busy: int, light: int) -> None:
    keys = [2**127] * busy + [0] * light
    entries = [
        {"Data": b"%d-%d" % (second, n), "PartitionKey": "k", "ExplicitHashKey": str(key)}
        for n, key in enumerate(keys)
    ]
    assert kinesis.put_records(StreamName="skewed", Records=entries)["FailedRecordCount"] == 0


def test_p10_a_windowed_count_of_a_skewed_backlog_counts_every_record(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    """61,200 records; the two that make the watermark pass are in an open window."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - a module of many seconds

    limits = {"maxRecordsPerTrigger": "6000", "shardCallsPerSecond": "unlimited"}
    rows = read_stream(spark, server.endpoint_url, "skewed", **limits)
    windows = rows.withWatermark(TIME, "10 seconds").groupBy(f.window(TIME, "1 second"))
    query = (
        windows.count()
        .writeStream.format("memory")
        .queryName("skewed")
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = query.recentProgress
    (row,) = spark.table("skewed").groupBy().sum("count").collect()
    assert row[0] == COUNT
    assert sum(each.numInputRows for each in progress) == COUNT + 2
    assert rows_dropped(progress) == 0
