"""A union of streams: Spark gives each of its sources the offset at its place in the query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkinesis.local import LocalServer
from tests.spark.reading import read_stream
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_streams_that_change_places_are_refused(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415

    kinesis = server.client("kinesis")
    for name in ("flights", "weather"):
        kinesis.create_stream(StreamName=name, ShardCount=1)
    seen: list[bytes] = []

    def run(first: str, second: str) -> None:
        one, other = (read_stream(spark, server.endpoint_url, name) for name in (first, second))
        query = (
            one.union(other)
            .writeStream.foreachBatch(
                lambda batch, _: seen.extend(bytes(row.data) for row in batch.collect())
            )
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for name in ("flights", "weather"):
        put(kinesis, name, [f"{name} 1".encode()])
    run("flights", "weather")
    for name in ("flights", "weather"):
        put(kinesis, name, [f"{name} 2".encode()])
    with pytest.raises(StreamingQueryException, match=r"belongs to stream '\w+', but the query"):
        run("weather", "flights")
    run("flights", "weather")
    assert sorted(seen) == [b"flights 1", b"flights 2", b"weather 1", b"weather 2"]
