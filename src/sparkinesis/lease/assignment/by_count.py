"""Assigns leases so that each worker has as many: the KCL's LEASE_COUNT_BASED.

Every worker gets the even share, rounded down or up. (The KCL's shares are all rounded up: of 10
leases, the last of 4 workers has 1.) Metrics do not count, so a worker that fails to measure
them is a worker like the others.
"""

from __future__ import annotations

import heapq
from collections import Counter

from sparkinesis.lease.assignment.moves import (
    Move,
    Rank,
    Run,
    longest_vacant_first,
    movable_by_owner,
    pop_least,
)
from sparkinesis.lease.lease import Lease


def plan(run: Run) -> tuple[Move, ...]:
    """Return the moves of one run, each lease once at most."""
    if not run.members:
        return ()
    counts = Counter({one.worker_id: 0 for one in run.members})
    held = [row for row in run.leases if row.key not in run.vacant and row.owner in counts]
    counts.update(row.owner for row in held if row.owner)
    ranking: list[Rank] = [
        (count, count, run.rng.random(), who)
        for who, count in counts.items()
        if count < run.settings.max_leases
    ]
    heapq.heapify(ranking)
    moves: list[Move] = []

    def give(row: Lease, but: str | None = None) -> None:
        """Move a lease to the worker with the fewest."""
        if ranking:
            _, count, tie, to = pop_least(ranking, but)
            counts[to] = count + 1
            moves.append(Move(row, to))
            if count + 1 < run.settings.max_leases:
                heapq.heappush(ranking, (count + 1, count + 1, tie, to))

    for row in longest_vacant_first(run.leases, run.vacant):
        give(row, row.actual_owner)
    if run.balances:
        movable = movable_by_owner(held, run.resting, run.rng)
        givers = [(-counts[who], who) for who in movable]
        heapq.heapify(givers)
        while givers and ranking and -givers[0][0] - ranking[0][1] > 1:
            most, who = heapq.heappop(givers)
            give(movable[who].pop())
            if movable[who]:
                heapq.heappush(givers, (most + 1, who))
    return tuple(moves)
