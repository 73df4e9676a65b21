"""How much CPU and time a consumer takes for a backlog, with a lease table that exists."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.local_server import local_kinesis
from benchmarks.peers.competitors import Competitor
from benchmarks.peers.figures import Sample
from benchmarks.peers.lease_tables import LeaseTables, dynamodb, taken, wait_for_leases
from benchmarks.peers.processes import MIB, Consumer, consumer
from benchmarks.peers.records import Backlog

SHARDS = 4
QUIET = 15.0
"""Seconds without a record, after which no more are expected."""
PATIENCE = 180.0
ENDING = 30.0
"""Seconds in which a consumer may end by itself, and release its leases."""
SHORTEST_PAUSE = 0.2
"""Seconds between two reads of a shard: the pause of the peers that also pause in a backlog."""


START = "start, table exists, polling"
FAN_OUT_START = "start, table exists, fan-out"


@dataclass(frozen=True)
class Reading:
    """One way to read a backlog."""

    case: str
    start: str = START
    """The case of nearly no records, whose CPU and time are those of the start."""
    fan_out: bool = False
    arrow: bool = False


@dataclass(frozen=True)
class Stock:
    """A backlog, and the ways to read it."""

    stream: str
    backlog: Backlog
    readings: tuple[Reading, ...]

    def read_by(self, retrieval: str | None) -> Stock:
        """The backlog with the ways that are this retrieval's; None: with all."""
        wanted = {True: "fan-out", False: "polling"}
        kept = [each for each in self.readings if retrieval in {None, wanted[each.fan_out]}]
        return replace(self, readings=tuple(kept))


@dataclass(frozen=True)
class Run:
    """One competitor reads one backlog in one way."""

    competitor: Competitor
    stock: Stock
    reading: Reading

    @property
    def application(self) -> str:
        how = ("fan-out" if self.reading.fan_out else "polling", "-arrow" * self.reading.arrow)
        return f"{self.competitor.name.replace(' ', '-')}-{self.stock.stream}-{''.join(how)}"

    def task(self, endpoint: str) -> dict[str, Any]:
        return {
            "endpoint": endpoint,
            "stream": self.stock.stream,
            "application": self.application,
            "worker": "worker",
            "fan_out": self.reading.fan_out,
            "arrow": self.reading.arrow,
            "is_backlog": True,
            "aggregated": self.stock.backlog.in_aggregate > 1,
            "idle_seconds": SHORTEST_PAUSE if self.competitor.waits_between_pages else None,
        }


def _read(what: str) -> tuple[Reading, ...]:
    """The ways in which each backlog is read."""
    return (
        Reading(f"{what}, fan-out", FAN_OUT_START, fan_out=True),
        Reading(f"{what}, polling"),
        Reading(f"{what}, fan-out{_AS_ARROW}", FAN_OUT_START, fan_out=True, arrow=True),
    )


_AS_ARROW = ", as Arrow columns"
KPL = Backlog(SHARDS, 1_000_000, 200, in_aggregate=50)
STOCKS = (
    Stock(
        "start",
        Backlog(SHARDS, SHARDS, 200),
        (Reading(START), Reading(FAN_OUT_START, FAN_OUT_START, fan_out=True)),
    ),
    Stock("plain-200", Backlog(SHARDS, 400_000, 200), _read("400,000 x 200 B")),
    Stock("plain-1k", Backlog(SHARDS, 100_000, 1000), _read("100,000 x 1 KB")),
    Stock("kpl", KPL, _read("1 million KPL user records")),
    Stock(
        "kpl-hash-keys",
        replace(KPL, has_hash_keys=True),
        _read("1 million KPL user records with explicit hash keys"),
    ),
)
AGAINST: Mapping[str, str] = {
    reading.case: reading.case.removesuffix(_AS_ARROW)
    for stock in STOCKS
    for reading in stock.readings
    if reading.arrow
}
"""Nobody else has Arrow columns: they are compared with the others' objects."""


def can_read(competitor: Competitor, stock: Stock, reading: Reading) -> bool:
    return (
        (competitor.has_fan_out or not reading.fan_out)
        and (competitor.unpacks or stock.backlog.in_aggregate == 1)
        and (competitor.has_arrow or not reading.arrow)
    )


