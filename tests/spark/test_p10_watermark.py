"""P10 as a user sees it: Spark's watermark drops nothing of a skewed backlog in limited batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
Counted = Callable[..., tuple[int, int, int]]


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


@pytest.fixture
def counted(spark: SparkSession, server: LocalServer, checkpoint: str) -> Counted:
    """Counts the backlog in windows of a second, in limited batches, into a table of a name.

    Returns the records in the windows, the rows read, and the rows dropped as late.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - a module of many seconds

    def count(name: str, **options: str) -> tuple[int, int, int]:
        limits = {"maxRecordsPerTrigger": "6000", "shardCallsPerSecond": "unlimited"}
        rows = read_stream(spark, server.endpoint_url, "skewed", **limits, **options)
        windows = rows.withWatermark(TIME, "10 seconds").groupBy(f.window(TIME, "1 second"))
        query = (
            windows.count()
            .writeStream.format("memory")
            .queryName(name)
            .outputMode("append")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = query.recentProgress
        (row,) = spark.table(name).groupBy().sum("count").collect()
        return row[0] or 0, sum(each.numInputRows for each in progress), rows_dropped(progress)

    return count


def test_p10_a_windowed_count_of_a_skewed_backlog_counts_every_record(counted: Counted) -> None:
    """61,200 records; the two that make the watermark pass are in an open window."""
    assert counted("together") == (COUNT, COUNT + 2, 0)


def test_p10_a_windowed_count_loses_records_where_shards_may_be_apart(counted: Counted) -> None:
    count, read, dropped = counted("apart", maxShardDrift="unbounded")
    print(f"counted {count:,} of {read:,}, dropped {dropped:,}")
    assert read == COUNT + 2
    assert dropped > 0  # of rows that are already counted by window and partition
    assert count < COUNT // 2
