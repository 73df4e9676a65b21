"""The leases to create: for a new application, and for shards without one.

The rules are the KCL's (``HierarchicalShardSyncer``), but for an application at LATEST.
"""

# A lease is made for a shard only if no other lease will lead to it. The children of a shard that
# is still to be read get none here: their parents' ends create them (`children`), and a child that
# began at once would be read before its parents' records.
#
# At LATEST, a missing lease does not begin now, but where the application began. All shards between
# the leases and the open ones may have expired in an outage: leases that began at the moment of the
# restart, or of the audit, skipped what had not been read. So each row keeps the application's
# first instant, and if no row has it, the shard begins with its oldest record (`lease_start`).
#
# A reshard makes listings contradict themselves for a moment: holes, overlaps, an open shard with
# children. These are errors here (`require_tiling`), tried again a second later and never guessed
# at (`through_reshard`): leases by a wrong listing would stay.

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from graphlib import TopologicalSorter
from typing import TypeVar

from sparkinesis.errors import InconsistentShardsError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import LeaseStart
from sparkinesis.stream.position import LATEST, InitialPosition, sequence_order
from sparkinesis.stream.shard import MAX_HASH_KEY, Lineage, Shard

_T = TypeVar("_T")

_TRIES = 5
"""Tries of a task while a reshard makes the listings of shards contradict themselves."""


def by_birth(shards: Iterable[Shard]) -> list[Shard]:
    """Return the shards with parents before children, the order in which to create leases.

    In this order, a crash in between leaves no child lease without the leases of its parents.
    """
    return sorted(shards, key=lambda s: (sequence_order(s.starting_sequence_number), s.id))


def require_tiling(shards: Iterable[Shard]) -> None:
    """Raise InconsistentShardsError unless each hash key belongs to exactly one shard."""
    ranges: list[tuple[int, int, str]] = []
    for shard in shards:
        if shard.hash_range is None:
            raise InconsistentShardsError(
                f"ListShards returned no hash range of {shard.id}. Try again later."
            )
        ranges.append((*shard.hash_range, shard.id))
    expected, previous = 0, "the first hash key"
    for first, last, shard_id in sorted(ranges):
        if first != expected:
            how = "a hole" if first > expected else "an overlap"
            raise InconsistentShardsError(
                f"The listed shards do not tile the hash keys: between {previous} and {shard_id} "
                f"there is {how} (a shard should begin at {expected}; this one begins at {first}). "
                "The stream may be resharding: try again later."
            )
        expected, previous = last + 1, shard_id
    if expected != MAX_HASH_KEY + 1:
        raise InconsistentShardsError(
            f"The listed shards do not tile the hash keys: no shard has the keys from {expected} "
            f"on, after {previous}. The stream may be resharding: try again later."
        )


def through_reshard(task: Callable[[], _T], wait: Callable[[float], object]) -> _T:
    """Return the result of ``task``, which lists shards; retry it a few times, a second apart.

    Raises the `InconsistentShardsError` of the last try.
    """
    for _ in range(_TRIES - 1):
        try:
            return task()
        except InconsistentShardsError:
            wait(1.0)
    return task()


def leases_for_empty_table(
    shards: Iterable[Shard],
    position: InitialPosition,
    timestamp_ms: int,
    began_ms: int | None = None,
) -> list[Lease]:
    """Return a lease for each shard that was open at ``position``, in order of creation.

    ``shards``: those that ListShards returns with that position as ShardFilter. ``timestamp_ms``:
    the service's clock before that call. ``began_ms``: the instant (epoch ms) that LATEST means, if
    ``position`` stands for that; None: at LATEST, ``timestamp_ms``.

    Children of closed shards get leases when their parents have ended, even if they are in
    ``shards``: at the instant of a reshard, ListShards returns both generations.

    Raises InconsistentShardsError: the shards do not tile the hash keys.
    """
    lineage = Lineage.of(shards)
    shards = [lineage.shards[shard_id] for shard_id in lineage.roots()]
    require_tiling(shards)
    instant_ms = timestamp_ms if position is LATEST else None
    began_ms = instant_ms if began_ms is None else began_ms
    begin = LeaseStart(position, instant_ms, began_ms, timestamp_ms)
    return [begin.lease(shard) for shard in by_birth(shards)]


