"""P10 as a user sees it: Spark's watermark drops nothing of a skewed backlog in limited batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests.spark.reading import read_stream, rows_dropped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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


class Backlog:
    """Queries of the whole backlog in limited batches, and their results."""

    def __init__(
        self, spark: SparkSession, server: LocalServer, checkpoint: str, **options: str
    ) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self.rows = read_stream(
            spark,
            server.endpoint_url,
            "skewed",
            maxRecordsPerTrigger="6000",
            shardCallsPerSecond="unlimited",
            **options,
        ).withWatermark(TIME, "10 seconds")

    def finish(self, result: DataFrame, name: str) -> tuple[DataFrame, int, int]:
        """The rows of the result in a table, the rows read, and the rows dropped as late."""
        query: StreamingQuery = (
            result.writeStream.format("memory")
            .queryName(name)
            .outputMode("append")
            .option("checkpointLocation", self._checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = query.recentProgress
        read = sum(each.numInputRows for each in progress)
        return self._spark.table(name), read, rows_dropped(progress)


def counted(backlog: Backlog, name: str) -> tuple[int, int, int]:
    """The records counted in windows of a second, the rows read, and the rows dropped."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - a module of many seconds

    windows = backlog.rows.groupBy(f.window(TIME, "1 second")).count()
    table, read, dropped = backlog.finish(windows, name)
    (row,) = table.groupBy().sum("count").collect()
    return row[0] or 0, read, dropped


def test_p10_a_windowed_count_of_a_skewed_backlog_counts_every_record(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    """61,200 records; the two that make the watermark pass are in an open window."""
    count, read, dropped = counted(Backlog(spark, server, checkpoint), "together")
    assert (count, read, dropped) == (COUNT, COUNT + 2, 0)


def test_p10_a_windowed_count_loses_records_where_shards_may_be_apart(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    backlog = Backlog(spark, server, checkpoint, maxShardDrift="unbounded")
    count, read, dropped = counted(backlog, "apart")
    print(f"counted {count:,} of {read:,}, dropped {dropped:,}")
    assert read == COUNT + 2
    assert dropped > 0  # of rows that are already counted by window and partition
    assert count < COUNT // 2


def test_p10_deduplication_of_a_skewed_backlog_keeps_every_record(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    backlog = Backlog(spark, server, checkpoint)
    unique = backlog.rows.dropDuplicatesWithinWatermark(["data"]).select("data")
    table, read, dropped = backlog.finish(unique, "unique")
    assert (table.count(), read, dropped) == (COUNT + 2, COUNT + 2, 0)
