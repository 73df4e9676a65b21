"""Assigns leases so that each worker is as loaded: the KCL's WORKER_UTILIZATION_AWARE, improved.

As in the KCL, a vacant lease goes to the worker furthest below the mean, and a worker that is more
than a threshold above it gives up a part of its excess, measured in KB/s of its leases.
"""

# What differs from the KCL, and why:
#
# - The mean is the level that can be reached. A lease that alone is more than the mean keeps its
#   worker above whatever is done; with that worker in the mean, all others are below it and, for
#   the KCL, none of them has anything to give.
# - All metrics of a worker count, as one number: its load. The KCL acts on one metric in each run.
# - The largest leases that fit go first: few moves. The KCL's are random. After most of the excess
#   has been given, the small leases stay.
# - A lease does not move if it is heavier than three quarters of the gap between both workers. It
#   would make the other worker the loaded one, and the lease would bounce between them.
# - A lease that does not fit the least loaded worker leaves it there for lighter ones. (The KCL has
#   lost that worker for the rest of the run.)
# - New workers get leases from all that are above the mean in one run. The KCL takes from the most
#   loaded one alone if no worker is beyond the threshold: a lease a minute.
# - An idle worker is further below the mean than a busy one. (For the KCL, a load of 0 is as far as
#   half of the mean, and a load of a third further.)
# - An idle shard counts as a tenth of a usual one: without a weight, one worker would get all.
# - No worker gives up its last lease, and one without gets one, whatever its metrics say.
# - If all leases are idle, or never measured, leases are counted (`by_count`).
# - A metric of workers that read nothing is what other programs use: such a worker gets leases by
#   the part of its range that is left, even if no lease was ever measured. Such a metric was left
#   out at first, and the worker of a host at 90 % got as many of the first leases as the others.
#   (The KCL takes each lease for an even share of what is used, so that 9 % beside 2 % may get
#   nothing.)
# - If no worker can measure its metrics, all are measured by throughput. The KCL assigns nothing.
#
# In a simulated hour of 200 workers and 5,000 shards, the workers deviate by 9 % of the mean with
# 2,032 moves; by the KCL's rule, by 13 % with 5,753; by counts, by 45 % (docs/scale.md). Each move
# costs a checkpoint, a new record processor, and records that are read again.

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from sparkinesis.lease.assignment import by_count
from sparkinesis.lease.assignment.moves import (
    Move,
    Rank,
    Run,
    longest_vacant_first,
    movable_by_owner,
    pop_least,
)
from sparkinesis.lease.assignment.worker_stats import (
    EVEN,
    THROUGHPUT,
    WorkerLoad,
    by_throughput,
    costs_of,
    room_of,
)
from sparkinesis.lease.lease import Lease

_IDLE = 0.1
"""The weight of a lease without records, in usual leases: it is read all the same."""

_OF_GAP = 0.75
"""The largest part of the gap between two workers that one move may carry: it halves the gap."""

_ENOUGH = 2 / 3
"""The part of what a worker should give up that is enough: the rest is not worth more moves."""


def plan(run: Run) -> tuple[Move, ...]:
    """Return the moves of one run, each lease once at most."""
    if not run.members:
        return ()
    kbps = _weights(run.leases)
    if kbps is None:
        is_read = any(row.key not in run.vacant for row in run.leases)
        if is_read or len(set(map(room_of, run.members))) == 1:
            return by_count.plan(run)
        kbps = dict.fromkeys((row.key for row in run.leases), 1.0)
    workers = _Workers(run, kbps)
    workers.place(longest_vacant_first(run.leases, run.vacant))
    if run.balances:
        workers.relieve()
        workers.employ()
    return tuple(workers.moves)


def _weights(leases: Iterable[Lease]) -> dict[str, float] | None:
    """Return the KB/s that each lease counts for, by key; None if no lease has any.

    A lease that was never read counts as the mean of the others.
    """
    leases = list(leases)
    known = [max(0.0, row.throughput_kbps) for row in leases if row.throughput_kbps is not None]
    busy = [kbps for kbps in known if kbps > 0]
    if not busy:
        return None
    mean = sum(known) / len(known)
    # Not of the mean, which may be that of one lease: then all others would count as idle.
    least = _IDLE * statistics.median(busy)
    return {
        row.key: mean if row.throughput_kbps is None else max(row.throughput_kbps, least)
        for row in leases
    }


class _Measure:
    """One metric of one worker, in parts of the worker's target: the mean, or its limit if less."""

    __slots__ = ("ceiling", "part", "per_kbps")

    def __init__(self, part: float, per_kbps: float, ceiling: float) -> None:
        self.part = part
        self.per_kbps = per_kbps
        """What a KB/s more adds, in the mean of all workers."""
        self.ceiling = ceiling
        """The limit of the operating range."""


