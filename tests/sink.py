"""Writing as Spark's executors do it, without Spark: Arrow batches through a pickled writer."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import BinaryType, StringType, StructType

from sparkinesis.source.datasource import KinesisDataSource, KinesisWriter

Row = tuple[str | None, str | None, bytes | None]
"""Partition key, explicit hash key, data."""

ARROW_SCHEMA = pa.schema(
    [("partitionKey", pa.string()), ("explicitHashKey", pa.string()), ("data", pa.binary())]
)
SPARK_SCHEMA = (
    StructType()
    .add("partitionKey", StringType())
    .add("explicitHashKey", StringType())
    .add("data", BinaryType())
)


def arrow(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [[row[i] for row in rows] for i in range(len(ARROW_SCHEMA))]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, ARROW_SCHEMA, strict=True)],
        schema=ARROW_SCHEMA,
    )


def write(endpoint: str, stream: str, batches: Sequence[Sequence[Row]], **options: str) -> None:
    """What one task of ``df.write.format("kinesis")`` does with these Arrow batches."""
    source = KinesisDataSource(
        {"streamName": stream, "endpoint": endpoint, "region": "us-east-1", **options}
    )
    writer: KinesisWriter = pickle.loads(pickle.dumps(source.writer(SPARK_SCHEMA, False)))
    writer.write(iter([arrow(rows) for rows in batches]))


def stored(kinesis: Any, stream: str) -> dict[str, list[dict[str, Any]]]:
    """The records of each shard, as Kinesis stores them, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for shard in kinesis.list_shards(StreamName=stream)["Shards"]:
        records = found[shard["ShardId"]] = []
        iterator = kinesis.get_shard_iterator(
            StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        while iterator:
            answer = kinesis.get_records(ShardIterator=iterator)
            records += answer["Records"]
            iterator = answer.get("NextShardIterator")
            if not answer["Records"] and answer["MillisBehindLatest"] == 0:
                break
    return found
