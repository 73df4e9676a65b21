"""The KCL's rule WORKER_UTILIZATION_AWARE as it is in version 3.5, to measure beside ours.

``VarianceBasedLeaseAssignmentDecider`` and what it uses, with their weaknesses. Leases are picked
by ``rng`` where the KCL picks them at random.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparkinesis.lease.leading.members import EVEN, THROUGHPUT, Member
from sparkinesis.lease.leading.moves import AssignSettings, Move, Run
from sparkinesis.lease.lease import Lease


@dataclass(eq=False)
class _Host:
    who: str
    load: dict[str, float]
    limit: Mapping[str, float]
    kbps: float = 0.0
    leases: dict[str, Lease] = field(default_factory=dict)


class _Decider:
    def __init__(
        self, leases: Sequence[Lease], members: Sequence[Member], settings: AssignSettings
    ) -> None:
        self.settings = settings
        self.moves: dict[str, Move] = {}
        known = [row.throughput_kbps for row in leases if row.throughput_kbps is not None]
        mean = sum(known) / len(known) if known else 0.0
        self.kbps = {
            row.key: mean if row.throughput_kbps is None else row.throughput_kbps for row in leases
        }
        self.active = [
            _Host(one.worker_id, dict(one.load), one.limit) for one in members if not one.is_failing
        ]
        self.fair_kbps = mean * len(leases) / max(1, len(self.active))
        self.fair_count = max(1, len(leases) // max(1, len(self.active)))
        self.hosts: dict[str | None, _Host] = {one.who: one for one in self.active}
        for row in leases:
            host = self.hosts.setdefault(row.actual_owner, _Host("", {}, {}))
            host.leases[row.key] = row
            host.kbps += self.kbps[row.key]
        for one in self.active:
            if not one.load:
                ratio = one.kbps / self.fair_kbps if self.fair_kbps else float("nan")
                one.load, one.limit = {THROUGHPUT: EVEN * ratio}, {THROUGHPUT: EVEN}
        names = {name for one in self.active for name in one.load}
        self.means = {}
        for name in sorted(names):
            values = [one.load[name] for one in self.active if name in one.load]
            self.means[name] = sum(values) / len(values)
        self.queue: list[tuple[float, int, _Host]] = []
        self.entered = 0
        for one in self.active:
            self.enter(one)

    def enter(self, host: _Host) -> None:
        """Queue a worker, unless it has the most leases; the most capacity comes first."""
        if host.leases and len(host.leases) >= self.settings.max_leases:
            return
        capacity = min(
            1.0 if value == 0 else (self.means[name] - value) / value
            for name, value in host.load.items()
        )
        self.entered += 1
        heapq.heappush(self.queue, (-capacity, self.entered, host))

    def added(self, host: _Host, name: str, kbps: float) -> float:
        mean = self.means[name]
        more = kbps * mean / self.fair_kbps if self.fair_kbps > 0 else mean / self.fair_count
        return host.load[name] + more

    def assign(self, row: Lease, host: _Host, *, is_vacant: bool) -> None:
        is_stuck = is_vacant and row.checkpoint_owner is not None
        if row.actual_owner == host.who and not is_stuck:
            self.enter(host)
            return
        kbps = self.kbps[row.key]
        host.load = {name: self.added(host, name, kbps) for name in host.load}
        before = self.hosts[row.actual_owner]
        before.leases.pop(row.key, None)
        before.kbps -= kbps
        host.leases[row.key] = row
        host.kbps += kbps
        self.moves[row.key] = Move(row, host.who)
        self.enter(host)

    def place(self, vacant: Sequence[Lease]) -> None:
        for row in vacant:
            if self.queue:
                self.assign(row, heapq.heappop(self.queue)[-1], is_vacant=True)

    def sources(self, name: str) -> list[_Host]:
        hosts = [one for one in self.active if name in one.load]
        upper = self.means[name] * (1 + self.settings.threshold)
        lower = self.means[name] * (1 - self.settings.threshold)
        hot = [one for one in hosts if one.load[name] > one.limit[name]]
        if not hot and all(lower <= one.load[name] <= upper for one in hosts):
            return []
        found = [one for one in hosts if one.load[name] >= upper or one in hot]
        return found or [max(hosts, key=lambda one: one.load[name])]

    def balance(self, rng: random.Random) -> None:
        best: dict[str, float] = {}
        most = -1.0
        for name, mean in self.means.items():
            takes = {
                one.who: one.kbps
                * ((one.load[name] - mean) / one.load[name])
                * self.settings.dampening
                for one in self.sources(name)
            }
            if sum(takes.values()) > most:
                most, best = sum(takes.values()), takes
        for who in sorted(best, key=lambda who: -best[who]):
            for row in self.picked(self.hosts[who], best[who], rng):
                if not self.queue:
                    continue
                host = heapq.heappop(self.queue)[-1]
                if self.is_too_much(host, self.kbps[row.key]):
                    break  # and the worker is not in the queue any more
                self.assign(row, host, is_vacant=False)

    def is_too_much(self, host: _Host, kbps: float) -> bool:
        after = {name: self.added(host, name, kbps) for name in host.load}
        return any(
            value > self.means[name] or value > host.limit[name] for name, value in after.items()
        )

    def picked(self, host: _Host, take: float, rng: random.Random) -> list[Lease]:
        rows = list(host.leases.values())
        if host.kbps == 0:
            return rows[:1]
        rng.shuffle(rows)
        found = []
        for row in rows:
            if take - self.kbps[row.key] > 0:
                take -= self.kbps[row.key]
                found.append(row)
        if not found and rows and self.settings.may_overshoot:
            found.append(min(rows, key=lambda row: self.kbps[row.key]))
        return found


def plan(run: Run) -> tuple[Move, ...]:
    """Return the KCL's moves of one run. Of ``resting`` it knows only the handoffs."""
    decider = _Decider(run.leases, run.members, run.settings)
    rows = [row for row in run.leases if row.key in run.vacant]
    decider.place(sorted(rows, key=lambda row: run.vacant[row.key]))
    if run.balances and decider.active:
        decider.balance(run.rng)
    handed_over = {row.key for row in run.leases if row.checkpoint_owner is not None}
    blocked = handed_over.intersection(run.resting).difference(run.vacant)
    return tuple(move for key, move in decider.moves.items() if key not in blocked)
