"""P5, seen through Spark: an idle stream of 8 shards runs no batch and makes few calls."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkinesis.local import LocalServer
from tests.engine import MODES
from tests.spark.reading import read_stream
from tests.streams import put, shard_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

IDLE_SECONDS = 10
MOST_CALLS = IDLE_SECONDS + 1
"""Of a shard: one a second, and one more at the edge."""


@dataclass
class Reading:
    """A query of its own stream, and what it has read."""

    stream: str
    checkpoint: Path
    query: StreamingQuery
    rows: list[bytes]

    def wait_for_rows(self) -> None:
        while not self.rows:
            assert self.query.isActive, self.query.exception()
            time.sleep(0.05)
        self.query.processAllAvailable()

    def batches(self) -> list[str]:
        return sorted(path.name for path in (self.checkpoint / "offsets").iterdir())


def start(
    spark: SparkSession, server: LocalServer, stream: str, checkpoint: Path, mode: str
) -> Reading:
    rows: list[bytes] = []
    query = (
        read_stream(spark, server.endpoint_url, stream, **MODES[mode])
        .writeStream.foreachBatch(
            lambda batch, _: rows.extend(bytes(row.data) for row in batch.collect())
        )
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    return Reading(stream, checkpoint, query, rows)


def test_p5_no_batch_runs_and_calls_per_shard_and_minute_stay_few(
    spark: SparkSession, server: LocalServer, stream_name: str, tmp_path: Path
) -> None:
    """Queries of both modes, each with a stream of its own, are idle at the same time."""
    kinesis = server.client("kinesis")
    readings = []
    try:
        for mode in MODES:
            stream = f"{stream_name}-{mode}"
            kinesis.create_stream(StreamName=stream, ShardCount=8)
            readings.append(start(spark, server, stream, tmp_path / mode, mode))
            put(kinesis, stream, [b"first"])
        for reading in readings:
            reading.wait_for_rows()
        batches = [reading.batches() for reading in readings]
        assert server.kinesis.calls.count("SubscribeToShardEvent")
        server.kinesis.calls.clear()
        time.sleep(IDLE_SECONDS)  # what is measured is what happens while nothing does
        calls = Counter((call.stream, call.operation, call.shard) for call in server.kinesis.calls)
        assert [reading.batches() for reading in readings] == batches
        for reading in readings:
            shards = shard_ids(kinesis, reading.stream)
            of_stream = {key[1:]: n for key, n in calls.items() if key[0] == reading.stream}
            assert set(of_stream) <= {("GetRecords", shard) for shard in shards}
            assert len(of_stream) == 8
            assert all(0 < count <= MOST_CALLS for count in of_stream.values()), of_stream
            put(kinesis, reading.stream, [b"second"])
            reading.query.processAllAvailable()
            assert reading.rows == [b"first", b"second"]
    finally:
        for reading in readings:
            reading.query.stop()
