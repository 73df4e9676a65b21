"""Which leases to create: for a new application, for shards that have none, for a shard's children.

The rules are the KCL's (``HierarchicalShardSyncer``, ``ShutdownTask``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import TypeVar

from sparkinesis.errors import InconsistentShardsError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import LeaseStart
from sparkinesis.stream.position import LATEST, InitialPosition, sequence_order
from sparkinesis.stream.routing import MAX_HASH_KEY
from sparkinesis.stream.shard import Lineage, Shard


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """What the reader of a shard saw at its end."""

    seen_ms: int | None = None
    """When (epoch ms, by the service's clock)."""
    not_before_ms: int | None = None
    """The shards that follow have no record that arrived before this; None: not known."""


UNSEEN = ShardEnd()

_T = TypeVar("_T")

_TRIES = 5
"""Listings to ask for while a reshard makes them contradict themselves."""


@dataclass(frozen=True, slots=True)
class ChildLeases:
    """What to do about the children of a shard that has ended."""

    create: tuple[Lease, ...]
    """May exist by then: another parent's owner creates the same."""
    wait_for: tuple[str, ...] = ()
    """Shards whose leases are still to be created, before a child can get one. Ask again later."""


def by_birth(shards: Iterable[Shard]) -> list[Shard]:
    """Parents before children, the order to create leases in.

    A crash in between then leaves no child whose reader does not know of its parents.
    """
    return sorted(shards, key=lambda s: (sequence_order(s.starting_sequence_number), s.id))


def require_tiling(shards: Iterable[Shard]) -> None:
    """Raise InconsistentShardsError unless each hash key is exactly one of these shards'."""
    expected, previous = 0, "the first hash key"
    for shard in sorted(shards, key=lambda s: (s.hash_range or (0, 0), s.id)):
        if shard.hash_range is None:
            raise InconsistentShardsError(f"ListShards told no hash range of {shard.id}.")
        first, last = shard.hash_range
        if first != expected:
            how = "a hole" if first > expected else "an overlap"
            raise InconsistentShardsError(
                f"The listed shards do not tile the hash keys: between {previous} and {shard.id} "
                f"there is {how} (a shard should begin at {expected}; this one does at {first}). "
                "The stream may be resharding: ask again."
            )
        expected, previous = last + 1, shard.id
    if expected != MAX_HASH_KEY + 1:
        raise InconsistentShardsError(
            f"The listed shards do not tile the hash keys: none has those from {expected} on, "
            f"after {previous}. The stream may be resharding: ask again."
        )


def through_reshard(task: Callable[[], _T], wait: Callable[[float], object]) -> _T:
    """What ``task`` returns, which lists shards; it is run again, a second later, a few times.

    Raises the `InconsistentShardsError` of the last try.
    """
    for _ in range(_TRIES - 1):
        try:
            return task()
        except InconsistentShardsError:
            wait(1.0)
    return task()


def leases_for_empty_table(
    shards: Iterable[Shard], position: InitialPosition, timestamp_ms: int
) -> list[Lease]:
    """A lease for each shard that was open at ``position``, in order of creation.

    ``shards``: those that ListShards returns with that position as ShardFilter. ``timestamp_ms``:
    the service's clock before that call. Children of closed ones get theirs when these have ended:
    also those that are in ``shards``, as where the position is the instant of a reshard, of which
    ListShards tells both sides.

    Raises InconsistentShardsError: the shards do not tile the hash keys.
    """
    lineage = Lineage.of(shards)
    shards = [lineage.shards[shard_id] for shard_id in lineage.roots()]
    require_tiling(shards)
    is_latest = position is LATEST
    instant_ms = timestamp_ms if is_latest else None
    begin = LeaseStart(position, instant_ms, instant_ms, timestamp_ms, is_now=is_latest)
    return [begin.lease(shard) for shard in by_birth(shards)]


def leases_for_partial_table(
    shards: Iterable[Shard], leases: Iterable[Lease], begin: LeaseStart, initial: InitialPosition
) -> list[Lease]:
    """Leases that are missing beside those that exist, in order of creation.

    ``shards``: all that ListShards returns, but for those that ended before the instant of
    ``begin``, if it is one; listed before the leases were read. ``begin``: where shards begin that
    come from none with a lease. ``initial``: the application's initial position.

    An open shard that descends from a leased one gets none here: it comes when its parents end.

    Raises InconsistentShardsError: an open shard has children.
    """
    lineage, leased = Lineage.of(shards), {lease.shard_id for lease in leases}
    for shard in lineage.shards.values():
        if shard.is_open and (children := lineage.children(shard.id)):
            raise InconsistentShardsError(
                f"{shard.id} is listed as open, and {', '.join(children)} as what came from it. "
                "The stream may be resharding: ask again."
            )
    if initial is LATEST and not begin.is_now:
        missing = _unread_roots(lineage, leased)
    else:
        missing = _missing_by_kcl(lineage, leased, is_latest=begin.is_now)
    return [begin.lease(shard) for shard in by_birth(lineage.shards[s] for s in missing)]


def _missing_by_kcl(lineage: Lineage, leased: set[str], *, is_latest: bool) -> set[str]:
    """The shards that need a lease, by the KCL's rule.

    At most one generation of ancestors is created. A shard of which only one side has a lease is
    begun at its oldest ancestor at TRIM_HORIZON, so some may be read again.
    """
    orphans = [s for s in lineage.open_shards() if s not in leased]
    missing: set[str] = set()
    is_descendant: dict[str, bool] = dict.fromkeys(leased, True)
    begins: set[str] = set()  # Oldest ancestors that reading must begin with.
    for shard_id in _ancestors_first(lineage, orphans, leased):
        known = lineage.shards[shard_id].parents
        parents = [p for p in known if p in leased or p in lineage.shards]
        covered = {p for p in parents if is_descendant[p] or p in begins}
        is_descendant[shard_id] = bool(covered)
        if not covered and not is_latest:
            begins.add(shard_id)
        for parent in parents if covered else ():
            if parent not in leased and (parent in begins or parent not in covered):
                missing.add(parent)
    return missing | {s for s in orphans if not is_descendant[s]}


def _unread_roots(lineage: Lineage, leased: set[str]) -> set[str]:
    """The shards with which to begin, so that nothing is left out of what leads to open shards.

    A shard is unread if neither it nor an ancestor has a lease, nor anything that came from it: the
    leases of children are made when their parents have been read. Of these, the oldest.
    """
    orphans = [s for s in lineage.open_shards() if s not in leased]
    unread: set[str] = set()
    has_ancestor: dict[str, bool] = dict.fromkeys(leased, True)
    for shard_id in _ancestors_first(lineage, orphans, leased):
        parents = lineage.shards[shard_id].parents
        has_ancestor[shard_id] = any(has_ancestor.get(parent, False) for parent in parents)
        if not has_ancestor[shard_id] and not _is_passed(shard_id, leased, lineage):
            unread.add(shard_id)
    return {s for s in unread if unread.isdisjoint(lineage.shards[s].parents)}


def _is_passed(shard_id: str, leased: Collection[str], lineage: Lineage) -> bool:
    """Whether anything that came from a shard has a lease."""
    return any(descendant in leased for descendant in lineage.descendants([shard_id]))


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
    """The leases of a shard's children, once it has ended; before its SHARD_END checkpoint.

    ``children``: the ChildShards of the last GetRecords. ``leases`` and ``shards``: the whole table
    and all shards that did not end before the instant of ``begin``, the lease table read last.
    ``shards`` is of use for merges only. The children begin at TRIM_HORIZON, wherever the
    application began: all of them comes after its beginning. ``broken``: shards of which the table
    has a lease that cannot be read. ``not_before_ms``: see `LeaseStart.child`.

    A merged child waits while its other parent has no lease, but will get one: an ancestor of it
    has a lease. (The KCL draws lots here.) Where none will come, the leases of the other parent,
    and of what that came from, are made here, before the child's: all of them is unread. Either
    these shards came while nobody was there, or somebody has deleted a row. A listing from before
    the merge may not know the other parent, nor what that came from: it is asked again.

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
                f"{', '.join(child.parents) or 'not told'}."
            )
        if lineage.is_behind(child.id):
            late = {p for p in child.parents if p not in leased}
        else:
            late = {p for p in child.parents if is_to_come(p, leased, lineage)}
        wait_for |= late
        if not late and child.id not in leased:
            create += _unread_leases(child, leased, lineage, begin)
            create.append(begin.child(child, not_before_ms))
            leased.update(lease.shard_id for lease in create)
    return ChildLeases(tuple(create), tuple(sorted(wait_for)))


def _unread_leases(
    child: Shard, leased: Collection[str], lineage: Lineage, begin: LeaseStart
) -> list[Lease]:
    """Leases of listed shards that led to this one, and of which nothing has been read.

    None of them has a lease, nor does an ancestor, nor anything that came from them. The oldest of
    them begin at ``begin``, and the others with their first records. Each has a lease, so that none
    is begun before those that it came from are finished.
    """
    found: set[str] = set()
    for parent in child.parents:
        line = {parent, *lineage.ancestors([parent])} & lineage.shards.keys()
        if parent in line and parent not in leased:
            found |= {s for s in line if not _is_passed(s, leased, lineage)}
    found.difference_update(leased)
    return [
        begin.child(shard) if found.intersection(shard.parents) else begin.lease(shard)
        for shard in by_birth(lineage.shards[s] for s in found)
    ]


def orphaned_children(
    leases: Iterable[Lease], shards: Iterable[Shard], begin: LeaseStart
) -> list[Lease]:
    """Leases of children whose parents have all been read, but whose creation was forgotten.

    A KCL 1.x that dies after SHARD_END leaves such a table, and so does a hand that deletes a row.
    Nobody visits a finished shard again, and `leases_for_partial_table` leaves them to their
    parents. Leases of children are never cleaned up before those of all their parents, so what is
    created here was not there before. ``shards`` and ``begin`` as in `plan_children`.
    """
    leased = {lease.shard_id: lease for lease in leases}
    lineage = Lineage.of(shards)
    found = {
        child
        for lease in leased.values()
        if lease.is_finished
        for child in lineage.children(lease.shard_id)
        if child not in leased
        and not any(is_to_come(p, leased, lineage) for p in lineage.shards[child].parents)
        and all(p not in leased or leased[p].is_finished for p in lineage.shards[child].parents)
    }
    created: dict[str, Lease] = {}
    for child in by_birth(lineage.shards[s] for s in found):
        for lease in _unread_leases(child, {*leased, *created}, lineage, begin):
            created.setdefault(lease.shard_id, lease)
        created[child.id] = begin.child(child)
    return [created[shard.id] for shard in by_birth(lineage.shards[s] for s in created)]


def expired_unread(
    missing: Iterable[Lease], leases: Iterable[Lease], shards: Iterable[Shard]
) -> list[tuple[str, tuple[str, ...]]]:
    """Of leases that were missing, the shards whose parents have expired without any lease.

    With each shard's id, those of the parents. ``leases``: those that there were.
    """
    missing = list(missing)
    there = {shard.id for shard in shards} | {lease.shard_id for lease in (*leases, *missing)}
    gone = [
        (lease.shard_id, tuple(p for p in lease.parent_ids if p not in there)) for lease in missing
    ]
    return [(shard_id, parents) for shard_id, parents in gone if parents]


def is_to_come(shard_id: str, leased: Collection[str], lineage: Lineage) -> bool:
    """Whether a shard without a lease will get one when an ancestor's end has been read.

    That is so while any ancestor has a lease: on the way from there to the shard is one without,
    whose parents have leases. They are either being read, or their children were forgotten, which
    `orphaned_children` mends. Only a hand deletes one on the way, which is as if it were forgotten.
    The ancestor itself may have expired: its lease stays until those of its children are there.
    """
    line = {shard_id, *lineage.ancestors([shard_id])} & lineage.shards.keys()
    return shard_id not in leased and any(
        parent in leased for one in line for parent in lineage.shards[one].parents
    )


def _ancestors_first(lineage: Lineage, shard_ids: Iterable[str], leased: set[str]) -> list[str]:
    """These shards and their ancestors without leases, none before its parents."""
    graph: dict[str, list[str]] = {}
    todo = list(shard_ids)
    while todo:
        shard_id = todo.pop()
        if shard_id not in graph:
            graph[shard_id] = [p for p in lineage.listed_parents(shard_id) if p not in leased]
            todo += graph[shard_id]
    return list(TopologicalSorter(graph).static_order())
