"""The source as the Spark tests use it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sparkinesis
from sparkinesis.local.java import use_java

REGION = "us-east-1"


def killable_session(master: str, folder: str) -> SparkSession:
    """A session of a process that a test kills, with the source; its files are in ``folder``."""
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={folder}")
        .config("spark.local.dir", folder)  # a killed process leaves its files behind
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def python_environment(spark: SparkSession, variables: Mapping[str, str]) -> Iterator[None]:
    """Variables of Spark's Python processes, which get those of the moment of `register`."""
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(variables)
    sparkinesis.register(spark)
    yield
    environment.clear()
    environment.update(before)
    sparkinesis.register(spark)


def rows_dropped(progress: Iterable[Any]) -> int:
    """The rows that the operators of a query's batches have dropped as late."""
    operators = (operator for each in progress for operator in each.stateOperators)
    return sum(operator.numRowsDroppedByWatermark for operator in operators)


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
