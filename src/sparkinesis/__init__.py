"""sparkinesis: a Kinesis Client Library for PySpark.

import sparkinesis

sparkinesis.register(spark)
flights = spark.readStream.format("kinesis").option("streamName", "flights").load()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkinesis.errors import (
    AccessDeniedError,
    DataLossError,
    LeaseTableError,
    OptionError,
    RecordRefusedError,
    ServiceError,
    SparkinesisError,
    StreamNotFoundError,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "AccessDeniedError",
    "DataLossError",
    "LeaseTableError",
    "OptionError",
    "RecordRefusedError",
    "ServiceError",
    "SparkinesisError",
    "StreamNotFoundError",
    "register",
]


def register(spark: SparkSession) -> None:
    """Make ``format("kinesis")`` known to a Spark session (PySpark 4.2 or newer)."""
    from sparkinesis.source.datasource import KinesisDataSource  # noqa: PLC0415

    spark.dataSource.register(KinesisDataSource)
