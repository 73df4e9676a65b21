"""`sparkinesis.testing` feeds a query batch by batch, and moves its time."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession, functions

from sparkinesis.testing import Sandbox
from tests.documents import ROOT, blocks


def heartbeats(frame: DataFrame) -> DataFrame:
    """The number of heartbeats of each user, by minute; a late one counts for two minutes."""
    at = "approximateArrivalTimestamp"
    minute = functions.window(at, "1 minute").alias("minute")
    return frame.withWatermark(at, "2 minutes").groupBy(minute, "partitionKey").count()


def counts(rows: list[Row]) -> list[tuple[str, int]]:
    return sorted((row["partitionKey"], row["count"]) for row in rows)


def test_a_windowed_count(kinesis: Sandbox, spark: SparkSession) -> None:
    kinesis.advance(60 - kinesis.time() % 60)
    with kinesis.query(heartbeats(kinesis.dataframe(spark))) as query:
        assert query.feed([("ann", b""), ("bob", b""), ("ann", b"")]) == []
        kinesis.advance(179)
        assert query.feed([("bob", b"")]) == [], "the first minute could still get a late heartbeat"
        query.restart()
        kinesis.advance(2)
        assert counts(query.feed([("eve", b"")])) == [("ann", 2), ("bob", 1)]


def test_the_documented_test_of_a_query_passes(kinesis: Sandbox, spark: SparkSession) -> None:
    """In the session of these tests: the program's own would be another start of Spark."""
    page = blocks(ROOT / "docs" / "testing.md")
    (program,) = [block.text for block in page if block.text.startswith("# test_query.py\n")]
    names: dict[str, Any] = {}
    exec(compile(program, "test_query.py", "exec"), names)
    (test,) = [made for name, made in names.items() if name.startswith("test_")]
    test(kinesis, spark)
