"""A running application: what it costs without records, its latency, and a killed worker.

All competitors run at the same time, each on a stream of its own, with the service's limits and
with their default options: what they do then takes little of the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.competitors import Competitor
from benchmarks.peers.consumers.task import ID_BYTES
from benchmarks.peers.figures import Sample
from benchmarks.peers.processes import MIB, Consumer, consumer
from benchmarks.peers.server import Calls, counting_server, put

SHARDS = 8
POLLING = "latency, polling, defaults"
COMPARABLE = "latency, polling, a read each 0.2 s"
FAN_OUT = "latency, fan-out"
FAILOVER = "kill -9 of one of two workers"
COMPARABLE_SECONDS = 0.2
"""The shortest pause that Kinesis' quota of five reads a second allows."""
IDLE_SECONDS = 20.0
"""Of each round."""
LATENCY_SECONDS = 10.0
"""Of each round."""
PUTS_PER_SECOND = 50.0
READY = 240.0
"""Seconds in which each competitor has read a record of each shard; kcl-rs takes 90."""
SHARED = 90.0
"""Seconds in which two workers may divide the shards; then the first one is killed anyway."""
TAKEN_OVER = 180.0
"""Seconds in which the other worker must have the shards of a killed one."""
ARRIVAL = 60.0
"""Seconds after the last put in which records may arrive: some peers take a quarter of a minute."""
SETTLE = 5.0
SHARING_SECONDS = 6.0
"""Both workers have read in the last so many seconds when one is killed."""
SEED = 17


@dataclass
class Running:
    """A competitor's workers on a stream of its own; the first one is that which is measured."""

    competitor: Competitor
    stream: str
    workers: list[Consumer]
    shards: int = SHARDS
    put_at: list[tuple[int, float]] = field(default_factory=list)
    """The shard and the instant of each record; a record's number is its place here."""

    def put(self, kinesis: Any, shard: int) -> None:
        number = len(self.put_at)
        self.put_at.append((shard, time.monotonic()))
        put(kinesis, self.stream, shard, self.shards, number.to_bytes(ID_BYTES, sys.byteorder))

    def received(self, worker: int = 0) -> list[tuple[int, float]]:
        """The number and the instant of each record that a worker has received, in order."""
        its = self.workers[worker]
        while its.read():
            pass
        found: list[tuple[int, float]] = []
        for process in {batch.process: None for batch in its.batches}:
            numbers = iter(its.numbers_of(process))
            for batch in its.batches:
                if batch.process == process:
                    found += [(each, batch.at) for each in itertools.islice(numbers, batch.records)]
        return sorted(found, key=lambda each: each[1])

    def shards_of(self, worker: int, since: float) -> set[int]:
        """The shards whose records a worker has received since an instant."""
        return {self.put_at[number][0] for number, at in self.received(worker) if at >= since}


def measure(
    pythons: Mapping[Competitor, Path], rounds: int, scale: float, say: Callable[[str], None]
) -> Iterator[Sample]:
    """Idle, latency and failover; ``scale`` shortens the rounds."""
    with counting_server() as (server, calls), contextlib.ExitStack() as stack:
        polling = started(pythons, server, "polling", stack)
        kinesis = server.client("kinesis")
        ready(polling, kinesis, lambda text: say(f"steady: {text}"))
        for number in range(rounds):
            say(f"idle: round {number + 1} of {rounds}")
            yield from idle(polling, calls, IDLE_SECONDS * scale)
        for number in range(rounds):
            say(f"{POLLING}: round {number + 1} of {rounds}")
            yield from latency(POLLING, polling, kinesis, LATENCY_SECONDS * scale, number)
        yield from failover(polling, pythons, server, stack, say)
    for case, options in (
        (COMPARABLE, {"idle_seconds": COMPARABLE_SECONDS}),
        (FAN_OUT, {"fan_out": True}),
    ):
        able = {
            each: python
            for each, python in pythons.items()
            if each.has_fan_out or case == COMPARABLE
        }
        with counting_server() as (server, _), contextlib.ExitStack() as stack:
            running = started(able, server, "again", stack, **options)
            kinesis = server.client("kinesis")
            ready(running, kinesis, lambda text, case=case: say(f"{case}: {text}"))  # type: ignore[misc]
            for number in range(rounds):
                say(f"{case}: round {number + 1} of {rounds}")
                yield from latency(case, running, kinesis, LATENCY_SECONDS * scale, number)


