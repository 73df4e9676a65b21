"""What the ways to write an application cost: those that wait, and those that do nothing.

The ways that wait spend 10 ms on each record of one shard; what counts is records a second, beside
async-kinesis, which is installed from PyPI. The ways that do nothing read 16 shards, 100 records a
batch; what counts is the CPU time of the process. Each way is a process of its own on one core, in
an order that alternates; the local Kinesis has the other core. All checkpoint once a second.

python -m benchmarks ways
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet import fill, pinned, server
from benchmarks.peers.competitors import named
from benchmarks.peers.environments import ROOT, LeftOutError, installed
from benchmarks.peers.processes import environment
from benchmarks.report import Result, print_table

PEER = "async-kinesis"
WAITING = {
    "in turn": "def handle(batch), one record after the other",
    "threads": "def handle(record), concurrency=32",
    "tasks": "async def handle(record), concurrency=32",
    "gathered": "async def handle(batch), gathers 32 records at a time",
}
PEERS = {
    "in turn": f"{PEER}, async for data in consumer",
    "gathered": f"{PEER}, gathers 32 records at a time",
}
WAITS = {"same": "10 ms each", "differs": "10 ms on average"}
BATCHES = {
    "class": "class, def process_records",
    "async class": "class, async def process_records",
    "function": "def handle(batch)",
    "coroutine": "async def handle(batch)",
    "batches": "for batch in application.batches()",
}
RECORDS = {
    "each record": "def handle(batch), for record in batch",
    "records": "for record in application.records()",
    "no-op threads": "def handle(record), concurrency=32",
    "no-op tasks": "async def handle(record), concurrency=32",
}
SHARDS = {"waiting": 1, "idle": 16}
"""The streams, and their shards."""
FILLED = 100_000
"""The number of records in each shard."""
ROUNDS = 5
SECONDS = 2.0
LONGEST = 120.0
"""Seconds that one side may take on a busy machine."""


@dataclass(frozen=True)
class Side:
    """A process that reads a stream in one way."""

    module: str
    stream: str
    way: str
    wait: str
    name: str
    python: Path = Path(sys.executable)

    def measure(self, endpoint: str, seconds: float = SECONDS) -> dict[str, float]:
        command = [str(self.python), "-m", f"benchmarks.{self.module}", endpoint, self.stream]
        application = f"ways-{time.monotonic_ns()}"
        with pinned(1):
            done = subprocess.run(
                [*command, application, self.way, self.wait, str(seconds)],
                cwd=ROOT,
                env=environment(endpoint),
                capture_output=True,
                text=True,
                timeout=LONGEST,
                check=False,
            )
        if done.returncode or not done.stdout:
            raise RuntimeError(f"{self.name} has failed:\n{done.stderr[-3000:]}")
        told: dict[str, float] = json.loads(done.stdout)
        return told


def sides(peer: Path | None) -> list[Side]:
    """All of them; ``peer``: the Python that has the peer."""
    found = []
    for wait, text in WAITS.items():
        for way, name in WAITING.items():
            found.append(Side("ways_side", "waiting", way, wait, f"{text}: {name}"))
        if peer is not None:
            for way, name in PEERS.items():
                found.append(Side("ways_peer_side", "waiting", way, wait, f"{text}: {name}", peer))
    for way, name in {**BATCHES, **RECORDS}.items():
        found.append(Side("ways_side", "idle", way, "", f"nothing: {name}"))
    return found


def run() -> list[Result]:
    peer, left_out = None, ""
    try:
        peer = installed(named([PEER])[0])
    except LeftOutError as error:
        left_out = str(error)
    all_of_them = sides(peer)
    told: dict[Side, list[dict[str, float]]] = {side: [] for side in all_of_them}
    with server("--no-limits") as client:
        for stream, shards in SHARDS.items():
            fill(client, stream, shards, FILLED)
        for number in range(ROUNDS):
            for side in all_of_them if number % 2 == 0 else all_of_them[::-1]:
                told[side].append(side.measure(f"http://127.0.0.1:{client.port}"))
    return results(told, left_out)


def results(told: Mapping[Side, list[dict[str, float]]], left_out: str = "") -> list[Result]:
    """The median of each side; ratios are to the first side that does the same."""
    found = []
    first: dict[tuple[str, str], float] = {}
    for side, rounds in told.items():
        if side.wait:
            unit, values = "records/s", [each["records"] / each["seconds"] for each in rounds]
        else:
            what = "batch" if side.way in BATCHES else "record"
            unit = f"µs of CPU a {what}"
            kind = "batches" if what == "batch" else "records"
            values = [each["cpu"] / each[kind] * 1e6 for each in rounds]
        median = statistics.median(values)
        baseline = first.setdefault((side.wait, unit), median)
        ratio = median / baseline if side.wait else baseline / median
        note = f"{min(values):,.4g} to {max(values):,.4g}"
        found.append(Result(side.name, median, unit, ratio, note=note))
    if left_out:
        print(left_out)
    return found


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
