"""A backlog of 24 hours, read at a shard's limits in bounded batches, against one unbounded batch.

The readers keep to what a shard gives (2 MB and 5 calls a second), as they do on AWS; bounded
batches have to be planned, and end where the planner says, on the same limits. The arrival times of
a day are made by a clock that is turned. The time is that of the batches, planning included. The
memory is that of the largest of Spark's Python processes, from /proc.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from benchmarks import tls
from benchmarks.report import Result, print_table
from benchmarks.source import read, spark_session
from sparkinesis.local import LocalServer, ManualClock

SHARDS = 8
RECORDS = 320_000
SIZE = 1_000
LIMIT = 80_000
"""Rows of a batch: 10 MB of each shard, five seconds' worth."""
MINUTES = 24 * 60
REQUIRED = 0.8


def put_a_day(kinesis: Any, clock: ManualClock, stream: str, records: int) -> int:
    """About ``records`` records, more by day than by night; returns how many."""
    kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    kinesis.increase_stream_retention_period(StreamName=stream, RetentionPeriodHours=48)
    rng = random.Random(SIZE)
    put = 0
    for minute in range(MINUTES):
        count = int(records / MINUTES * (1 + 0.8 * math.sin(2 * math.pi * minute / MINUTES)))
        entries = [
            {"Data": rng.randbytes(SIZE), "PartitionKey": f"{rng.getrandbits(40):x}"}
            for _ in range(count)
        ]
        for at in range(0, count, 500):
            answer = kinesis.put_records(StreamName=stream, Records=entries[at : at + 500])
            assert answer["FailedRecordCount"] == 0
        put += count
        clock.advance(60_000)
    return put


def reader_memory() -> float:
    """The peak memory (MiB) of the largest of Spark's Python processes so far."""
    peaks = [0]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark" in (process / "cmdline").read_bytes():
                status = dict(
                    line.split(":", 1) for line in (process / "status").read_text().splitlines()
                )
                peaks.append(int(status.get("VmHWM", "0 kB").split()[0]))
        except OSError:
            continue  # the process has ended
    return max(peaks) / 1024


def run() -> list[Result]:
    # A task mostly waits for its shard: all shards are read side by side, as on a cluster.
    spark = spark_session(f"local[{SHARDS}]")
    clock = ManualClock(1_790_000_000_000)
    try:
        with LocalServer(limits=False, clock=clock, certificate=tls.certificate()) as server:
            kinesis = server.client("kinesis")
            put = put_a_day(kinesis, clock, "day", RECORDS)
            put_a_day(kinesis, clock, "warm-up", RECORDS // 20)
            read(spark, server.endpoint_url, "warm-up", {})
            limited = {"maxRecordsPerTrigger": str(LIMIT)}
            batches, bounded = read(spark, server.endpoint_url, "day", limited)
            memory_bounded = reader_memory()
            whole, unbounded = read(spark, server.endpoint_url, "day", {})
            memory_unbounded = reader_memory()
    finally:
        spark.stop()
    assert sum(whole) == sum(batches) == put
    return [
        Result(
            f"a day's backlog, batches of {LIMIT:,} rows",
            put / bounded,
            "rows/s",
            unbounded / bounded,
            REQUIRED,
            f"{put:,} rows of {SIZE} B, {SHARDS} shards, {len(batches)} batches: "
            + ", ".join(f"{rows:,}" for rows in batches)
            + f"; {memory_bounded:.0f} MiB",
        ),
        Result(
            f"the same without a limit, batches: {len(whole)}",
            put / unbounded,
            "rows/s",
            note=f"{memory_unbounded:.0f} MiB",
        ),
    ]


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