def measure_idle(
    pythons: Mapping[Competitor, Path],
    rounds: int,
    scale: float,
    say: Callable[[str], None],
    shards: int,
) -> Iterator[Sample]:
    """What so many idle shards cost by polling, and nothing else."""
    with counting_server() as (server, calls), contextlib.ExitStack() as stack:
        running = started(pythons, server, "idle", stack, shards=shards)
        ready(running, server.client("kinesis"), lambda text: say(f"idle: {text}"))
        for number in range(rounds):
            say(f"idle, {shards} shards: round {number + 1} of {rounds}")
            yield from idle(running, calls, IDLE_SECONDS * scale)


def started(
    pythons: Mapping[Competitor, Path],
    server: Any,
    name: str,
    stack: contextlib.ExitStack,
    *,
    shards: int = SHARDS,
    **options: Any,
) -> list[Running]:
    """Start a worker of each competitor. Its application has the name of its stream."""
    found = []
    for each, python in pythons.items():
        stream = f"{each.name.replace(' ', '-').replace('.', '-')}-{name}"
        server.kinesis.call("CreateStream", StreamName=stream, ShardCount=shards)
        time.sleep(0.3)  # five calls a second are the quota
        first = _worker(each, python, server, stream, worker="first", **options)
        found.append(Running(each, stream, [stack.enter_context(first)], shards))
    return found


def _worker(
    competitor: Competitor, python: Path, server: Any, stream: str, **options: Any
) -> AbstractContextManager[Consumer]:
    task = {"endpoint": server.endpoint_url, "stream": stream, "application": stream, **options}
    return consumer(python, competitor.consumer, **task)


def ready(running: list[Running], kinesis: Any, say: Callable[[str], None]) -> None:
    """Wait until each competitor has received a record of each shard; drop those that do not."""
    for each in running:
        for shard in range(each.shards):
            each.put(kinesis, shard)
    until = time.monotonic() + READY
    missing = list(running)
    while missing:
        say(f"waiting for {', '.join(each.competitor.name for each in missing)}")
        time.sleep(1)
        missing = [each for each in missing if len(each.shards_of(0, 0.0)) < each.shards]
        for each in list(missing):
            if each.workers[0].process.poll() is not None or time.monotonic() > until:
                name, log = each.competitor.name, each.workers[0].log()
                say(f"{name} is left out, as it does not read all shards in {READY:g} s:\n{log}")
                each.workers[0].kill()
                missing.remove(each)
                running.remove(each)
    time.sleep(SETTLE)


def idle(running: Sequence[Running], calls: Calls, seconds: float) -> Iterator[Sample]:
    before = [(each.workers[0].cpu_now(), calls.of(each.stream)) for each in running]
    start = time.monotonic()
    time.sleep(seconds)
    minutes = (time.monotonic() - start) / 60
    for each, (cpu, count) in zip(running, before, strict=True):
        name = each.competitor.name
        case = f"idle, {each.shards} shards"
        used = each.workers[0].cpu_now() - cpu
        made = calls.of(each.stream) - count
        memory = each.workers[0].memory_now() / MIB
        yield Sample(case, "CPU a minute", "s", name, used / minutes)
        yield Sample(case, "calls a shard and minute", "", name, made / minutes / each.shards)
        if made:
            yield Sample(case, "CPU of a call", "ms", name, 1000 * used / made)
        yield Sample(case, "memory", "MiB", name, memory)


