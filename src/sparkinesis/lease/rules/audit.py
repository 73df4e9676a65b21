"""Audits and cleanups: finds hash keys that no lease covers, and leases that no worker needs. Pure.

The KCL's ``PeriodicShardSyncManager`` audits in the same way: a shard sync closes a hole that
several audits in a row have found. Its ``LeaseCleanupManager`` deletes.
"""

# What a cleanup must leave alone:
#
# - A finished lease stays until its children are being read, as in the KCL, and as long as a listed
#   child has no lease: nothing else would lead to that child.
# - It also stays while some hash keys have no unfinished lease (`audit_needs_them`): after an
#   outage in which all shards between the first and the present ones expired, the finished lease
#   of the first was cleaned up before an audit had made the missing leases. The application then
#   began anew: at TRIM_HORIZON no loss was reported, at LATEST records that were there were
#   skipped. Only the finished lease knew when the application began.
# - A listing may be behind: a shard that it lacks has expired only if no ancestor is listed, as
#   older shards expire first. An answer without any shard is an error, and expires nothing.
# - An unfinished lease is never deleted, even if its shard has expired: that is a loss, which the
#   shard's reader must report.
#
# A hole must be the same in several audits in a row: a reshard opens and closes holes.

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, TRIM_HORIZON
from sparkinesis.lease.lease import Lease
from sparkinesis.stream.shard import MAX_HASH_KEY, Lineage, Shard


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


def deletable(leases: Iterable[Lease], listed_shards: Iterable[Shard] | None) -> list[Lease]:
    """Return the finished leases to delete by this snapshot, the oldest generation only.

    ``listed_shards``: all that ListShards returns; None if it was not called. As in the KCL's
    ``LeaseCleanupManager``, a finished lease is deleted when all its children are being read (their
    checkpoints are neither TRIM_HORIZON nor AT_TIMESTAMP) and its parents' leases are deleted. It
    is also deleted when the service lists neither its shard, nor an ancestor, nor a child that has
    no lease. An unfinished lease stays even if its shard has expired: that loss must be reported.
    """
    leased = {lease.shard_id: lease for lease in leases}
    lineage = Lineage.of(listed_shards or ())
    return [
        lease
        for lease in leased.values()
        if lease.is_finished
        and (_is_passed_on(lease, leased, lineage) or _is_expired(lease, leased, lineage))
    ]


def audit_needs_them(leases: Iterable[Lease]) -> bool:
    """Return True if an audit needs the finished leases: some hash keys have no unfinished lease.

    The missing leases begin where the application began, and only a finished lease may show when
    that was. (A KCL deletes the lease, and begins anew.)
    """
    return find_hole(leases) is not None


def _is_passed_on(lease: Lease, leased: dict[str, Lease], lineage: Lineage) -> bool:
    children = _children(lease, lineage)
    return (
        bool(children)
        and all(child in leased and _has_begun(leased[child]) for child in children)
        and not any(parent in leased for parent in lease.parent_ids)
    )


def _is_expired(lease: Lease, leased: dict[str, Lease], lineage: Lineage) -> bool:
    # An answer without any shard is an error, and does not mean that all shards have expired.
    return (
        bool(lineage.shards)
        and lease.shard_id not in lineage.shards
        and not _comes_from_listed(lease, leased, lineage)
        and all(
            child in leased or child not in lineage.shards for child in _children(lease, lineage)
        )
    )


def _comes_from_listed(lease: Lease, leased: dict[str, Lease], lineage: Lineage) -> bool:
    """Return True if an ancestor is listed: older shards expire first, so the listing is stale.

    One page of a listing may be stale, and the next page, with younger shards, may not.
    """
    todo, seen = list(lease.parent_ids), {lease.shard_id}
    while todo:
        shard_id = todo.pop()
        if shard_id in lineage.shards:
            return True
        if shard_id in leased and shard_id not in seen:
            seen.add(shard_id)
            todo += leased[shard_id].parent_ids
    return False


def _children(lease: Lease, lineage: Lineage) -> set[str]:
    return {*lease.child_ids, *lineage.children(lease.shard_id)}


def _has_begun(lease: Lease) -> bool:
    return lease.checkpoint.sequence_number not in {TRIM_HORIZON, AT_TIMESTAMP}
