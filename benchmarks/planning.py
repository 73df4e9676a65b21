"""The planner alone, in a backlog: its CPU time and its calls for a batch, by the number of shards.

The local Kinesis is a process of its own. Its clock is turned while it is filled, so the backlog is
an hour old; half of the records are in a tenth of the shards.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from typing import Any

from benchmarks.filled_server import filled_server
from benchmarks.report import Result, print_table
from sparkinesis.local import ManualClock
from sparkinesis.source.options.checked_options import stream_read_options
from sparkinesis.source.options.option_table import Options
from sparkinesis.source.planning.source_planner import SourcePlanner
from sparkinesis.stream.calls.client import StreamClient

SHARDS = (2, 64, 1000)
RECORDS = 200_000
BATCHES = 10
HASH_KEYS = 2**128


def fill(kinesis: Any, clock: ManualClock, shards: int) -> None:
    """Put an hour of records."""
    kinesis.create_stream(StreamName="backlog", ShardCount=shards)
    rng = random.Random(shards)
    for _ in range(RECORDS // 500):
        keys = [
            int(HASH_KEYS * rng.random() * (0.1 if rng.random() < 0.5 else 1.0)) for _ in range(500)
        ]
        entries = [
            {"Data": b"x" * 100, "PartitionKey": "k", "ExplicitHashKey": str(key)} for key in keys
        ]
        answer = kinesis.put_records(StreamName="backlog", Records=entries)
        assert answer["FailedRecordCount"] == 0
        clock.advance(3_600_000 * 500 // RECORDS)
    clock.advance(60_000)


def measure(endpoint: str, shards: int) -> Result:
    """Plan batches of a twentieth of the backlog."""
    calls: Counter[str] = Counter()
    original = StreamClient.call

    def counted(self: StreamClient, operation: str, *of: Any, **how: Any) -> Any:
        calls[operation] += 1
        return original(self, operation, *of, **how)

    options = stream_read_options(
        Options(
            {
                "streamName": "backlog",
                "region": "us-east-1",
                "endpoint": endpoint,
                "initialPosition": "trim_horizon",
                "maxRecordsPerTrigger": str(RECORDS // 20),
                "shardCallsPerSecond": "unlimited",
                "shardBytesPerSecond": "unlimited",
                "minFetchPeriod": "0s",
            }
        )
    )
    planner = SourcePlanner(options)
    at: Any = {"backlog": options.initial_positions}
    StreamClient.call = counted  # type: ignore[method-assign, assignment]
    try:
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(BATCHES):
            at = planner.next_offset(at, options.allowance)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    finally:
        StreamClient.call = original  # type: ignore[method-assign]
        if planner._ahead is not None:
            planner._ahead.wait()  # or its probes ask a server that has ended, for five minutes
    made = calls["GetRecords"], calls["GetShardIterator"]
    per_shard = " and ".join(f"{count / BATCHES / shards:.1f}" for count in made)
    return Result(
        f"a batch over {shards:,} shards, planned",
        1000 * cpu / BATCHES,
        "ms of CPU",
        note=f"{per_shard} GetRecords and GetShardIterator calls a shard, "
        f"{seconds / BATCHES:.2f} s with those of the next batch that is planned ahead",
    )


def run() -> list[Result]:
    results = []
    for shards in SHARDS:
        with filled_server(partial(fill, shards=shards)) as endpoint:
            results.append(measure(endpoint, shards))
    return results


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
