"""The leases of child shards that begin before their parents have ended. Pure.

For applications that need no order between a parent and its children (``parents_first=False``);
all others create the leases of children when their parents end (`plan_children`).
"""

from __future__ import annotations

from collections.abc import Iterable

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import LeaseStart
from sparkinesis.lease.rules.shard_sync import by_birth
from sparkinesis.stream.shard import Lineage, Shard


def early_children(
    leases: Iterable[Lease], shards: Iterable[Shard], begin: LeaseStart
) -> list[Lease]:
    """Return a lease for each child of a shard that is still read, in order of creation.

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
