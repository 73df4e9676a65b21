"""What a leader does in each scan: it finds the workers that live, and assigns leases to them."""

# A leader judges workers by two signs: the row of a worker's load, which counts for a minute, and
# the counters of its leases. Neither is enough. Each of these rules was missing once, and leases
# then had to expire, or moved twice:
#
# - A worker that let its leases expire is left out although its row is young: without any lease it
#   is the least loaded, and would be given the next ones, which must then expire, too. It was first
#   left out once all of its leases had expired; but a lease that it had been given in its last
#   minute was young, so the dead worker counted as alive, got further leases, and so on. Only a
#   renewal shows now that a worker lives (`silent_workers`).
# - A new leader does not know what the last one knew: it waits for the next report of a worker
#   without leases (`unproven_workers`).
# - A worker that has just released its leases is about to end. It has the fewest leases, so they
#   would be given back to it (`releasing_workers`).
# - A lease that has moved rests for `REST` failover times. The time of a move is kept from the
#   decision on, and forgotten by its age alone: a scan from before the move once dropped it, and
#   the lease moved again.
#
# Each assignment expects the counter and the owners of the scan by which it was decided
# (`requests.assign_vacant`). So two leaders, or a leader that has lost the lock without knowing so,
# waste writes, and harm nothing; the lock only saves work. docs/lease-protocol.md has the history
# in which a KCL's condition, the owners alone, lets two workers read a shard.

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from sparkinesis.lease.assignment import by_count, by_load
from sparkinesis.lease.assignment.moves import AssignSettings, Move, Run, lately, resting
from sparkinesis.lease.assignment.worker_stats import (
    WorkerLoad,
    WorkerStats,
    members_of,
    releasing_workers,
    silent_workers,
    unproven_workers,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import Observation, renewing_workers, vacant_leases
from sparkinesis.lease.rules.taker import TakeSettings

Balance: TypeAlias = Literal["count", "load", "throughput"]
"""By what a leader balances the workers; see ``WorkerOptions.balance``."""

_BALANCE_EVERY = 6
"""Failover times between two runs that balance: a KCL's leader balances in each third run, and its
runs are two failover times apart."""


class Assigner:
    """Plans the moves of leases, and remembers what the next plan needs. For one thread."""

    def __init__(
        self, worker_id: str, balance: Balance, settings: TakeSettings, rng: random.Random
    ) -> None:
        self._worker_id = worker_id
        self._plan = by_count.plan if balance == "count" else by_load.plan
        self._settings = AssignSettings(max_leases=settings.max_leases)
        self._failover_time = settings.failover_time
        self._handoff_timeout = settings.handoff_timeout
        self._rng = rng
        self._owners: dict[str, str | None] = {}
        """The owners of the leases by the last scan."""
        self._releasing: frozenset[str] = frozenset()
        self._moved_at: dict[str, float] = {}
        """The time at which a lease was first seen to have gone from one worker to another, or at
        which this leader has decided so."""
        self._balance_at = math.inf
        self._members: frozenset[str] = frozenset()
        """The workers to which this leader has last assigned leases: it balances at once if there
        are others, as after an election."""
        self._silent: Mapping[str, float] = {}
        """The workers that this leader believes to be dead."""

    def observe_owners(self, leases: Collection[Lease], now: float) -> None:
        """Observe who owns the leases by the scan at ``now``, whoever leads."""
        self._releasing = releasing_workers(self._owners, leases)
        owners = {row.key: row.owner for row in leases}
        moved = {
            key: now
            for key, owner in owners.items()
            if owner is not None and self._owners.get(key, owner) not in {None, owner}
        }
        self._moved_at = lately({**self._moved_at, **moved}, now, self._failover_time)
        self._owners = owners

    def begin(self, stats: Iterable[WorkerStats], leases: Iterable[Lease], second: float) -> None:
        """Begin to lead: leave out the workers that the last leader may have found dead."""
        self._members = frozenset()
        self._silent = unproven_workers(
            _reports(stats), _unfinished(leases), second - self._failover_time
        )

    def assign(
        self,
        stats: Collection[WorkerStats],
        leases: Iterable[Lease],
        wanted: Iterable[Lease],
        observations: Mapping[str, Observation],
        expired: Collection[str],
        *,
        second: float,
        now: float,
    ) -> tuple[Move, ...]:
        """Return the moves to write after the scan at ``now``, whose epoch second is ``second``.

        stats: the row of each worker's load. leases: of the whole table, which show who lives.
        wanted: those to assign. expired: keys of the leases whose owners are silent.
        """
        rows = _unfinished(leases)
        renewing = renewing_workers(rows, observations, now, self._failover_time)
        self._silent = silent_workers(self._silent, _reports(stats), rows, expired, renewing)
        absent = (self._silent.keys() | self._releasing) - {self._worker_id}
        members = members_of(stats, absent, second)
        return self._assign(members, _unfinished(wanted), observations, expired, now)

    def _assign(
        self,
        members: Sequence[WorkerLoad],
        leases: Sequence[Lease],
        observations: Mapping[str, Observation],
        expired: Collection[str],
        now: float,
    ) -> tuple[Move, ...]:
        late = self._handoff_timeout + 2 * self._failover_time
        vacant = vacant_leases(leases, observations, expired, now, late=late)
        present = frozenset(one.worker_id for one in members)
        balances = now >= self._balance_at or bool(present - self._members)
        if balances:
            self._balance_at = now + _BALANCE_EVERY * self._failover_time
        self._members = present
        run = Run(
            leases,
            members,
            vacant,
            resting(leases, self._moved_at),
            balances,
            self._settings,
            self._rng,
        )
        moves = to_able_workers(self._plan(run), present, self._rng)
        # Kept at once: a scan that is behind the table may show another owner than it had.
        moved = {move.lease.key: now for move in moves if move.lease.owner not in {None, move.to}}
        self._moved_at = {**self._moved_at, **moved}
        return moves


def _unfinished(leases: Iterable[Lease]) -> list[Lease]:
    return [row for row in leases if not row.is_finished]


def _reports(stats: Iterable[WorkerStats]) -> dict[str, float]:
    """Return the instant of each worker's last report."""
    return {one.worker_id: float(one.updated_s) for one in stats}


def to_able_workers(
    moves: Iterable[Move], workers: Collection[str], rng: random.Random
) -> tuple[Move, ...]:
    """Return the moves without those to a worker on which ``on_error`` has stopped the shard.

    The shard goes to another worker in its place, or stays where it is if there is none.
    """
    found = []
    for move in moves:
        row = move.lease
        if move.to not in row.stopped_by:
            found.append(move)
        elif able := sorted(set(workers) - {row.actual_owner, *row.stopped_by}):
            found.append(Move(row, rng.choice(able)))
    return tuple(found)