class _Worker:
    """A worker during one run, as it will be after the moves that are planned so far."""

    __slots__ = ("count", "kbps", "measures", "movable", "who")

    def __init__(self, who: str, measures: list[_Measure], kbps: float) -> None:
        self.who = who
        self.measures = measures
        self.kbps = kbps
        self.count = 0
        self.movable: list[Lease] = []
        """The leases that may move, heaviest first."""

    @property
    def load(self) -> float:
        """The metric that is furthest above its target, or least below."""
        return max((one.part for one in self.measures), default=0.0)

    def load_with(self, kbps: float) -> float:
        return max((one.part + one.per_kbps * kbps for one in self.measures), default=0.0)

    def has_room(self, kbps: float) -> bool:
        """Return True if the worker stays in its operating range with ``kbps`` KB/s more."""
        return all(one.part + one.per_kbps * kbps <= one.ceiling for one in self.measures)

    @property
    def is_in_range(self) -> bool:
        return self.has_room(0.0)

    def take(self, kbps: float) -> None:
        self.kbps += kbps
        for one in self.measures:
            one.part += one.per_kbps * kbps

    def give(self, kbps: float) -> None:
        """Lose a lease and, with it, its part of the worker's own load."""
        kept = max(0.0, 1 - kbps / self.kbps) if self.kbps else 1.0
        self.kbps -= kbps
        for one in self.measures:
            one.part *= kept


class _Workers:
    """The workers and the moves of one run."""

    def __init__(self, run: Run, kbps: Mapping[str, float]) -> None:
        self._kbps = kbps
        self._settings = run.settings
        self._rng = run.rng
        self.moves: list[Move] = []
        held = [row for row in run.leases if row.key not in run.vacant]
        measured = [one for one in run.members if not one.is_failing]
        if not measured:
            measured = [WorkerLoad(one.worker_id) for one in run.members]
        self._active = {one.who: one for one in _measured_workers(measured, held, run.leases, kbps)}
        """The workers whose load is known."""
        self._all = {
            one.worker_id: self._active.get(one.worker_id) or _Worker(one.worker_id, [], 0.0)
            for one in run.members
        }
        self._owned: dict[str, list[float]] = {who: [] for who in self._active}
        """The weights of the leases of each active worker."""
        for row in held:
            owner, reader = self._all.get(row.owner or ""), self._all.get(row.actual_owner or "")
            if owner is not None:
                owner.count += 1
                if owner.who in self._owned:
                    self._owned[owner.who].append(kbps[row.key])
            if owner is not reader:
                # The metrics do not show yet what a handoff will change.
                if reader is not None:
                    reader.give(kbps[row.key])
                if owner is not None:
                    owner.take(kbps[row.key])
        movable = movable_by_owner(held, run.resting, run.rng)
        for who, worker in self._all.items():
            rows = movable.get(who, [])
            worker.movable = sorted(rows, key=lambda row: kbps[row.key], reverse=True)

    def place(self, vacant: Iterable[Lease]) -> None:
        """Give each vacant lease to the least loaded worker."""
        ranking = [self._rank(one) for one in self._active.values() if self._may_have_more(one)]
        heapq.heapify(ranking)
        for row in vacant:
            if not ranking:
                return
            worker = self._active[pop_least(ranking, row.actual_owner)[-1]]
            self._move(row, worker)
            if self._may_have_more(worker):
                heapq.heappush(ranking, self._rank(worker))

    def relieve(self) -> None:
        """Move leases from workers above the level to those below, until these have enough."""
        level = self._level()
        if level <= 0:
            return
        high = level * (1 + self._settings.threshold)
        low = level * (1 - self._settings.threshold)
        givers = sorted(
            (one for one in self._active.values() if one.load > level),
            key=lambda one: one.load,
            reverse=True,
        )
        takers = [
            self._rank(one)
            for one in self._active.values()
            if one.load < level and self._may_have_more(one)
        ]
        heapq.heapify(takers)
        wanted = {
            who: load + (level - load) * self._settings.dampening
            for load, _, _, who in takers
            if load < low
        }
        for giver in givers:
            if giver.load >= high or not giver.is_in_range:
                excess = giver.kbps * (1 - level / giver.load) * self._settings.dampening
                self._give_up(giver, excess, takers, level)
        # Workers that are new, or lost leases, wait for more than the others had to give.
        takers = [rank for rank in takers if rank[-1] in wanted]
        heapq.heapify(takers)
        for giver in givers:
            while takers and takers[0][0] >= wanted[takers[0][-1]]:
                heapq.heappop(takers)
            if takers and giver.load < high:
                self._give_one(giver, takers, level, low)

    def employ(self) -> None:
        """Give a lease to each worker that has none while another has several."""
        for worker in self._all.values():
            if worker.count or not self._may_have_more(worker):
                continue
            givers = [one for one in self._all.values() if one.count > 1 and one.movable]
            if givers:
                giver = max(givers, key=lambda one: (one.load, one.count))
                self._hand_over(giver, giver.movable[-1], worker)

    def _level(self) -> float:
        """Return the load of each worker if all were as loaded as can be.

        A lease that is more than the level has a worker for itself; the others share the rest.
        """
        total = math.fsum(one.load for one in self._active.values())
        workers = len(self._active)
        parts = sorted(
            (
                one.load * kbps / one.kbps
                for one in self._active.values()
                if one.kbps
                for kbps in self._owned[one.who]
            ),
            reverse=True,
        )
        for part in parts:
            if workers == 1 or part * workers <= total:
                break
            total -= part
            workers -= 1
        return total / workers

    def _give_up(self, giver: _Worker, excess: float, takers: list[Rank], level: float) -> None:
        """Move leases worth the excess, the heaviest first, as long as takers can take them."""
        left = excess
        for row in list(giver.movable):
            kbps = self._kbps[row.key]
            if not takers or giver.count <= 1 or left < excess * (1 - _ENOUGH):
                return
            if kbps <= left and self._fits(giver, kbps, takers):
                self._hand_to_least(giver, row, takers, level)
                left -= kbps
        if left == excess and giver.movable and self._settings.may_overshoot:
            row = giver.movable[-1]
            if self._kbps[row.key] > excess and self._fits(giver, self._kbps[row.key], takers):
                self._hand_to_least(giver, row, takers, level)

    def _give_one(self, giver: _Worker, takers: list[Rank], level: float, low: float) -> None:
        """Move the heaviest lease without which the giver stays well inside the threshold."""
        least = (level + low) / 2
        for row in giver.movable:
            kbps = self._kbps[row.key]
            is_kept = giver.load * (1 - kbps / giver.kbps) >= least
            is_taken = self._active[takers[0][-1]].load_with(kbps) <= level
            if giver.count > 1 and is_kept and is_taken and self._fits(giver, kbps, takers):
                self._hand_to_least(giver, row, takers, level)
                return

    def _fits(self, giver: _Worker, kbps: float, takers: list[Rank]) -> bool:
        """Return True if a lease may go from a worker to the first of the takers."""
        if not takers:
            return False
        taker = self._active[takers[0][-1]]
        # If the giver, too, is beyond its range, it is better for both to be so a little.
        if giver.is_in_range and not taker.has_room(kbps):
            return False
        # What a lease costs shows on its host; on the other, by the mean of all. More is safe.
        carried = max(taker.load_with(kbps) - taker.load, giver.load * kbps / giver.kbps)
        return carried <= _OF_GAP * (giver.load - taker.load)

    def _hand_to_least(self, giver: _Worker, row: Lease, takers: list[Rank], level: float) -> None:
        taker = self._active[heapq.heappop(takers)[-1]]
        self._hand_over(giver, row, taker)
        if taker.load < level and self._may_have_more(taker):
            heapq.heappush(takers, self._rank(taker))

    def _hand_over(self, giver: _Worker, row: Lease, taker: _Worker) -> None:
        kbps = self._kbps[row.key]
        giver.movable.remove(row)
        giver.count -= 1
        giver.give(kbps)
        self._move(row, taker)

    def _move(self, row: Lease, to: _Worker) -> None:
        kbps = self._kbps[row.key]
        to.count += 1
        to.take(kbps)
        if to.who in self._owned:
            self._owned[to.who].append(kbps)
        self.moves.append(Move(row, to.who))

    def _may_have_more(self, worker: _Worker) -> bool:
        return worker.count < self._settings.max_leases

    def _rank(self, worker: _Worker) -> Rank:
        return worker.load, worker.count, self._rng.random(), worker.who


