"""Simulates how evenly the leader of a fleet spreads a skewed load that moves: an hour, by rule.

200 workers read 5,000 shards in virtual time. A few shards have their full 1 MB a second, most have
little; the load of each rises and falls, and every minute 25 pairs of shards change places. A move
takes 2 to 30 seconds. At first all workers have as many leases. In the middle of the hour ten
workers die, and ten new ones come.

Half of the rows are of a fleet whose workers measure nothing (throughput), half of one that
measures CPU, on hosts of which 3 in 10 are slower by a third. All rules see the same hour: what
workers have reported every 30 seconds, and leases have shown at their last renewal. "By count" is
also what workers do that take and steal leases for themselves; the KCL's rule is written anew in
benchmarks/kcl_decider.py.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from benchmarks import kcl_decider
from benchmarks.report import Result, print_table
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.leading import by_count, by_load
from sparkinesis.lease.leading.members import Member, member, silent_workers
from sparkinesis.lease.leading.moves import REST, AssignSettings, Move, Run, lately, resting
from sparkinesis.lease.lease import Lease

WORKERS, SHARDS = 200, 5000
MINUTES = 60
TICK = 10
"""Seconds; a run of the leader is every second tick, and each third of them balances."""
SETTLED_MINUTES = 5
"""Minutes at the start that the evenness leaves out."""
DEATHS, DEATHS_AT = 10, 1800
FAILOVER, REPORT, REPORT_COUNTS = 10, 30, 60
MOST_KBPS = 1000.0
CPU_BASE, CPU_OF_MEAN, CPU_NOISE = 5.0, 40.0, 1.0
"""Percent: of an idle worker, of one with the mean load on a usual host, and the deviation."""
SETTINGS = AssignSettings()

Rule = Callable[[Run], tuple[Move, ...]]
RULES: dict[str, Rule] = {
    "by count": by_count.plan,
    "as the KCL does": kcl_decider.plan,
    "by load": by_load.plan,
}


class Loads:
    """The KB/s of each shard, as they change; the same for every rule."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._base = [min(MOST_KBPS, 10 * MOST_KBPS / rank**0.8) for rank in range(1, SHARDS + 1)]
        self._rng.shuffle(self._base)
        self.most = self.total = 0.0
        self._waves = [
            (self._rng.uniform(1200, 5400), self._rng.uniform(0, 2 * math.pi))
            for _ in range(SHARDS)
        ]

    def at(self, now: int) -> list[float]:
        if now % 60 == 0:
            for _ in range(25):
                one, other = self._rng.randrange(SHARDS), self._rng.randrange(SHARDS)
                self._base[one], self._base[other] = self._base[other], self._base[one]
        found = [
            base * (0.75 + 0.25 * math.sin(phase + 2 * math.pi * now / period))
            for base, (period, phase) in zip(self._base, self._waves, strict=True)
        ]
        self.most, self.total = max(found), sum(found)
        return found


@dataclass(eq=False)
class Worker:
    who: str
    speed: float
    reports_at: int
    """The second of each `REPORT` at which the worker reports."""
    kbps: float = 0.0
    cpu: float = 0.0
    measured: list[float] = field(default_factory=list)
    samples: deque[float] = field(default_factory=lambda: deque(maxlen=10))
    reported: int = -REPORT_COUNTS - 1
    died: int | None = None


@dataclass
class Hour:
    """What a rule made of the hour."""

    most: list[float] = field(default_factory=list)
    deviations: list[float] = field(default_factory=list)
    moves: int = 0
    twice: int = 0
    plans: list[float] = field(default_factory=list)
    """The CPU seconds of each plan."""
    heaviest: list[float] = field(default_factory=list)
    """The heaviest shard alone, in mean loads of a worker: no rule makes it less."""


