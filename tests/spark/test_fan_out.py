"""Enhanced fan-out, seen through Spark: what a query that stops leaves behind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from sparkinesis.local import LocalServer
from tests.engine import MODES
from tests.journal import PATIENCE
from tests.spark.reading import read_stream
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("deregisters", [False, True])
def test_the_consumer_is_deregistered_when_the_query_stops_if_asked_for(
    spark: SparkSession, server: LocalServer, stream_name: str, checkpoint: str, deregisters: bool
) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream_name, ShardCount=1)
    put(kinesis, stream_name, [b"a"])
    asked = {"requireConsumerDeregistration": str(deregisters).lower()}
    query = (
        read_stream(spark, server.endpoint_url, stream_name, **MODES["efo"], **asked)
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.processAllAvailable()
    assert server.kinesis.calls.count("SubscribeToShard") == 1
    query.stop()
    arn = kinesis.describe_stream_summary(StreamName=stream_name)["StreamDescriptionSummary"]

    def is_registered() -> bool:
        return bool(kinesis.list_stream_consumers(StreamARN=arn["StreamARN"])["Consumers"])

    assert is_registered() or deregisters
    until = time.monotonic() + PATIENCE
    while deregisters and is_registered():
        assert time.monotonic() < until
        time.sleep(0.05)
