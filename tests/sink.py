"""Writing as Spark's executors do it, without Spark: Arrow batches through a pickled writer."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence

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


def write(endpoint: str, batches: Iterable[Sequence[Row]], **options: str) -> None:
    """Writes Arrow batches like one task of ``df.write.format("kinesis")``."""
    source = KinesisDataSource(
        {"streamName": "s", "endpoint": endpoint, "region": "us-east-1", **options}
    )
    writer: KinesisWriter = pickle.loads(pickle.dumps(source.writer(SPARK_SCHEMA, False)))
    writer.write(arrow(rows) for rows in batches)