class Fleet:
    def __init__(self, rule: Rule, *, measures_cpu: bool, seed: int) -> None:
        self._rule = rule
        self._measures_cpu = measures_cpu
        self._rng = random.Random(seed)
        self._loads = Loads(seed)
        self._cpu_of_kbps = CPU_OF_MEAN * WORKERS / sum(self._loads.at(1))
        self._workers = {f"w{n:03d}": self._new_worker(n) for n in range(WORKERS)}
        at, owners = ExtendedSequenceNumber("1"), list(self._workers)
        self._leases = [
            Lease(f"s{n:04d}", f"s{n:04d}", at, owner=owners[n % WORKERS]) for n in range(SHARDS)
        ]
        self._handoffs: dict[str, int] = {}
        self._moved_at = {row.key: -REST for row in self._leases}
        self._silent: dict[str, float] = {}
        self.hour = Hour()

    def _new_worker(self, number: int) -> Worker:
        speed = 2 / 3 if number % 10 < 3 else 1.0
        return Worker(f"w{number:03d}", speed, number % 3 * TICK)

    def run(self) -> Hour:
        for now in range(0, MINUTES * 60, TICK):
            if now == DEATHS_AT:
                self._replace_workers(now)
            self._read(now)
            if now % (2 * TICK) == 0:
                self._lead(now)
            if now >= SETTLED_MINUTES * 60:
                self._measure()
                self.hour.heaviest.append(self._loads.most * WORKERS / self._loads.total)
        return self.hour

    def _replace_workers(self, now: int) -> None:
        for who in list(self._workers)[:DEATHS]:
            self._workers[who].died = now
        for number in range(WORKERS, WORKERS + DEATHS):
            self._workers[f"w{number:03d}"] = self._new_worker(number)

    def _read(self, now: int) -> None:
        """Let workers read for a tick, and show in leases and reports what they did."""
        kbps: defaultdict[str | None, float] = defaultdict(float)
        loads = self._loads.at(now)
        for n, row in enumerate(self._leases):
            reader = row.actual_owner
            if self._workers[reader or ""].died is not None:
                continue
            seen = loads[n]
            if row.throughput_kbps is not None:
                seen = row.throughput_kbps + 0.875 * (seen - row.throughput_kbps)
            kbps[reader] += loads[n]
            is_over = row.checkpoint_owner is not None and now >= self._handoffs[row.key]
            checkpoint_owner = None if is_over else row.checkpoint_owner
            self._leases[n] = replace(row, throughput_kbps=seen, checkpoint_owner=checkpoint_owner)
        for one in self._workers.values():
            if one.died is not None:
                continue
            one.kbps = kbps[one.who]
            one.cpu = min(100.0, CPU_BASE + one.kbps * self._cpu_of_kbps / one.speed)
            one.measured.append(max(0.1, self._rng.gauss(one.cpu, CPU_NOISE)))
            if now % REPORT == one.reports_at:
                one.samples.append(statistics.fmean(one.measured))
                one.reported = now
                one.measured.clear()

    def _members(self, now: int) -> list[Member]:
        return [
            member(one.who, {"C": one.samples}, {"C": 100.0})
            if self._measures_cpu
            else Member(one.who)
            for one in self._workers.values()
            if now - one.reported <= REPORT_COUNTS and one.who not in self._silent
        ]

    @staticmethod
    def _renews(died: int | None, now: int) -> bool:
        """Return True if two renewals of a worker cannot be missing yet."""
        return died is None or now - died <= 2 / 3 * FAILOVER

    def _lead(self, now: int) -> None:
        """Let the leader plan once, and write its moves."""
        vacant = {}
        for row in self._leases:
            died = self._workers[row.actual_owner or ""].died
            if died is not None:
                since = max(died, self._moved_at[row.key])
                if now - since >= FAILOVER:
                    vacant[row.key] = float(since)
        if self._rule is not kcl_decider.plan:
            reported = {one.who: float(one.reported) for one in self._workers.values()}
            renewing = [one.who for one in self._workers.values() if self._renews(one.died, now)]
            self._silent = silent_workers(self._silent, reported, self._leases, vacant, renewing)
        members = self._members(now)
        rest = resting(self._leases, lately(self._moved_at, now, FAILOVER))
        gc.collect(0)
        gc.disable()  # what there is to collect is the simulation's
        began = time.process_time()
        balances = now % (6 * TICK) == 0
        moves = self._rule(Run(self._leases, members, vacant, rest, balances, SETTINGS, self._rng))
        self.hour.plans.append(time.process_time() - began)
        gc.enable()
        places = {row.key: n for n, row in enumerate(self._leases)}
        for move in moves:
            key = move.lease.key
            before = None if key in vacant else move.lease.actual_owner
            self._leases[places[key]] = replace(move.lease, owner=move.to, checkpoint_owner=before)
            self._handoffs[key] = now + self._rng.randint(2, 30)
            if before is not None:
                self.hour.moves += 1
                self.hour.twice += now - self._moved_at[key] < REST
            self._moved_at[key] = now

    def _measure(self) -> None:
        values = [
            one.cpu if self._measures_cpu else one.kbps
            for one in self._workers.values()
            if one.died is None
        ]
        mean = statistics.fmean(values)
        self.hour.most.append(max(values) / mean)
        self.hour.deviations.append(statistics.pstdev(values) / mean)


def run(seed: int = 1) -> list[Result]:
    results = []
    for fleet, measures_cpu in (("throughput", False), ("CPU", True)):
        for name, rule in RULES.items():
            hour = Fleet(rule, measures_cpu=measures_cpu, seed=seed).run()
            most, heaviest = statistics.fmean(hour.most), statistics.fmean(hour.heaviest)
            results += [
                Result(
                    f"{fleet}, {name}: deviation",
                    100 * statistics.fmean(hour.deviations),
                    "% of the mean",
                    note=f"most loaded worker {most:.2f} times the mean"
                    + ("" if measures_cpu else f", the heaviest shard alone {heaviest:.2f}"),
                ),
                Result(
                    f"{fleet}, {name}: moves",
                    hour.moves,
                    "an hour",
                    note=f"{hour.twice:,} within a minute of the last; a plan takes "
                    f"{1000 * statistics.median(hour.plans):.1f} ms, at most "
                    f"{1000 * max(hour.plans):.0f}",
                ),
            ]
    return results


def main() -> None:
    print_table(__doc__.splitlines()[0], run())


if __name__ == "__main__":
    main()
