"""The leases of the children of ended shards, and of those whose parents are still read. Pure.

The rules are the KCL's (``ShutdownTask``), but for merges.
"""

# The leases of children are created before the SHARD_END checkpoint of their parent: no worker
# visits a finished shard again. A child that gets its lease twice is no harm, since a lease that
# exists is not created; one that gets none is never read.
#
# A merged child has two parents, which end at different times, on different workers. If the other
# parent has no lease, it will get one, or never will:
#
# - It will, if an ancestor has a lease (`is_to_come`). The child waits. The KCL draws lots here.
# - It never will, as after its row was deleted by hand. The child was begun at once then, and the
#   other parent never read. Now the leases of that parent and its ancestors are made with the
#   child's, and the child waits for them as for any parent.

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from sparkinesis.errors import InconsistentShardsError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import LeaseStart
from sparkinesis.lease.rules.shard_sync import by_birth, is_passed
from sparkinesis.stream.shard import Lineage, Shard


class ShardEnd(msgspec.Struct, frozen=True):
    """The times that the reader of a shard saw at its end."""

    seen_ms: int | None = None
    """The time at which the end was read (epoch ms, by the service's clock)."""
    not_before_ms: int | None = None
    """The time (epoch ms) before which no record of the children arrived; None: unknown."""


UNSEEN = ShardEnd()


class ChildLeases(msgspec.Struct, frozen=True):
    """The leases to create for the children of a finished shard."""

    create: tuple[Lease, ...]
    """The leases to create; some may exist by then, as another parent's owner creates them, too."""
    wait_for: tuple[str, ...] = ()
    """Shards that need leases before a child can get one: plan again later."""


def plan_children(
    parent: Lease,
    children: Iterable[Shard],
    leases: Iterable[Lease],
    shards: Iterable[Shard],
    begin: LeaseStart,
    *,
    broken: Iterable[str] = (),
    not_before_ms: int | None = None,
) -> ChildLeases:
    """Return the leases for the children of an ended shard, before its SHARD_END checkpoint.

    ``children``: the ChildShards of the last GetRecords. ``leases`` and ``shards``: the whole table
    and all shards that did not end before the instant of ``begin``, the lease table read last.
    ``shards`` matters for merges only. The children start at TRIM_HORIZON, wherever the
    application began: all their records are newer. ``broken``: shards whose leases cannot be read.
    ``not_before_ms``: see `LeaseStart.child`.

    A merged child waits while its other parent has no lease but will get one, because an ancestor
    has a lease. (The KCL draws lots here.) If no lease will come, the leases of the other parent
    and its ancestors are created here, before the child's: these shards are unread. Either they
    appeared while no worker ran, or a row was deleted by hand. A listing from before the merge may
    lack the other parent and its ancestors: the caller lists again.

    Raises InconsistentShardsError: a child does not name this parent.
    """
    leased = {parent.shard_id, *(lease.shard_id for lease in leases), *broken}
    lineage = Lineage.of(shards)
    create: list[Lease] = []
    wait_for: set[str] = set()
    for child in by_birth(children):
        if parent.shard_id not in child.parents:
            raise InconsistentShardsError(
                f"{parent.shard_id} has ended with {child.id} as a child, whose parents are "
                f"{', '.join(child.parents) or 'unknown'}. Try again later."
            )
        if lineage.is_behind(child.id):
            late = {p for p in child.parents if p not in leased}
        else:
            late = {p for p in child.parents if is_to_come(p, leased, lineage)}
        wait_for |= late
        if not late and child.id not in leased:
            create += _unread_leases(child, leased, lineage, begin)
            create.append(begin.child(child, not_before_ms))
    return ChildLeases(tuple(create), tuple(sorted(wait_for)))