def _measured_workers(
    members: Sequence[WorkerLoad],
    held: Iterable[Lease],
    leases: Iterable[Lease],
    kbps: Mapping[str, float],
) -> list[_Worker]:
    """Return the workers with the load that they have now, with the leases that they read now."""
    carried = dict.fromkeys((one.worker_id for one in members), 0.0)
    for row in held:
        if row.actual_owner in carried:
            carried[row.actual_owner] += kbps[row.key]
    costs = costs_of(members, carried)
    # A metric that no KB/s costs (none is read, or all values are 0) says nothing of the leases,
    # but of the room for them.
    room = {one.worker_id: room_of(one) for one in members}
    members = by_throughput(
        [
            WorkerLoad(
                one.worker_id,
                {name: value for name, value in one.load.items() if costs.get(name)},
                one.limit,
            )
            for one in members
        ],
        carried,
    )
    everything = math.fsum(carried.values()) or math.fsum(kbps[row.key] for row in leases)
    costs[THROUGHPUT] = EVEN * len(members) / everything
    means = {name: _mean(one.load[name] for one in members if name in one.load) for name in costs}
    # A worker without metrics of its own is compared with all workers.
    means[THROUGHPUT] = EVEN
    usual = statistics.fmean(kbps.values())
    workers = []
    for one in members:
        measures = []
        for name, value in one.load.items():
            limit = one.limit.get(name) or math.inf
            target = min(means[name], limit)
            ceiling = math.inf if name == THROUGHPUT else limit / target
            part, per_kbps = value / target, costs[name] / target
            if name == THROUGHPUT:
                # As after a lease more: else all would be even while they have none.
                part += usual * per_kbps * (1 / room[one.worker_id] - 1)
                per_kbps /= room[one.worker_id]
            measures.append(_Measure(part, per_kbps, ceiling))
        workers.append(_Worker(one.worker_id, measures, carried[one.worker_id]))
    return workers


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
