"""Walks to the shards that a batch may read, and assembles the offset at which the batch ends.

Pure: `sparkinesis.source.planning.stream_plan` probes the shards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

from sparkinesis.source.offsets import ANY_SHARD, Positions, start_of
from sparkinesis.stream.position import (
    NONE_OF_IT,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    advanced,
    between_batches,
)
from sparkinesis.stream.shard import Lineage

# What must hold at the end of a batch
#
# - A parent's rows are in an earlier batch than those of its children, so a child enters only when
#   every parent is finished and has no row in the same batch.
# - A stored position has a time, so that a loss can be detected. SHARD_END has none, and neither
#   has the TRIM_HORIZON of a child. Until its children enter, a shard therefore keeps the position
#   of its last record. When the batch with a shard's last records ended at SHARD_END, a query that
#   stood still for longer than records are kept began the children at their oldest record, and did
#   not say that they had held more (90f04bdf).
# - The findings of the first probe are stored, though they have no rows. An initial position may
#   lie before the oldest record, which is no loss, so records that came later and were trimmed
#   while the query stood still were passed over without a word (d8a8c09d). Without any listed shard
#   nothing is stored: the initial position would be gone with it (37e21ce3).
# - Silence is stored after six hours (`FRESH_FOR_MS`), by the age of the positions and not by a
#   clock of the planner, so that restarts do not put it off (0a8adacb).
#
# The walk is linear in the shards, however many generations ended empty: shards that are past are
# kept with their ancestors, each added once. When each child asked whether one of its descendants
# was reached, a plan through a chain of 6,000 empty shards took four seconds (b92e95a0).

FRESH_FOR_MS = 6 * 3_600_000
"""A quarter of the shortest retention period that a stream can have."""


@dataclass(frozen=True, slots=True)
class NoRows:
    """The batch has no record of this shard, open or closed, which is not finished.

    Records may follow that arrived after the batch's instant. ``clear_until`` (epoch ms): none had
    arrived before this instant.
    """

    clear_until: int | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """Records follow; a batch may read up to ``end``, the sequence number of one of them.

    ``is_before``: the batch ends before that record, and reads nothing of it.
    ``clear_until`` (epoch ms): no record after ``end`` had arrived before this instant, neither in
    the shard nor, if ``end`` is the shard's last record, in its children.
    """

    end: str
    clear_until: int | None = None
    arrived_ms: int | None = None
    """The arrival time of the record ``end`` (epoch ms); None if the service gives none."""
    first: str | None = None
    """The sequence number of the first of these records."""
    is_before: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """The shard is closed and no record follows."""


Finding: TypeAlias = NoRows | Records | Finished
"""The result of probing a shard after a position."""


@dataclass(frozen=True, slots=True)
class AssembledEnd:
    """The offset that ends a batch."""

    end: Positions
    has_rows: bool
    childless: tuple[str, ...]
    """Finished shards whose children are not all known yet."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The shards that a batch may read, from its start on through shards that are finished."""

    reached: tuple[str, ...]
    """In the order in which they are taken up: parents before their children."""
    past: set[str]
    """The reached shards, and their listed ancestors."""
    finished: AbstractSet[str]
    """The reached shards that are closed and have no record left."""
    childless: tuple[str, ...]
    """Finished shards whose children are not all known yet."""


def walk(start: Positions, lineage: Lineage, finished: Container[str]) -> Walk:
    """Follow the shards of ``start`` through those that are ``finished``.

    A shard at SHARD_END is finished as well.
    """
    todo = deque(sorted(_listed(start, lineage)))
    past: set[str] = set()
    _add_with_ancestors(past, todo, lineage)
    reached: list[str] = []
    ended: set[str] = set()
    while todo:
        shard_id = todo.popleft()
        reached.append(shard_id)
        if start_of(start, shard_id) is SHARD_END or shard_id in finished:
            ended.add(shard_id)
            # The child of a merge waits for its other parent, while that parent is listed. A
            # parent that the service no longer lists has nothing left to read.
            new = [
                child
                for child in _children(shard_id, lineage)
                if child not in past
                and all(parent in ended for parent in lineage.listed_parents(child))
            ]
            _add_with_ancestors(past, new, lineage)
            todo.extend(new)
    childless = tuple(sorted(s for s in ended if lineage.children_of_ended(s) is None))
    return Walk(tuple(reached), past, ended, childless)


