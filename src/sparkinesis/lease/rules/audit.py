"""The audit: finds hash keys that no unfinished lease covers.

The KCL's ``PeriodicShardSyncManager`` does the same: a hole that several audits in a row see is
closed by a shard sync.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sparkinesis.lease.lease import Lease
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard


class Hole(msgspec.Struct, frozen=True):
    """Hash keys, both ends included, that no unfinished lease covers."""

    first: int
    last: int


class Confidence(msgspec.Struct, frozen=True):
    """The number of consecutive audits that found the same hole."""

    hole: Hole | None = None
    audits: int = 0

    def after(self, hole: Hole | None) -> Confidence:
        """Return the confidence after one more audit; a different hole starts again at 1.

        Resharding opens and closes holes.
        """
        if hole is None:
            return Confidence()
        return Confidence(hole, self.audits + 1 if hole == self.hole else 1)


def find_hole(leases: Iterable[Lease]) -> Hole | None:
    """Return the lowest hole; None if unfinished leases cover all hash keys.

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
    """Return unfinished leases without a hash range (KCLs before 1.14), and the range of each."""
    ranges = {shard.id: shard.hash_range for shard in shards}
    return [
        (lease, found)
        for lease in leases
        if lease.hash_range is None
        and not lease.is_finished
        and (found := ranges.get(lease.shard_id)) is not None
    ]