def latency(
    case: str, running: Sequence[Running], kinesis: Any, seconds: float, seed: int
) -> Iterator[Sample]:
    """Put records at random instants into random shards; each competitor gets its own."""
    rng = random.Random(SEED + seed)
    begins = [len(each.put_at) for each in running]
    due = time.monotonic()
    until = due + seconds
    while due < until:
        due += rng.expovariate(PUTS_PER_SECOND)
        time.sleep(max(0.0, due - time.monotonic()))
        shard = rng.randrange(SHARDS)
        for each in rng.sample(list(running), len(running)):
            each.put(kinesis, shard)
    _wait(lambda: all(_has_all(each) for each in running), ARRIVAL)
    for each, begin in zip(running, begins, strict=True):
        arrived = dict(reversed(each.received()))
        wanted = range(begin, len(each.put_at))
        found = [
            (arrived[number] - each.put_at[number][1]) * 1000
            for number in wanted
            if number in arrived
        ]
        lost = len(wanted) - len(found)
        if len(found) < 2:
            continue
        cuts = statistics.quantiles(found, n=100, method="inclusive")
        for measure, cut in (("median", cuts[49]), ("99 %", cuts[98])):
            yield Sample(case, measure, "ms", each.competitor.name, cut, lost)


def _has_all(running: Running) -> bool:
    return len({number for number, _ in running.received()}) == len(running.put_at)


@dataclass
class Takeover:
    """One competitor's second worker, and what it has taken over from the first."""

    running: Running
    killed_at: float | None = None
    shards: frozenset[int] = frozenset()
    """The killed worker's."""

    @property
    def name(self) -> str:
        return self.running.competitor.name

    def is_shared(self, now: float) -> bool:
        """Whether each worker has read shards of its own lately, and both together all."""
        first, second = (self.running.shards_of(each, now - SHARING_SECONDS) for each in (0, 1))
        is_apart = bool(first and second) and not first & second
        return is_apart and len(first | second) == SHARDS

    def kill(self) -> None:
        now = time.monotonic()
        self.shards = frozenset(self.running.shards_of(0, now - SHARING_SECONDS))
        self.running.workers[0].kill()
        self.killed_at = time.monotonic()

    def seconds(self) -> float | None:
        """From the kill until the other worker has had a record of each of the shards."""
        assert self.killed_at is not None
        first: dict[int, float] = {}
        for number, at in self.running.received(1):
            if at > self.killed_at:
                first.setdefault(self.running.put_at[number][0], at)
        if not self.shards <= set(first):
            return None
        return max(first[shard] for shard in self.shards) - self.killed_at

    def is_too_late(self, now: float) -> bool:
        return self.killed_at is not None and now > self.killed_at + TAKEN_OVER


def failover(
    running: Sequence[Running],
    pythons: Mapping[Competitor, Path],
    server: Any,
    stack: contextlib.ExitStack,
    say: Callable[[str], None],
) -> Iterator[Sample]:
    """Add a worker to each, kill the first one, and wait for records of its shards."""
    kinesis = server.client("kinesis")
    going = [Takeover(each) for each in running if each.competitor.has_leases]
    for each in going:
        its = each.running
        second = _worker(
            its.competitor, pythons[its.competitor], server, its.stream, worker="second"
        )
        its.workers.append(stack.enter_context(second))
    began = time.monotonic()
    while going:
        say(f"{FAILOVER}: {', '.join(each.name for each in going)}")
        for each in going:
            for shard in range(SHARDS):
                each.running.put(kinesis, shard)
        time.sleep(0.5)
        now = time.monotonic()
        for each in list(going):
            if each.killed_at is None and (now > began + SHARED or each.is_shared(now)):
                each.kill()
            taken = None if each.killed_at is None else each.seconds()
            if taken is not None:
                yield Sample(FAILOVER, "until records are processed", "s", each.name, taken)
            if taken is not None or each.is_too_late(now):
                going.remove(each)
                if taken is None:
                    say(f"{FAILOVER}: {each.name} takes over after {TAKEN_OVER:g} s or later")


def _wait(is_enough: Callable[[], bool], patience: float) -> None:
    until = time.monotonic() + patience
    while not is_enough() and time.monotonic() < until:
        time.sleep(0.1)
