"""The option `columns`: a read and a streaming query that have a part of the columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from sparkinesis.local import LocalServer, ManualClock
from sparkinesis.source.row_columns import SCHEMA
from tests.spark.reading import python_environment
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_MS = 1_790_000_000_000
FEW = "data,sequenceNumber,partitionKey"


@pytest.fixture
def server(spark: SparkSession) -> Iterator[LocalServer]:
    """Three records, and a minute later two more."""
    clock = ManualClock(START_MS)
    with LocalServer(port=0, limits=False, clock=clock) as running:
        kinesis = running.client("kinesis", "us-east-1")
        kinesis.create_stream(StreamName="flights", ShardCount=1)
        put(kinesis, "flights", [b"0", b"1", b"2"])
        clock.advance(60_000)
        put(kinesis, "flights", [b"3", b"4"])
        place = {"AWS_ENDPOINT_URL": running.endpoint_url, "AWS_REGION": "us-east-1"}
        with python_environment(spark, place):
            yield running


def test_a_read_has_the_wanted_columns(spark: SparkSession, server: LocalServer) -> None:
    read = spark.read.format("kinesis").option("streamName", "flights")
    whole = read.load().select(*FEW.split(",")).collect()
    few = read.option("columns", FEW).load()
    assert list(few.schema) == [SCHEMA[name] for name in FEW.split(",")]
    assert sorted(few.collect()) == sorted(whole)
    assert len(whole) == 5
    # The end needs the arrival times, which are no column then.
    early = read.option("endingPosition", "2026-09-21T14:13:50Z").load()
    assert early.columns == FEW.split(",")
    assert {bytes(row.data) for row in early.collect()} == {b"0", b"1", b"2"}


def test_a_streaming_query_has_the_wanted_columns(
    spark: SparkSession, server: LocalServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    frame = (
        spark.readStream.format("kinesis")
        .option("streamName", "flights")
        .option("initialPosition", "trim_horizon")
        .option("columns", "data")
        .load()
    )
    query = (
        frame.writeStream.format("memory")
        .queryName("few")
        .option("checkpointLocation", str(tmp_path_factory.mktemp("checkpoint")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [(*row,) for row in spark.sql("SELECT * FROM few ORDER BY data").collect()] == [
        (b"%d" % n,) for n in range(5)
    ]