def _unread_leases(
    child: Shard, leased: Collection[str], lineage: Lineage, begin: LeaseStart
) -> list[Lease]:
    """Return leases for the unread, listed ancestors of a shard.

    Neither they, nor their ancestors, nor their descendants have leases. The oldest start at
    ``begin``, and the others with their first records. Each gets a lease, so that none starts
    before its parents are finished.
    """
    found: set[str] = set()
    for parent in child.parents:
        if parent in lineage.shards and parent not in leased:
            line = {parent, *lineage.ancestors([parent])}
            found |= {s for s in line if not is_passed(s, leased, lineage)}
    return [
        begin.child(shard) if found.intersection(shard.parents) else begin.lease(shard)
        for shard in by_birth(lineage.shards[s] for s in found)
    ]


def orphaned_children(
    leases: Iterable[Lease], shards: Iterable[Shard], begin: LeaseStart
) -> list[Lease]:
    """Return leases for children whose parents are all finished, but that have no lease.

    They are missing if a KCL 1.x died after SHARD_END, or if a row was deleted by hand. No worker
    visits a finished shard again, and `leases_for_partial_table` leaves children to their
    parents. The leases of children are never deleted before those of all their parents, so these
    leases did not exist before. ``shards`` and ``begin`` as in `plan_children`.
    """
    leased = {lease.shard_id: lease for lease in leases}
    lineage = Lineage.of(shards)
    found = {
        child
        for shard_id in leased
        for child in lineage.children(shard_id)
        if child not in leased
        and all(p not in leased or leased[p].is_finished for p in lineage.shards[child].parents)
        and not any(is_to_come(p, leased, lineage) for p in lineage.shards[child].parents)
    }
    created: dict[str, Lease] = {}
    for child in by_birth(lineage.shards[s] for s in found):
        for lease in _unread_leases(child, {*leased, *created}, lineage, begin):
            created.setdefault(lease.shard_id, lease)
        created[child.id] = begin.child(child)
    return [created[shard.id] for shard in by_birth(lineage.shards[s] for s in created)]


def early_children(
    leases: Iterable[Lease], shards: Iterable[Shard], begin: LeaseStart
) -> list[Lease]:
    """Return a lease for each child of a shard that is still read, in order of creation.

    For applications that need no order between a parent and its children (``parents_first=False``);
    all others create the leases of children when their parents end (`plan_children`).

    ``shards``: listed before the leases were read. All parents have leases, or get one here, so
    that all generations begin at once. A merged shard of which one parent has no lease is left to
    the end of the other, which finds out if that parent is still to be read.

    A shard with a descendant that has a lease is left out: an operator moved the application past
    the shard. Cleanup deletes no lease of which a parent has one, so a missing lease is no trace of
    a finished shard.
    """
    leases = list(leases)
    leased = {lease.shard_id for lease in leases}
    passed = {lease.shard_id for lease in leases}
    unfinished = {lease.shard_id for lease in leases if not lease.is_finished}
    lineage = Lineage.of(shards)
    missing: list[Lease] = []
    for shard in by_birth(lineage.shards.values()):
        if shard.id in leased or not leased.issuperset(shard.parents):
            continue
        if unfinished.isdisjoint(shard.parents):
            continue  # its parents have created its lease when they ended, or will
        if passed.isdisjoint(lineage.descendants([shard.id])):
            missing.append(begin.child(shard))
            leased.add(shard.id)
            unfinished.add(shard.id)
    return missing


def is_to_come(shard_id: str, leased: Collection[str], lineage: Lineage) -> bool:
    """Return True if a shard without a lease will get one when an ancestor's end is read.

    That holds while any ancestor has a lease: between it and the shard lies a shard without a
    lease whose parents have leases. The parents are either being read, or finished without child
    leases, which `orphaned_children` repairs. A lease in between that was deleted by hand is
    repaired the same way. The ancestor may have expired: its lease stays until its children have
    leases.
    """
    line = {shard_id, *lineage.ancestors([shard_id])} & lineage.shards.keys()
    return shard_id not in leased and any(
        parent in leased for one in line for parent in lineage.shards[one].parents
    )
