"""A skewed backlog in limited batches: all shards up to one instant, against a share for each.

Six hours of 64 shards whose rates follow Zipf's law. The local Kinesis, a process of its own, has
no limits: this is the cost of planning and of the batches. On AWS the busiest shard is read at 2 MB
a second in both ways. The time is that of the batches, planning included.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from benchmarks.filled_server import filled_server
from benchmarks.report import Result, print_table
from benchmarks.source import UNLIMITED, read, spark_session
from sparkinesis.local import ManualClock

STREAM = "skewed"
SHARDS = 64
RECORDS = 1_000_000
SIZE = 200
LIMIT = 100_000
STEPS = 6 * 60
TOGETHER: dict[str, str] = {}
APART = {"maxShardDrift": "unbounded"}


def fill(kinesis: Any, clock: ManualClock) -> None:
    """Put six hours of records, whose shards follow Zipf's law."""
    rng = random.Random(SHARDS)
    kinesis.create_stream(StreamName=STREAM, ShardCount=SHARDS)
    weights = list(itertools.accumulate(1 / rank for rank in range(1, SHARDS + 1)))
    places = range(SHARDS)
    data = rng.randbytes(SIZE)
    for _ in range(STEPS):
        chosen = rng.choices(places, cum_weights=weights, k=RECORDS // STEPS)
        entries = [
            {"Data": data, "PartitionKey": "k", "ExplicitHashKey": str(2**128 // SHARDS * place)}
            for place in chosen
        ]
        for at in range(0, len(entries), 500):
            answer = kinesis.put_records(StreamName=STREAM, Records=entries[at : at + 500])
            assert answer["FailedRecordCount"] == 0
            clock.advance(60_000 * 500 // len(entries))
    clock.advance(60_000)


def measure(*ways: dict[str, str]) -> list[tuple[list[int], float]]:
    """The rows of each batch and the rows a second, for each way to read; the best of two runs."""
    with filled_server(fill) as endpoint:
        spark = spark_session()
        try:
            limited = {**UNLIMITED, "maxRecordsPerTrigger": str(LIMIT)}
            read(spark, endpoint, STREAM, UNLIMITED)  # warms the JVM up
            found = []
            runs = [
                [read(spark, endpoint, STREAM, {**limited, **way}) for way in ways] for _ in "12"
            ]
            for of_way in zip(*runs, strict=True):
                rows, seconds = min(of_way, key=lambda run: run[1])
                found.append((rows, sum(rows) / seconds))
        finally:
            spark.stop()
    return found


def run() -> list[Result]:
    (together, of_together), (apart, of_apart) = measure(TOGETHER, APART)
    return [
        Result(
            f"{SHARDS} skewed shards, up to one instant",
            of_together,
            "rows/s",
            of_together / of_apart,
            note=f"{sum(together):,} rows in {len(together)} batches of at most {max(together):,}",
        ),
        Result(
            "the same, shards apart",
            of_apart,
            "rows/s",
            note=f"{len(apart)} batches of at most {max(apart):,}",
        ),
    ]


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
