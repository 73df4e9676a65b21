"""When a worker reads only its own rows of the lease table: while a leader lives. Pure.

In a fleet with a leader, a worker adopts the leases that it is given, and its own rows tell which.
It need not read those of the others, as long as the leader lives. Of the leader it reads the lock
and some leases, whose counters move while the leader renews them.

Two other workers, the standbys, read the whole table as the leader does: if the leader crashes,
they know at once which leases have expired, and take them as soon as in a fleet where all read
everything. All workers compute the same standbys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import Observation

WORTHWHILE = 100
"""The number of leases from which on own rows cost less to read than all."""
FULL_EVERY = 300.0
"""Seconds after which a worker reads the whole table nevertheless: standbys may have ended."""
STANDBYS = 2
WITNESSES = 3
"""The number of the leader's leases that are read."""
_QUIET = 1 / 2
"""The part of the failover time for which a counter stands still only if a renewal was missed."""


class PartialScan(msgspec.Struct, frozen=True):
    """What a worker reads in place of the whole table."""

    leader: str
    witnesses: tuple[str, ...]
    """Keys of leases of the leader."""
    until: float
    """The time of the next look at the whole table, by the worker's clock."""


def standbys(alive: Iterable[str], leader: str) -> frozenset[str]:
    """Return the workers that read the whole table besides the leader. ``alive``: all workers."""
    return frozenset(sorted(set(alive) - {leader})[:STANDBYS])


def next_looks(
    leases: Iterable[Lease],
    observations: Mapping[str, Observation],
    leader: str,
    now: float,
    failover_time: float,
) -> PartialScan | None:
    """Return what a worker is to read from now on; None (the whole table) without a live leader.

    Each lease needs an observation.
    """
    its = [
        row
        for row in leases
        if (row.owner, row.checkpoint_owner) == (leader, None) and not row.is_finished
    ][:WITNESSES]
    look = PartialScan(leader, tuple(row.key for row in its), now + FULL_EVERY)
    return look if leader_lives(look, its, observations, now, failover_time) else None


def leader_lives(
    look: PartialScan,
    leases: Iterable[Lease],
    observations: Mapping[str, Observation],
    now: float,
    failover_time: float,
) -> bool:
    """Return True if the leader has renewed one of its leases in time. Sooner than a lease expires.

    ``leases``: the witnesses as they were read now, and others.
    """
    return any(
        row.key in look.witnesses
        and row.owner == look.leader
        and now - observations[row.key].since <= _QUIET * failover_time
        for row in leases
    )


def rows_to_read(
    look: PartialScan,
    owned: Iterable[str],
    held: Mapping[str, Collection[str]],
    unfinished: Collection[str],
) -> list[str]:
    """Return the keys of the leases to read in a brief look.

    ``owned``: the leases that name this worker. ``held``: those that it holds, with the keys of
    their parents, for which a consumer may wait. ``unfinished``: the shards that are not finished
    as far as it is known.
    """
    parents = {parent for each in held.values() for parent in each}
    new = set(owned) - held.keys()
    return sorted({*look.witnesses, *new, *(parents & set(unfinished) - held.keys())})