def measure(
    pythons: Mapping[Competitor, Path],
    rounds: int,
    scale: float,
    say: Callable[[str], None],
    stocks: Sequence[Stock] = STOCKS,
) -> Iterator[Sample]:
    """Let each competitor read each backlog in turn; a round after the other.

    ``stocks`` begins with the nearly empty one.
    """
    runs = [
        Run(each, stock, reading)
        for stock in stocks
        for reading in stock.readings
        for each in pythons
        if can_read(each, stock, reading)
    ]
    with local_kinesis("--no-limits", "--dynamodb", has_own_core=True) as client:
        endpoint = client.endpoint
        for stock in stocks:
            client.call("CreateStream", StreamName=stock.stream, ShardCount=SHARDS)
        say("backlog: each application makes its lease table")
        tables = _prepared(endpoint, runs, pythons)
        for stock in stocks:
            say(f"backlog: {stock.backlog.scaled(scale).records:,} records for {stock.stream}")
            stock.backlog.scaled(scale).put(endpoint, stock.stream)
        for number in range(rounds):
            costs: dict[tuple[str, str], Cost] = {}
            for run in in_turn(runs, number):
                say(f"{run.reading.case}: round {number + 1} of {rounds}, {run.competitor.name}")
                if run in tables:
                    tables[run].restore()
                python = pythons[run.competitor]
                expected = run.stock.backlog.scaled(scale).records
                with consumer(python, run.competitor.consumer, **run.task(endpoint)) as running:
                    running.wait_for(expected, PATIENCE, QUIET)
                    costs[run.reading.case, run.competitor.name] = cost(running, expected)
            yield from samples(costs)


def in_turn(runs: Sequence[Run], number: int) -> list[Run]:
    """The runs of a round: reading after reading, its competitors in turn from either end."""
    cases = dict.fromkeys(run.reading.case for run in runs)
    turn = 1 if number % 2 == 0 else -1
    return [
        run
        for case in cases
        for run in runs[::turn]
        if run.reading.case == case and number < run.competitor.backlog_rounds
    ]


@dataclass(frozen=True)
class Cost:
    """What a consumer has cost until its last batch."""

    cpu: float
    seconds: float
    memory: float
    lost: int
    repeated: int


def cost(running: Consumer, expected: int) -> Cost:
    numbers = running.numbers()
    distinct = len(set(numbers))
    return Cost(
        running.cpu(),
        running.batches[-1].told_at - running.started if running.batches else 0.0,
        running.memory_peak() / MIB,
        expected - distinct,
        len(numbers) - distinct,
    )


def samples(costs: Mapping[tuple[str, str], Cost]) -> Iterator[Sample]:
    """The samples of a round: its costs by case and competitor, with and without the start's."""
    starts = {reading.case: reading.start for stock in STOCKS for reading in stock.readings}
    for (case, competitor), its in costs.items():
        start = costs[starts[case], competitor]
        found = {("CPU", "s"): its.cpu, ("time", "s"): its.seconds}
        if start is not its:
            found["CPU less the start's", "s"] = its.cpu - start.cpu
            found["time less the start's", "s"] = its.seconds - start.seconds
        found["peak memory", "MiB"] = its.memory
        for (measure, unit), value in found.items():
            yield Sample(case, measure, unit, competitor, value, its.lost, its.repeated)


def _prepared(
    endpoint: str, runs: Sequence[Run], pythons: Mapping[Competitor, Path]
) -> dict[Run, LeaseTables]:
    """Let each application make its lease table while its stream is empty; all at a time."""
    client = dynamodb(endpoint)
    with contextlib.ExitStack() as stack:
        started = {
            run: stack.enter_context(
                consumer(pythons[run.competitor], run.competitor.consumer, **run.task(endpoint))
            )
            for run in runs
            if run.competitor.has_leases
        }
        for run, running in started.items():
            if not wait_for_leases(client, run.application, SHARDS, PATIENCE):
                raise RuntimeError(
                    f"{run.competitor.name} has made no leases within {PATIENCE:g} s:\n"
                    f"{running.log()}"
                )
        for running in started.values():
            running.process.terminate()
        for running in started.values():
            running.end(ENDING)
        return {run: taken(client, run.application) for run in started}
