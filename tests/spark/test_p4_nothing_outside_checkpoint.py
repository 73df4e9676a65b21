"""P4: nothing is stored outside Spark's checkpoint, so a copy of it is all that a query needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkinesis.local import LocalServer
from tests.engine import MODES
from tests.spark.reading import read_stream
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READING = {
    "DescribeStreamSummary",
    "GetRecords",
    "GetShardIterator",
    "ListShards",
}
SUBSCRIBING = {
    "DescribeStreamConsumer",
    "RegisterStreamConsumer",
    "SubscribeToShard",
    "SubscribeToShardEvent",
}


@pytest.mark.parametrize("mode", [pytest.param("polling", marks=pytest.mark.long), "efo"])
def test_p4_a_query_goes_on_from_a_copy_of_its_checkpoint_alone(
    spark: SparkSession, server: LocalServer, stream_name: str, tmp_path: Path, mode: str
) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream_name, ShardCount=2)
    server.kinesis.calls.clear()
    seen: list[bytes] = []

    def run(checkpoint: Path) -> None:
        query = (
            read_stream(spark, server.endpoint_url, stream_name, **MODES[mode])
            .writeStream.foreachBatch(
                lambda batch, _: seen.extend(bytes(row.data) for row in batch.collect())
            )
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    put(kinesis, stream_name, [b"a", b"b", b"c"])
    run(tmp_path / "one")
    assert sorted(seen) == [b"a", b"b", b"c"]
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    shutil.rmtree(tmp_path / "one")
    put(kinesis, stream_name, [b"d", b"e"])
    run(tmp_path / "two")
    assert sorted(seen) == [b"a", b"b", b"c", b"d", b"e"]
    called = {call.operation for call in server.kinesis.calls} - {"PutRecords"}
    assert called <= (READING if mode == "polling" else READING | SUBSCRIBING)
    assert called >= (set() if mode == "polling" else SUBSCRIBING)
    offset = json.loads((tmp_path / "two" / "offsets" / "1").read_text().splitlines()[-1])
    assert list(offset) == [stream_name]
    assert len(offset[stream_name]) == 2