def leases_for_partial_table(
    shards: Iterable[Shard], leases: Iterable[Lease], begin: LeaseStart, initial: InitialPosition
) -> list[Lease]:
    """Return the missing leases of an application that has some, in order of creation.

    ``shards``: all that ListShards returns, except for shards that ended before the instant of
    ``begin``, if any; listed before the leases were read. ``begin``: the start of shards that have
    no ancestor with a lease. ``initial``: the application's initial position.

    An open shard that descends from a leased one gets no lease here, but when its parents end.

    Raises InconsistentShardsError: an open shard has children.
    """
    lineage, leased = Lineage.of(shards), {lease.shard_id for lease in leases}
    for shard in lineage.shards.values():
        if shard.is_open and (children := lineage.children(shard.id)):
            raise InconsistentShardsError(
                f"{shard.id} is listed as open, and {', '.join(children)} as its children. The "
                "stream may be resharding: try again later."
            )
    if initial is LATEST and not begin.is_now:
        missing = _unread_roots(lineage, leased)
    else:
        missing = _missing_by_kcl(lineage, leased, is_latest=begin.is_now)
    return [begin.lease(shard) for shard in by_birth(lineage.shards[s] for s in missing)]


def _missing_by_kcl(lineage: Lineage, leased: set[str], *, is_latest: bool) -> set[str]:
    """Return the shards that need a lease, by the KCL's rule.

    At most one generation of ancestors is created. A shard with a lease on one side only starts at
    its oldest ancestor at TRIM_HORIZON, so some records may be read again.
    """
    orphans = [s for s in lineage.open_shards() if s not in leased]
    missing: set[str] = set()
    is_descendant: dict[str, bool] = dict.fromkeys(leased, True)
    begins: set[str] = set()  # The oldest ancestors, at which reading must begin.
    for shard_id in _ancestors_first(lineage, orphans, leased):
        named = lineage.shards[shard_id].parents
        parents = [p for p in named if p in leased or p in lineage.shards]
        covered = {p for p in parents if is_descendant[p] or p in begins}
        is_descendant[shard_id] = bool(covered)
        if not covered and not is_latest:
            begins.add(shard_id)
        for parent in parents if covered else ():
            if parent in begins or parent not in covered:
                missing.add(parent)
    return missing | {s for s in orphans if not is_descendant[s]}


def _unread_roots(lineage: Lineage, leased: set[str]) -> set[str]:
    """Return the oldest unread shards that lead to open shards, so that no record is skipped.

    A shard is unread if neither it, nor an ancestor, nor a descendant has a lease: the leases of
    children are created when their parents have been read.
    """
    orphans = [s for s in lineage.open_shards() if s not in leased]
    unread: set[str] = set()
    has_ancestor: dict[str, bool] = dict.fromkeys(leased, True)
    for shard_id in _ancestors_first(lineage, orphans, leased):
        parents = lineage.shards[shard_id].parents
        has_ancestor[shard_id] = any(has_ancestor.get(parent, False) for parent in parents)
        if not has_ancestor[shard_id] and not is_passed(shard_id, leased, lineage):
            unread.add(shard_id)
    return {s for s in unread if unread.isdisjoint(lineage.shards[s].parents)}


def is_passed(shard_id: str, leased: Collection[str], lineage: Lineage) -> bool:
    """Return True if a descendant of the shard has a lease."""
    return any(descendant in leased for descendant in lineage.descendants([shard_id]))


def expired_unread(
    missing: Iterable[Lease], leases: Iterable[Lease], shards: Iterable[Shard]
) -> list[tuple[str, tuple[str, ...]]]:
    """Return the shards of missing leases whose parents have expired without any lease.

    Each shard's id comes with those of its parents. ``leases``: the existing leases.
    """
    missing = list(missing)
    there = {shard.id for shard in shards} | {lease.shard_id for lease in (*leases, *missing)}
    expired = [
        (lease.shard_id, tuple(p for p in lease.parent_ids if p not in there)) for lease in missing
    ]
    return [(shard_id, parents) for shard_id, parents in expired if parents]


def _ancestors_first(lineage: Lineage, shard_ids: Iterable[str], leased: set[str]) -> list[str]:
    """Return these shards and their ancestors without leases, parents first."""
    graph: dict[str, list[str]] = {}
    todo = list(shard_ids)
    while todo:
        shard_id = todo.pop()
        if shard_id not in graph:
            graph[shard_id] = [p for p in lineage.listed_parents(shard_id) if p not in leased]
            todo += graph[shard_id]
    return list(TopologicalSorter(graph).static_order())
