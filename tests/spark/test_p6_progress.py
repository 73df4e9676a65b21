"""P6 and lag as a user sees them: rows of each batch, and how far behind, in the progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sparkinesis.local import LocalServer, ManualClock
from tests.engine import MODES
from tests.spark.reading import read_stream
from tests.streams import put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def test_p6_batches_keep_the_limit_and_the_lag_is_in_the_progress(
    spark: SparkSession, stream_name: str, checkpoint: str
) -> None:
    clock = ManualClock(1_790_000_000_000)
    with LocalServer(port=0, limits=False, clock=clock) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName=stream_name, ShardCount=2)
        for step in range(8):
            put(kinesis, stream_name, [b"%d-%d" % (step, n) for n in range(500)])
            clock.advance(60_000)
        queries = {
            mode: read_stream(
                spark,
                server.endpoint_url,
                stream_name,
                maxRecordsPerTrigger="1000",
                shardCallsPerSecond="unlimited",
                **options,
            )
            .writeStream.format("noop")
            .option("checkpointLocation", f"{checkpoint}-{mode}")
            .trigger(availableNow=True)
            .start()
            for mode, options in MODES.items()
        }
        for query in queries.values():
            query.awaitTermination()
        assert server.kinesis.calls.count("SubscribeToShardEvent")
    for query in queries.values():
        check(query, stream_name)


def check(query: StreamingQuery, stream: str) -> None:
    progress = [p for p in query.recentProgress if p.numInputRows]
    assert sum(p.numInputRows for p in progress) == 4000
    assert all(900 <= p.numInputRows <= 1100 for p in progress[:-1])
    lags = [json.loads(p.sources[0].latestOffset)[stream]["millisBehindLatest"] for p in progress]
    # Two of eight minutes are read by then; the newest record is a minute old.
    assert 300_000 <= lags[0]["max"] <= 480_000
    assert 0 < lags[0]["mean"] <= lags[0]["max"]
    assert [lag["max"] for lag in lags] == sorted((lag["max"] for lag in lags), reverse=True)
