"""docs/coming-from/awslabs.md: its batch read and its query go on where another query stood.

Each record comes once: the batch read ends at the instant at which the query begins.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkinesis import aggregate
from sparkinesis.local import LocalServer, ManualClock
from tests.documents import ROOT, blocks
from tests.spark.reading import python_environment
from tests.streams import put_all, records_of, shard_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "coming-from" / "awslabs.md"
(MOVE,) = [block.text for block in blocks(PAGE) if "\npositions = " in block.text]
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
