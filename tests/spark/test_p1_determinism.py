"""P1, seen through Spark: a batch that is read twice gives the same rows in the same order.

And P7: both reads are within the limits of the shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.stream.kpl.pack import aggregate
from tests.engine import MODES
from tests.spark.reading import read_stream
from tests.streams import put, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.parametrize("mode", ["polling", "efo"])
def test_p1_a_batch_read_twice_gives_the_same_rows_in_the_same_order(
    spark: SparkSession, server: LocalServer, stream_name: str, checkpoint: str, mode: str
) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream_name, ShardCount=2)
    numbers = [b"%04d" % n for n in range(300)]
    put(kinesis, stream_name, numbers[:200])
    for blob in aggregate([(data.decode(), None, data) for data in numbers[200:]]):
        kinesis.put_record(StreamName=stream_name, Data=blob.data, PartitionKey=blob.partition_key)
    split(kinesis, stream_name)
    put(kinesis, stream_name, [b"after the split"])
    reads: list[tuple[list[tuple[object, ...]], list[tuple[object, ...]]]] = []

    def read_twice(batch: DataFrame, _: int) -> None:
        first = [tuple(row) for row in batch.collect()]
        put(kinesis, stream_name, [b"between the two reads"])
        reads.append((first, [tuple(row) for row in batch.collect()]))

    query = (
        read_stream(spark, server.endpoint_url, stream_name, **MODES[mode])
        .writeStream.foreachBatch(read_twice)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert len(reads) >= 2, "parent and children are in different batches"
    for first, second in reads:
        assert first == second
    delivered = sorted(bytes(row[1]) for first, _ in reads for row in first)  # type: ignore[call-overload]
    assert delivered == sorted([*numbers, b"after the split"])
    assert server.kinesis.limits is not None
    calls = server.kinesis.calls
    for operation in ("GetRecords", "GetShardIterator"):
        assert not [call for call in calls.select(operation) if call.error is not None]
        for shard in calls.per_shard(operation):
            assert calls.peak(operation, window_ms=1000, shard=shard) <= 5
    by_events = sum(c.records for c in calls.select("SubscribeToShardEvent"))
    assert (by_events > 0) == (mode == "efo")
