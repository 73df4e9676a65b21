"""docs/coming-from/awslabs.md: its programs go on where another query stood, or compare with it.

Each record comes once: the batch read ends at the instant at which the query begins.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import lit

from sparkinesis import aggregate
from sparkinesis.local import LocalServer, ManualClock
from tests.documents import ROOT, blocks
from tests.spark.reading import python_environment
from tests.streams import put_all, records_of, shard_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "coming-from" / "awslabs.md"
(MOVE,) = [block.text for block in blocks(PAGE) if "\npositions = " in block.text]
(COMPARE,) = [block.text for block in blocks(PAGE) if "exceptAll" in block.text]
NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
HALF_AN_HOUR_MS = 1_800_000

FIRST, SECOND = "0", str(2**127)
"""Hash keys of the two shards."""


def entry(data: bytes, shard: str) -> dict[str, Any]:
    return {"Data": data, "PartitionKey": "plane", "ExplicitHashKey": shard}


def test_an_old_query_is_continued_without_a_repeated_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = ManualClock(int(NOON.timestamp() * 1000) - 2 * HALF_AN_HOUR_MS)
    with LocalServer(port=0, clock=clock, limits=None) as server:
        kinesis = server.client("kinesis", "eu-west-1")
        kinesis.create_stream(StreamName="flights", ShardCount=2)
        put_all(kinesis, "flights", [entry(b"plain %d" % n, FIRST) for n in range(10)])
        (packed,) = aggregate([("plane", None, b"packed %d" % n) for n in range(10)])
        put_all(kinesis, "flights", [entry(packed.data, SECOND)])
        first, second = shard_ids(kinesis, "flights")
        done = records_of(kinesis, "flights", first)[3]["SequenceNumber"]
        half_done = records_of(kinesis, "flights", second)[0]["SequenceNumber"]
        for name in (b"before noon", b"after noon"):
            clock.advance(HALF_AN_HOUR_MS)
            put_all(kinesis, "flights", [entry(name, shard) for shard in (FIRST, SECOND)])
            clock.advance(HALF_AN_HOUR_MS)

        positions = f'{{"{first}": "{done}", "{second}": "{half_done}:4"}}'
        text, replaced = re.subn("(?m)^positions = .*$", f"positions = '{positions}'", MOVE)
        assert replaced == 1
        names: dict[str, Any] = {"__name__": "__main__"}
        environment = {"AWS_ENDPOINT_URL": server.endpoint_url, "AWS_REGION": "eu-west-1"}
        with python_environment(spark, environment):
            exec(text.replace("/tmp/", f"{tmp_path}/"), names)
            query = (
                names["flights"]
                .writeStream.format("parquet")
                .option("path", str(tmp_path / "later"))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
    rest, later = (
        sorted(bytes(row.data).decode() for row in spark.read.parquet(str(path)).collect())
        for path in (tmp_path / "flights-rest", tmp_path / "later")
    )
    assert rest == sorted(
        [f"plain {n}" for n in range(4, 10)]
        + [f"packed {n}" for n in range(5, 10)]
        + ["before noon"] * 2
    )
    assert later == ["after noon"] * 2


def test_two_queries_are_compared_between_two_instants(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = "sequenceNumber STRING, data BINARY, approximateArrivalTimestamp TIMESTAMP"
    shared = [("1", b"a", NOON), ("2", b"packed", NOON), ("2", b"packed", NOON), ("3", b"c", NOON)]
    early, late = NOON - timedelta(milliseconds=1), NOON + timedelta(days=1)
    old = [*shared, ("0", b"early", early), ("3", b"c", NOON), ("9", b"late", late)]
    new = [*shared, ("4", b"before a reshard", late - timedelta(milliseconds=1))]
    for name, rows in (("old", old), ("new", new)):
        frame = spark.createDataFrame(rows, row).withColumn("streamName", lit("flights"))
        frame.write.parquet(str(tmp_path / f"flights-{name}"))
    exec(COMPARE.replace("/tmp/", f"{tmp_path}/"), {"__name__": "__main__"})
    assert capsys.readouterr().out == ("1 rows of the old query alone, 1 of the new one alone\n")
