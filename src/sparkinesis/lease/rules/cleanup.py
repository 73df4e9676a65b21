"""The leases to delete: those of finished shards, once no worker needs them."""

from __future__ import annotations

from collections.abc import Iterable

from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, TRIM_HORIZON
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.audit import find_hole
from sparkinesis.stream.shard import Lineage, Shard


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

    The missing leases begin where the application began, and only a finished lease may tell when
    that was. A table without it looks like one of a new application: no loss is reported, and
    LATEST skips what nobody has read. (A KCL deletes the lease, and begins anew.)
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
