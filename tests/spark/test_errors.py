"""What a user sees out of Spark when something is wrong: one paragraph that says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests.spark.reading import read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3_600_000


def run(spark: SparkSession, server: LocalServer, checkpoint: str, **options: str) -> str:
    """Start a query, let it fail, and return what the user is told."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    defaults = {"endpoint": server.endpoint_url, "region": "us-east-1", "streamName": "flights"}
    chosen = {name: value for name, value in {**defaults, **options}.items() if value}
    with pytest.raises(PySparkException) as caught:
        (
            spark.readStream.format("kinesis")
            .options(**chosen)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
            .awaitTermination()
        )
    return str(caught.value)


def paragraph(text: str, kind: str) -> str:
    """The line that holds our error: all of it is on that one line."""
    lines = [line for line in text.splitlines() if f"{kind}: " in line]
    assert lines, text
    return lines[-1].split(f"{kind}: ", 1)[1]


def test_a_missing_stream(spark: SparkSession, server: LocalServer, checkpoint: str) -> None:
    said = paragraph(run(spark, server, checkpoint, streamName="flihgts"), "StreamNotFoundError")
    assert "There is no stream 'flihgts' in us-east-1" in said
    assert "Check the spelling of the option streamName" in said
    assert "Stream flihgts under account" in said


def test_a_wrong_region(spark: SparkSession, server: LocalServer, checkpoint: str) -> None:
    server.client("kinesis").create_stream(StreamName="flights", ShardCount=1)
    said = paragraph(run(spark, server, checkpoint, region="eu-west-1"), "StreamNotFoundError")
    assert "There is no stream 'flights' in eu-west-1" in said
    assert "the option region names the stream's region" in said


def test_a_region_that_does_not_exist(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    said = paragraph(run(spark, server, checkpoint, region="eu-wset-1", endpoint=""), "OptionError")
    assert "Did you mean eu-west-1?" in said


def test_an_unknown_option(spark: SparkSession, server: LocalServer, checkpoint: str) -> None:
    said = paragraph(run(spark, server, checkpoint, initalPosition="latest"), "OptionError")
    assert "Did you mean initialPosition?" in said


def test_an_unreadable_initial_position(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    said = paragraph(run(spark, server, checkpoint, initialPosition="yesterday"), "OptionError")
    assert "it takes latest, trim_horizon or an instant" in said


def test_nothing_answers_at_the_endpoint(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    said = paragraph(run(spark, server, checkpoint, endpoint="http://127.0.0.1:9"), "ServiceError")
    assert "The endpoint of stream 'flights'" in said
    assert "Check the spelling of the options region, endpoint" in said


def test_an_expired_position(spark: SparkSession, checkpoint: str) -> None:
    clock = ManualClock(1_790_000_000_000)
    with LocalServer(port=0, limits=False, clock=clock) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="flights", ShardCount=1)
        kinesis.put_record(StreamName="flights", Data=b"a", PartitionKey="k")
        (
            read_stream(spark, server.endpoint_url, "flights")
            .writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
        clock.advance(1 * HOUR)
        kinesis.put_record(StreamName="flights", Data=b"lost", PartitionKey="k")
        clock.advance(30 * HOUR)
        kinesis.put_record(StreamName="flights", Data=b"b", PartitionKey="k")
        said = paragraph(run(spark, server, checkpoint), "DataLossError")
    assert "in shard shardId-000000000000 of stream 'flights'" in said
    assert "has expired" in said
    assert "Set the option failOnDataLoss to false" in said
