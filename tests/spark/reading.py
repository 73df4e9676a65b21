"""The source as the Spark tests use it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

REGION = "us-east-1"


def read_stream(spark: SparkSession, endpoint: str, stream: str, **options: str) -> DataFrame:
    """A streaming DataFrame of a local stream, from its oldest record on."""
    return (
        spark.readStream.format("kinesis")
        .option("streamName", stream)
        .option("endpoint", endpoint)
        .option("region", REGION)
        .option("initialPosition", "trim_horizon")
        .options(**options)
        .load()
    )