def assemble(
    start: Positions, lineage: Lineage, walked: Walk, findings: Mapping[str, Finding]
) -> AssembledEnd:
    """Assemble the end of the batch that begins at ``start``.

    ``findings`` holds the finding after each shard's position in ``start`` (after TRIM_HORIZON
    for a shard that ``start`` does not list), but for finished shards.
    """
    end: dict[str, Position] = {}
    has_rows = False
    for shard_id in walked.reached:
        if shard_id in walked.finished:
            end[shard_id] = SHARD_END
            continue
        position = start_of(start, shard_id)
        found = findings[shard_id]
        if isinstance(found, Records):
            has_rows = True
            end[shard_id] = AfterRecord(
                found.end,
                found.clear_until,
                NONE_OF_IT if found.is_before else None,
                found.arrived_ms,
                # A start at a record detects losses without the first record of the batch.
                None if isinstance(position, AfterRecord) else found.first,
            )
        else:
            assert isinstance(found, NoRows), "the walk goes on through finished shards"
            end[shard_id] = advanced(between_batches(position), found.clear_until)
    for shard_id in walked.finished:
        children = _children(shard_id, lineage)
        if children and walked.past.issuperset(children):
            del end[shard_id]
    return AssembledEnd(end, has_rows, walked.childless)


def is_worth_storing(start: Positions, end: Positions) -> bool:
    """Return True if an offset without new rows is to be stored nevertheless.

    A stored position grows old on a silent stream; once its record has been trimmed, a loss could
    not be excluded. So the offset is stored again after `FRESH_FOR_MS`. An initial offset may lie
    before the oldest record kept, which has the same effect, so the first findings are stored.
    """
    if set(start) == {ANY_SHARD}:
        return bool(end) and TRIM_HORIZON not in end.values()
    return not is_fresh(known_until(start), known_until(end))


def is_fresh(before: int | None, after: int | None) -> bool:
    """Return True if a stored offset that is complete up to ``before`` needs no renewal.

    after: the instant up to which the positions would be complete if they were stored now, or any
    later one. Both in epoch ms, None without such an instant.
    """
    return before is None or after is None or after - before <= FRESH_FOR_MS


def missing(start: Positions, lineage: Lineage) -> tuple[str, ...]:
    """Return the shards of ``start`` that the service no longer lists: their records are lost."""
    return tuple(
        sorted(
            shard
            for shard, position in start.items()
            if shard != ANY_SHARD and shard not in lineage.shards and position is not SHARD_END
        )
    )


def without_missing(start: Positions, lineage: Lineage) -> dict[str, Position]:
    """Return ``start`` without the missing shards, and with the oldest unrelated shards.

    Listed shards that are neither ancestors nor descendants of a shard of ``start`` are added at
    TRIM_HORIZON, except those whose parents are added.
    """
    gone = missing(start, lineage)
    kept = {shard: position for shard, position in start.items() if shard not in gone}
    related = set(kept) | lineage.ancestors(kept) | lineage.descendants(kept)
    fresh = set(lineage.shards) - related
    for shard in sorted(fresh):
        if not any(parent in fresh for parent in lineage.listed_parents(shard)):
            kept[shard] = TRIM_HORIZON
    return kept


def known_until(positions: Positions) -> int | None:
    """Return the oldest instant (epoch ms) up to which every position is known to be complete.

    A record's position without an instant, such as a KCL application's, counts as 0.
    """
    instants = (
        position.ms if isinstance(position, AtTimestamp) else position.clear_until or 0
        for position in positions.values()
        if isinstance(position, AtTimestamp | AfterRecord)
    )
    return min(instants, default=None)


def _children(shard_id: str, lineage: Lineage) -> tuple[str, ...]:
    """Return all children of a finished shard; none while only some of them are known."""
    return lineage.children_of_ended(shard_id) or ()


def _listed(start: Positions, lineage: Lineage) -> set[str]:
    listed = set(start) - {ANY_SHARD}
    return listed or set(lineage.roots())


def _add_with_ancestors(past: set[str], shards: Iterable[str], lineage: Lineage) -> None:
    """Add shards and their listed ancestors to ``past``."""
    todo = list(shards)
    while todo:
        shard_id = todo.pop()
        if shard_id not in past:
            past.add(shard_id)
            todo.extend(lineage.listed_parents(shard_id))
