"""Enhanced fan-out, seen through Spark: what a query that stops leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkinesis.local import LocalServer
from tests.engine import MODES
from tests.pace import eventually
from tests.spark.reading import read_stream
from tests.streams import arn_of, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_consumer_is_deregistered_when_the_query_stops_if_asked_for(
    spark: SparkSession, server: LocalServer, stream_name: str, checkpoint: str
) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream_name, ShardCount=1)
    put(kinesis, stream_name, [b"a"])
    options = {**MODES["efo"], "requireConsumerDeregistration": "true"}
    query = (
        read_stream(spark, server.endpoint_url, stream_name, **options)
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.processAllAvailable()
    assert server.kinesis.calls.count("SubscribeToShard") == 1
    query.stop()
    arn = arn_of(kinesis, stream_name)
    eventually(lambda: not kinesis.list_stream_consumers(StreamARN=arn)["Consumers"])
