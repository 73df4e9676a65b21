"""What a start, an idle call, an idle shard and a plan cost: the small costs, in one short run.

The start and the idle shards are those of the cases ``backlog`` and ``steady``. Memory by fan-out:
all competitors and rounds run at the same time, each with 32 shards on a stream of its own; once
all shards are read they are idle, and then each in turn gets a backlog. The plan is that of the
Spark source over 1,000 idle shards, without Spark; the peers have none.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.peers import backlog
from benchmarks.peers.competitors import OURS, Competitor
from benchmarks.peers.environments import ROOT, checked_out
from benchmarks.peers.figures import Sample
from benchmarks.peers.plan_side import STREAM
from benchmarks.peers.processes import MIB, environment
from benchmarks.peers.records import Backlog
from benchmarks.peers.server import counting_server
from benchmarks.peers.steady import Running, measure_idle, ready, started

SHARDS = 32
FAN_OUT = f"fan-out, {SHARDS} shards"
WORK = Backlog(SHARDS, 64_000, 1000)
PATIENCE = 120.0
PLANNED_SHARDS = 1000
PLAN = f"plan of {PLANNED_SHARDS:,} idle shards"
PLANS = 5
"""Of each round, after the first one."""


def measure(
    pythons: Mapping[Competitor, Path], rounds: int, scale: float, say: Callable[[str], None]
) -> Iterator[Sample]:
    """All of them; ``scale`` shortens the idle time and the backlog."""
    yield from backlog.measure(pythons, rounds, scale, say, backlog.STOCKS[:1])
    yield from measure_idle(pythons, rounds, scale, say, SHARDS)
    yield from _fan_out(pythons, rounds, scale, say)
    yield from _plans(pythons, rounds, say)


def _fan_out(
    pythons: Mapping[Competitor, Path], rounds: int, scale: float, say: Callable[[str], None]
) -> Iterator[Sample]:
    able = {each: python for each, python in pythons.items() if each.has_fan_out}
    with counting_server(limits=False) as (server, _), contextlib.ExitStack() as stack:
        by_round = [
            started(able, server, f"shards-{number}", stack, shards=SHARDS, fan_out=True)
            for number in range(rounds)
        ]
        everyone = [each for its in by_round for each in its]
        ready(everyone, server.client("kinesis"), lambda text: say(f"{FAN_OUT}: {text}"))
        for each in everyone:
            its, name = each.workers[0], each.competitor.name
            yield Sample(FAN_OUT, "CPU until all are read", "s", name, its.cpu())
            yield Sample(FAN_OUT, "memory, idle", "MiB", name, its.memory_now() / MIB)
        for number, group in enumerate(by_round):
            for each in group if number % 2 == 0 else group[::-1]:
                if each in everyone:
                    say(f"{FAN_OUT}, at work: round {number + 1}, {each.competitor.name}")
                    yield _at_work(each, server.endpoint_url, WORK.scaled(scale))


def _at_work(each: Running, endpoint: str, work: Backlog) -> Sample:
    """Put a backlog, and take note of the most memory until all of it is received."""
    its = each.workers[0]
    expected = its.records + work.records
    work.put(endpoint, each.stream)
    memory = 0
    until = time.monotonic() + PATIENCE
    while its.records < expected and time.monotonic() < until:
        while its.read():
            pass
        memory = max(memory, its.memory_now())
        time.sleep(0.02)
    lost = expected - its.records
    name = each.competitor.name
    return Sample(FAN_OUT, "memory, at work", "MiB", name, memory / MIB, max(0, lost))


def _plans(
    pythons: Mapping[Competitor, Path], rounds: int, say: Callable[[str], None]
) -> Iterator[Sample]:
    """Ours and older revisions, with the libraries of this Python: the Spark source needs more."""
    ours = [each for each in pythons if each.name.startswith(OURS)]
    with counting_server(limits=False) as (server, _):
        server.kinesis.call("CreateStream", StreamName=STREAM, ShardCount=PLANNED_SHARDS)
        for number in range(rounds):
            for each in ours if number % 2 == 0 else ours[::-1]:
                say(f"{PLAN}: round {number + 1} of {rounds}, {each.name}")
                told = _planned(checked_out(each), server.endpoint_url)
                for measure, value in told.items():
                    yield Sample(PLAN, measure, "s", each.name, value)


def _planned(source: Path, endpoint: str) -> dict[str, float]:
    paths = os.pathsep.join([str(source / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers.plan_side", endpoint, str(PLANS)],
        env={**environment(endpoint), "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    told: dict[str, float] = json.loads(done.stdout)
    return told
