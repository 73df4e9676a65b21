"""A stream is taken out of a query between a batch that failed and its replay by Spark."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer
from tests.spark.reading import read_stream
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = list[tuple[str, str, bytes]]


def run(frame: DataFrame, checkpoint: str, *, fails: bool = False) -> dict[int, list[Rows]]:
    """Run a query to its end, and return the rows of each attempt, by the number of the batch."""
    attempts: dict[int, list[Rows]] = defaultdict(list)

    def keep(rows: DataFrame, batch: int) -> None:
        found = rows.select("stream", "sequenceNumber", "data").collect()
        attempts[batch].append([(row[0], row[1], bytes(row[2])) for row in found])
        if fails:
            raise RuntimeError("the sink fails")

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    if fails:
        with pytest.raises(Exception, match="the sink fails"):
            query.awaitTermination()
    else:
        query.awaitTermination()
    return attempts


def offsets(checkpoint: str, batch: int) -> Any:
    """The source's offset at the end of a batch, as Spark stored it."""
    return json.loads(Path(checkpoint, "offsets", str(batch)).read_text().splitlines()[-1])


def test_p1_a_replayed_batch_keeps_the_rows_of_a_removed_stream(
    spark: SparkSession, server: LocalServer, checkpoint: str
) -> None:
    kinesis = server.client("kinesis")
    for name in ("s", "t"):
        kinesis.create_stream(StreamName=name, ShardCount=2)
        put(kinesis, name, [f"{name}{n}".encode() for n in range(5)])
    endpoint = server.endpoint_url
    (planned,) = run(read_stream(spark, endpoint, "s,t"), checkpoint, fails=True)[0]
    assert len(planned) == 10
    put(kinesis, "s", [b"later"])
    put(kinesis, "t", [b"dropped"])
    without = read_stream(spark, endpoint, "s", removedStreams="drop")
    replayed = run(without, checkpoint)
    assert replayed[0] == [planned]
    assert [row[::2] for row in replayed[1][0]] == [("s", b"later")]
    assert sorted(offsets(checkpoint, 0)) == ["s", "t"]
    assert sorted(offsets(checkpoint, 1)) == ["s"]
