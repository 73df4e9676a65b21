"""The audit: whether for every hash key there is a lease whose reader will come to its records.

The KCL's ``PeriodicShardSyncManager`` does the same: a hole that several audits in a row see is
closed by a shard sync.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkinesis.lease.lease import Lease
from sparkinesis.stream.routing import MAX_HASH_KEY
from sparkinesis.stream.shard import Shard


@dataclass(frozen=True, slots=True)
class Hole:
    """Hash keys, both ends included, that no unfinished lease covers."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Confidence:
    """How many audits in a row saw the very same hole."""

    hole: Hole | None = None
    audits: int = 0

    def after(self, hole: Hole | None) -> Confidence:
        """One audit later. Another hole starts anew: resharding opens and closes holes."""
        if hole is None:
            return Confidence()
        return Confidence(hole, self.audits + 1 if hole == self.hole else 1)


def find_hole(leases: Iterable[Lease]) -> Hole | None:
    """The lowest hole; None where unfinished leases cover all hash keys.

    Overlaps are fine: the leases of a parent and of its children exist together. A lease without
    a known range covers nothing: add what `missing_hash_ranges` finds first.
    """
    ranges = sorted(
        lease.hash_range
        for lease in leases
        if lease.hash_range is not None and not lease.is_finished
    )
    uncovered = 0
    for first, last in ranges:
        if first > uncovered:
            return Hole(uncovered, first - 1)
        uncovered = max(uncovered, last + 1)
    return Hole(uncovered, MAX_HASH_KEY) if uncovered <= MAX_HASH_KEY else None


def missing_hash_ranges(
    leases: Iterable[Lease], shards: Iterable[Shard]
) -> list[tuple[Lease, tuple[int, int]]]:
    """Unfinished leases that lack their hash range (KCLs before 1.14 wrote none), and the range."""
    ranges = {shard.id: shard.hash_range for shard in shards}
    return [
        (lease, found)
        for lease in leases
        if lease.hash_range is None
        and not lease.is_finished
        and (found := ranges.get(lease.shard_id)) is not None
    ]
