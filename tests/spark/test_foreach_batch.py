"""A sink that reads its batch twice: equal rows both times, and still within the shards' limits."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from sparkinesis.local import LocalServer
from tests.spark.reading import read_stream
from tests.streams import put, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 4


def test_two_reads_of_each_batch_are_equal_and_within_the_call_limits(
    spark: SparkSession, server: LocalServer, stream_name: str, checkpoint: str
) -> None:
    assert server.kinesis.limits is not None
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream_name, ShardCount=2)
    enough = threading.Event()
    stopping = threading.Event()
    written: list[bytes] = []
    reads: list[tuple[list[tuple[object, ...]], list[tuple[object, ...]]]] = []

    def produce() -> None:
        # No more than two reads within the limits keep up with: else each batch is larger.
        while not stopping.wait(0.1):
            new = [b"%06d" % n + bytes(100) for n in range(len(written), len(written) + 10)]
            put(kinesis, stream_name, new)
            written.extend(new)

    def read_twice(batch: DataFrame, _: int) -> None:
        rows = batch.select("shardId", "sequenceNumber", "data")
        first = [tuple(row) for row in rows.collect()]
        reads.append((first, [tuple(row) for row in rows.collect()]))
        if len(reads) == BATCHES // 2:
            split(kinesis, stream_name)
        if len(reads) >= BATCHES:
            enough.set()

    producer = threading.Thread(target=produce)
    producer.start()
    query = (
        read_stream(
            spark,
            server.endpoint_url,
            stream_name,
            minFetchPeriod="200ms",
            maxRecordsPerFetch="150",  # so that a task takes several calls
        )
        .writeStream.foreachBatch(read_twice)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        assert enough.wait(120), query.exception()
    finally:
        stopping.set()
        producer.join()
        if query.exception() is None:
            query.processAllAvailable()
        query.stop()
    for first, second in reads:
        assert first == second
    delivered = [bytes(row[2]) for first, _ in reads for row in first]  # type: ignore[call-overload]
    assert sorted(delivered) == written
    calls = server.kinesis.calls
    shards = calls.per_shard("GetRecords")
    assert len(shards) == 4
    peaks = [calls.peak("GetRecords", window_ms=1000, shard=shard) for shard in shards]
    print(
        f"{len(reads)} batches; GetRecords calls: {shards.total()}, at most {max(peaks)} a second"
    )
    assert not [call for call in calls if call.error is not None]
    for shard in shards:
        assert calls.peak("GetRecords", window_ms=1000, shard=shard) <= 5
        assert calls.peak("GetShardIterator", window_ms=1000, shard=shard) <= 5
