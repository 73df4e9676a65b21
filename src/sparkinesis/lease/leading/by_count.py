"""Assigns leases so that each worker has as many: the KCL's LEASE_COUNT_BASED.

Every worker gets the even share, rounded down or up. (The KCL's shares are all rounded up: of 10
leases, the last of 4 workers has 1.) Metrics are not looked at, so a worker that fails to measure
them is a worker like the others.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from sparkinesis.lease.leading.members import Member
from sparkinesis.lease.leading.moves import (
    AssignSettings,
    Move,
    Rank,
    longest_vacant_first,
    movable_by_owner,
    pop_least,
)
from sparkinesis.lease.lease import Lease


def plan(
    leases: Sequence[Lease],
    members: Sequence[Member],
    *,
    vacant: Mapping[str, float],
    resting: Collection[str],
    balances: bool,
    settings: AssignSettings,
    rng: random.Random,
) -> tuple[Move, ...]:
    """Return the moves of one run, each lease once at most.

    ``leases``: all that are not finished. ``vacant``: the keys of those that nobody renews, and the
    instant of each since when. Such a lease returns to its owner only if there is no other worker.
    ``resting``: the keys of those that must not move now, unless they are vacant
    (`sparkinesis.lease.leading.moves.resting`). ``balances``: whether this run also moves leases
    that have an owner.
    """
    if not members:
        return ()
    counts = Counter({one.worker_id: 0 for one in members})
    held = [row for row in leases if row.key not in vacant and row.owner in counts]
    counts.update(row.owner for row in held if row.owner)
    ranking: list[Rank] = [
        (count, count, rng.random(), who)
        for who, count in counts.items()
        if count < settings.max_leases
    ]
    heapq.heapify(ranking)
    moves: list[Move] = []

    def give(row: Lease, but: str | None = None) -> None:
        """Move a lease to the worker with the fewest."""
        if ranking:
            _, count, tie, to = pop_least(ranking, but)
            counts[to] = count + 1
            moves.append(Move(row, to))
            if count + 1 < settings.max_leases:
                heapq.heappush(ranking, (count + 1, count + 1, tie, to))

    for row in longest_vacant_first(leases, vacant):
        give(row, row.actual_owner)
    if balances:
        movable = movable_by_owner(held, resting, rng)
        givers = [(-counts[who], who) for who in movable]
        heapq.heapify(givers)
        while givers and ranking and -givers[0][0] - ranking[0][1] > 1:
            most, who = heapq.heappop(givers)
            give(movable[who].pop())
            if movable[who]:
                heapq.heappush(givers, (most + 1, who))
    return tuple(moves)
