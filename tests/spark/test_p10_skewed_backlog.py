"""P10 at the size of an outage: six hours of two skewed streams that were resharded, and a kill."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests.spark.query_process import kill, query_process, wait_until
from tests.spark.reading import REGION
from tests.streams import active_shards, merge_neighbours, split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "tests.spark.skewed_query"
MINUTE = 60_000
HOURS = 6
STREAMS = ("clicks", "orders")
SHARDS = 64
RECORDS = 300_000
LIMIT = 30_000


def put_backlog(kinesis: Any, clock: ManualClock) -> int:
    """Zipf-distributed records of each shard, with ten splits and five merges on the way."""
    rng = random.Random(RECORDS)
    reshards = [split] * 10 + [merge_neighbours] * 5
    rng.shuffle(reshards)
    for stream in STREAMS:
        kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    put = 0
    for minute in range(HOURS * 60):
        for stream in STREAMS:
            put += put_minute(kinesis, stream, rng)
            if minute % 23 == 11 and minute // 23 < len(reshards):
                reshards[minute // 23](kinesis, stream, rng)
        clock.advance(MINUTE)
    return put


def put_minute(kinesis: Any, stream: str, rng: random.Random) -> int:
    count = rng.randrange(RECORDS // (HOURS * 60)) + 1
    keys = (int((rng.paretovariate(1.0) - 1) * 2**128 / SHARDS) for _ in range(count))
    entries = [
        {"Data": b"%d" % n, "PartitionKey": "k", "ExplicitHashKey": str(key % 2**128)}
        for n, key in enumerate(keys)
    ]
    for at in range(0, count, 500):
        answer = kinesis.put_records(StreamName=stream, Records=entries[at : at + 500])
        assert answer["FailedRecordCount"] == 0
    return count


@pytest.mark.long
def test_p10_a_count_of_a_skewed_backlog_is_that_of_a_batch_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    from tests.spark.skewed_query import windows  # noqa: PLC0415 - a module of many seconds

    clock = ManualClock(1_790_000_000_000)
    output, log = tmp_path / "output", tmp_path / "query.log"
    output.mkdir()
    with LocalServer(port=0, limits=False, clock=clock) as server:
        kinesis = server.client("kinesis", region=REGION)
        put = put_backlog(kinesis, clock)
        # What makes the watermark pass all windows.
        for stream in STREAMS:
            for shard in active_shards(kinesis, stream):
                key = shard["HashKeyRange"]["StartingHashKey"]
                record = {"StreamName": stream, "Data": b"last", "PartitionKey": "k"}
                kinesis.put_record(**record, ExplicitHashKey=key)
        clock.advance(10 * MINUTE)
        arguments = [server.endpoint_url, ",".join(STREAMS), str(output), str(LIMIT)]

        def batches() -> int:
            return len(list((output / "checkpoint" / "commits").glob("[0-9]*")))

        with query_process(QUERY, arguments, log) as query:
            wait_until(lambda: batches() >= 3, query, log, every=0.05)
            kill(query)
        with query_process(QUERY, arguments, log) as query:
            assert query.wait(600) == 0, log.read_text()[-3000:]

        everything = (
            spark.read.format("kinesis")
            .option("streamName", ",".join(STREAMS))
            .option("endpoint", server.endpoint_url)
            .option("region", REGION)
            .option("shardCallsPerSecond", "unlimited")
            .load()
        )
        expected = {
            (row.stream, row.minute): row["count"]
            for row in windows(everything.where("string(data) != 'last'")).collect()
        }
        calls = Counter(call.operation for call in server.kinesis.calls)
    counted = {
        (row.stream, row.minute): row["count"]
        for row in spark.read.parquet(str(output / "counts")).collect()
    }
    progress = [line.split() for line in (output / "dropped").read_text().splitlines()]
    print(f"{put:,} records in {batches()} batches; {dict(calls)}")
    assert sum(expected.values()) == put
    assert sum(int(dropped) for _, _, dropped in progress) == 0
    assert counted == expected
