"""The columns of a read."""

from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA = StructType(
    [
        StructField("partitionKey", StringType()),
        StructField("data", BinaryType()),
        StructField("stream", StringType()),
        StructField("shardId", StringType()),
        StructField("sequenceNumber", StringType()),
        StructField("approximateArrivalTimestamp", TimestampType()),
        StructField("subSequenceNumber", LongType()),
        StructField("explicitHashKey", StringType()),
    ]
)
"""The first six have the names of Databricks' Kinesis source. They are types, not Spark's DDL: what
TIMESTAMP means there is a setting of the session, ``spark.sql.timestampType``."""
NAMES = tuple(SCHEMA.names)


def described(schema: StructType) -> str:
    """Return columns as people write them."""
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in schema)
