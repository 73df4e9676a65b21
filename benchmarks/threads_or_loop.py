"""A sketch of two ways to read 1,000 idle shards: a pool of blocking threads, or one event loop.

python -m benchmarks.threads_or_loop --shards 1000 --rounds 5 --seconds 4 --delays 0,30

Each side is a process of its own, which makes an empty GetRecords call a second a shard, evenly
spread. The sides run alternately against one local server in another process, which delays its
answers by so many milliseconds. CPU is that of the side, user and system, by getrusage. The sketch
is kept to be run again on another machine or another Python; no other code uses it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from rich.console import Console
from rich.table import Table

from benchmarks.threads_or_loop_side import STREAM
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Call, Fault

SHARDS = 1000
ROUNDS = 5
SECONDS = 4.0
DELAYS = (0, 30)
"""Milliseconds; 30 are about what an empty GetRecords call takes on AWS."""
KINDS = {"threads": "a pool of threads", "loop": "an event loop"}
MEASURES = {
    "cpu_ms_per_call": "CPU a call, ms",
    "calls_per_second": "calls a second",
    "switches_per_call": "context switches a call",
    "threads": "threads",
    "rss_mb": "RSS, MiB",
    "connections": "connections made",
    "late_ms_99": "late, 99 %, ms",
}


@contextmanager
def serving(shards: int, delay_ms: int) -> Iterator[int]:
    """Run the local server in another process; yield its port."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    server = spawning.Process(target=_serve, args=(theirs, shards, delay_ms), daemon=True)
    server.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        server.join()


def _serve(pipe: Connection, shards: int, delay_ms: int) -> None:
    def delayed(call: Call) -> Fault | None:
        return Fault.delay(delay_ms) if delay_ms and call.operation == "GetRecords" else None

    with LocalServer(limits=False, faults=delayed) as server:
        server.kinesis.call("CreateStream", StreamName=STREAM, ShardCount=shards)
        pipe.send(int(server.endpoint_url.rpartition(":")[2]))
        pipe.recv()


def side(kind: str, port: int, shards: int, seconds: float) -> dict[str, float]:
    """Run one side, and return what it tells."""
    module = [sys.executable, "-m", "benchmarks.threads_or_loop_side"]
    done = subprocess.run(
        [*module, kind, str(port), str(shards), str(seconds)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run(
    shards: int, rounds: int, seconds: float, delay_ms: int
) -> dict[str, list[dict[str, float]]]:
    """Let the sides read in turn; return what each of them has told in each round."""
    told: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    with serving(shards, delay_ms) as port:
        for number in range(rounds):
            for kind in list(KINDS)[:: 1 if number % 2 == 0 else -1]:
                told[kind].append(side(kind, port, shards, seconds))
    return told


def table(title: str, told: dict[str, list[dict[str, float]]]) -> Table:
    """The median of each measure, and its least and most."""
    shown = Table("", *KINDS.values(), title=title, title_justify="left")
    for measure, name in MEASURES.items():
        groups = [[each[measure] for each in rounds] for rounds in told.values()]
        shown.add_row(
            name,
            *(
                f"{statistics.median(group):.3g} ({min(group):.3g} - {max(group):.3g})"
                for group in groups
            ),
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threads_or_loop")
    parser.add_argument("--shards", type=int, default=SHARDS, help=f"default: {SHARDS}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"default: {SECONDS:g}")
    parser.add_argument("--delays", default=",".join(map(str, DELAYS)), help="ms, as in 0,30")
    given = parser.parse_args()
    for delay in map(int, given.delays.split(",")):
        told = run(given.shards, given.rounds, given.seconds, delay)
        title = f"{given.shards:,} shards, answers after {delay} ms, {given.rounds} rounds"
        Console().print(table(title, told))


if __name__ == "__main__":
    main()
