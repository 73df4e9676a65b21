"""What metrics cost a worker: records a second and CPU seconds, with none and with each exporter.

A plain process reads the same stream once for each kind in each round, in an order that alternates;
the local Kinesis has a core of its own. The processors do nothing but checkpoint once a second, and
records are small, so that nothing hides what metrics cost. The medians count; the spread is that of
the rounds.

python -m benchmarks metrics
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from benchmarks.fleet import SIZE, fill, pinned, server
from benchmarks.metrics_side import KINDS, REGION, STREAM
from benchmarks.report import Result, print_table

SHARDS = 16
RECORDS = 100_000
"""The number of records in each shard."""
ROUNDS = 9
LONGEST = 600.0
"""Seconds that one side may take on a busy machine."""


@dataclass(frozen=True)
class Run:
    records_per_second: float
    cpu_per_million: float
    """CPU seconds for a million records."""


def measure(endpoint: str, kind: str, application: str) -> Run:
    """Let a process read the stream with one kind of metrics."""
    records = SHARDS * RECORDS
    command = [sys.executable, "-m", "benchmarks.metrics_side"]
    credentials = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    with pinned(1):
        side = subprocess.run(
            [*command, endpoint, application, kind, str(records)],
            env={**os.environ, **credentials, "AWS_REGION": REGION},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    if side.returncode:
        raise RuntimeError(f"The side with {kind} has failed:\n{side.stderr[-3000:]}")
    told = json.loads(side.stdout)
    return Run(records / told["seconds"], told["cpu"] / records * 1e6)


def run() -> list[Result]:
    runs: dict[str, list[Run]] = {kind: [] for kind in KINDS}
    with server("--no-limits", "--cloudwatch") as client:
        fill(client, STREAM, SHARDS, RECORDS)
        endpoint = client.endpoint
        for number in range(ROUNDS):
            for kind in KINDS if number % 2 == 0 else [*KINDS][::-1]:
                name = f"round-{number}-{kind}-{time.monotonic_ns()}"
                runs[kind].append(measure(endpoint, kind, name))
    none = statistics.median(each.cpu_per_million for each in runs["none"])
    return [result for kind, found in runs.items() for result in _results(kind, found, none)]


def _results(kind: str, runs: list[Run], none: float) -> list[Result]:
    rates = sorted(each.records_per_second for each in runs)
    costs = sorted(each.cpu_per_million for each in runs)
    cost = statistics.median(costs)
    what = f"a worker with {KINDS[kind]}"
    return [
        Result(
            what,
            statistics.median(rates),
            "records/s",
            note=f"{SHARDS} shards, records of {SIZE} B; {rates[0]:,.0f} to {rates[-1]:,.0f}",
        ),
        Result(
            what,
            cost,
            "CPU s per million",
            note=f"{costs[0]:.3f} to {costs[-1]:.3f}; {cost - none:+.3f} to none",
        ),
    ]


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
