"""P5, seen through Spark: an idle stream of 8 shards runs no batch and makes few calls."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from sparkinesis.local import LocalServer
from tests.spark.reading import read_stream
from tests.streams import put, shard_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_SECONDS = 15


def test_p5_no_batch_runs_and_calls_per_shard_and_minute_stay_few(
    spark: SparkSession, server: LocalServer, stream_name: str, checkpoint: str
) -> None:
    kinesis = server.client("kinesis")
    kinesis.create_stream(StreamName=stream_name, ShardCount=8)
    rows: list[bytes] = []
    query = (
        read_stream(spark, server.endpoint_url, stream_name)
        .writeStream.foreachBatch(
            lambda batch, _: rows.extend(bytes(row.data) for row in batch.collect())
        )
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        put(kinesis, stream_name, [b"first"])
        while not rows:
            assert query.isActive, query.exception()
            time.sleep(0.05)
        query.processAllAvailable()
        batches = sorted(path.name for path in (Path(checkpoint) / "offsets").iterdir())
        server.kinesis.calls.clear()
        time.sleep(IDLE_SECONDS)  # what is measured is what happens while nothing does
        calls = Counter((call.operation, call.shard) for call in server.kinesis.calls)
        assert sorted(path.name for path in (Path(checkpoint) / "offsets").iterdir()) == batches
        assert set(calls) <= {("GetRecords", shard) for shard in shard_ids(kinesis, stream_name)}
        per_minute = {shard: count * 60 / IDLE_SECONDS for (_, shard), count in calls.items()}
        assert len(per_minute) == 8
        assert all(40 <= count <= 64 for count in per_minute.values()), per_minute
        put(kinesis, stream_name, [b"second"])
        query.processAllAvailable()
        assert rows == [b"first", b"second"]
    finally:
        query.stop()
