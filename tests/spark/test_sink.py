"""Writing out of a streaming query. Batches are written by `test_readme` and `test_sql`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer
from tests.engine import query_of
from tests.spark.reading import REGION, read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def sink(server: LocalServer) -> dict[str, str]:
    server.client("kinesis").create_stream(StreamName="copy", ShardCount=2)
    return {"streamName": "copy", "endpoint": server.endpoint_url, "region": REGION}


def read_all(server: LocalServer) -> list[tuple[str, str]]:
    """All user records of the stream, by our source without Spark."""
    server.kinesis.limits = None
    query = query_of(server, "copy")
    rows = [row for batch in query.drain() for row in batch.rows]
    return sorted((row["partitionKey"], row["data"].decode()) for row in rows)


def test_a_streaming_query_copies_a_stream(
    spark: SparkSession, server: LocalServer, sink: dict[str, str], tmp_path: Path
) -> None:
    kinesis: Any = server.client("kinesis")
    kinesis.create_stream(StreamName="flights", ShardCount=2)
    rows = [(f"plane {n % 7}", f"flight {n}") for n in range(300)]
    kinesis.put_records(
        StreamName="flights",
        Records=[{"PartitionKey": key, "Data": data.encode()} for key, data in rows],
    )
    query = (
        read_stream(spark, server.endpoint_url, "flights")
        .select("partitionKey", "data")
        .writeStream.format("kinesis")
        .options(**sink, ordered="true", aggregation="true")
        .option("checkpointLocation", str(tmp_path / "copying"))
        .queryName("copying")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    puts = server.kinesis.calls.select("PutRecords", stream="copy")
    assert sum(call.records for call in puts) < 100
    assert read_all(server) == sorted(rows)
