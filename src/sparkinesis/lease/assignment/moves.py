"""The moves that a leader decides: by what, which leases may move, and what workers then do."""

from __future__ import annotations

import random
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import heappop, heapreplace
from typing import TypeAlias

import msgspec

from sparkinesis.lease.assignment.partial_scan import PartialScan
from sparkinesis.lease.assignment.worker_stats import WorkerLoad
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.taker import Reach

REST = 6
"""Failover times, a minute by default, for which a lease that has moved stays where it is.

A move costs a checkpoint, a restart of the record processor and records that are read again; and a
worker's averages show only after two reports, a minute, what the last move has done to its load."""


class Move(msgspec.Struct, frozen=True):
    """The decision that a worker shall have a lease."""

    lease: Lease
    to: str


class AssignmentState(msgspec.Struct, frozen=True):
    """Who assigns the leases, and what this worker does by it, until the next scan."""

    has_leader: bool = False
    """True if a leader assigns the leases, as in a KCL 3.x; False if each worker takes its own."""
    reach: Reach = Reach.STEAL
    """How far the worker goes for more leases without being given them."""
    moves: tuple[Move, ...] = ()
    """The assignments to write now, if this worker leads."""
    has_partial_readers: bool = False
    """True if this worker leads others that may read only their own rows."""
    partial: PartialScan | None = None
    """What the worker reads in its next scans; None: the whole table."""


EACH_TAKES = AssignmentState()
"""The state without a leader, as in a KCL 2.x."""


class AssignSettings(msgspec.Struct, frozen=True):
    """The settings for assigning leases; the defaults are the KCL's."""

    threshold: float = 0.10
    """The part of the mean by which a worker's load may differ from it."""
    dampening: float = 0.60
    """The part of its excess that a worker gives up at once."""
    may_overshoot: bool = True
    """True if a worker whose leases are all larger than what it should give up gives up one."""
    max_leases: int = sys.maxsize
    """The most leases of a worker."""


class Run(msgspec.Struct, frozen=True):
    """What one run of a leader decides by; each rule (`by_count`, `by_load`) plans its moves."""

    leases: Sequence[Lease]
    """All that are not finished."""
    members: Sequence[WorkerLoad]
    vacant: Mapping[str, float]
    """The keys of the leases that nobody renews, and since which instant. Such a lease
    returns to its owner only if there is no other worker."""
    resting: Collection[str]
    """The keys of the leases that must not move now, unless they are vacant; see `resting`."""
    balances: bool
    """Whether the run also moves leases that have an owner."""
    settings: AssignSettings
    rng: random.Random


Rank: TypeAlias = tuple[float, int, float, str]
"""What a worker has, its leases, a random number against ties, its id: the least gets the next."""


def pop_least(ranking: list[Rank], but: str | None) -> Rank:
    """Remove the least of a heap that is not empty, or the next if that is the worker ``but``.

    A lease that its owner lets lapse goes to another worker, if there is one: the owner may be
    unable to read it.
    """
    least = heappop(ranking)
    return heapreplace(ranking, least) if ranking and least[-1] == but else least


def lately(moved_at: Mapping[str, float], now: float, failover_time: float) -> dict[str, float]:
    """Return the moves less than `REST` failover times ago; by the leader's clock."""
    rest = REST * failover_time
    return {key: at for key, at in moved_at.items() if now - at < rest}


def resting(leases: Iterable[Lease], moved: Collection[str]) -> frozenset[str]:
    """Return the keys of the leases that must not move now: in a handoff, or ``moved`` `lately`."""
    return frozenset(
        row.key for row in leases if row.checkpoint_owner is not None or row.key in moved
    )


def longest_vacant_first(leases: Iterable[Lease], vacant: Mapping[str, float]) -> list[Lease]:
    """Return the vacant leases; ``vacant``: since when nobody renews each."""
    found = [row for row in leases if row.key in vacant]
    return sorted(found, key=lambda row: (vacant[row.key], row.key))


def movable_by_owner(
    leases: Iterable[Lease], stay: Collection[str], rng: random.Random
) -> dict[str, list[Lease]]:
    """Return the leases of each owner without those that ``stay``, in random order.

    At random, because a lease that harms its worker would otherwise be the first to go each time.
    """
    found: dict[str, list[Lease]] = {}
    for row in leases:
        if row.owner is not None and row.key not in stay:
            found.setdefault(row.owner, []).append(row)
    for rows in found.values():
        rng.shuffle(rows)
    return found
