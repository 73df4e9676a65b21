"""Where the next batch ends: a pure decision over the last offset and what was found since.

No I/O: `sparkinesis.source.planning.stream_planner` has the shards looked at; this module says
which, and puts the offset together. A shard's children enter a batch only when every parent is
finished and has no row in that same batch: a parent's rows are always in an earlier batch than its
children's. Until then an offset holds the place of the parent's last record, with a time since
which nothing may be gone: the end of a shard has no time, nor has the beginning of a child.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from sparkinesis.source.offsets import ANY_SHARD, Positions, start_of
from sparkinesis.stream.position import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    advanced,
    between_batches,
)
from sparkinesis.stream.shard import Lineage

FRESH_FOR_MS = 6 * 3_600_000
"""A quarter of the shortest retention period that a stream can have."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """The shard is open and no record follows; none had arrived before ``clear_until`` (ms)."""

    clear_until: int | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """Records follow; a batch may read up to ``end``, the sequence number of one of them.

    ``clear_until`` (ms): no record behind ``end`` had arrived before, be it in the shard or, when
    ``end`` is its last one, in its children.
    """

    end: str
    clear_until: int | None = None
    arrived_ms: int | None = None
    """When the record ``end`` arrived (epoch ms); None if the service does not tell."""
    first: str | None = None
    """The sequence number of the first of these records."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The shard is closed and no record follows."""


Finding: TypeAlias = Quiet | Records | Finished
"""What a look at a shard found behind a position."""


def merged(finding: Finding, more: Finding) -> Finding:
    """What two looks one after the other found, the second behind the end of the first."""
    if not isinstance(more, Records):
        return finding
    return replace(more, first=finding.first) if isinstance(finding, Records) else more


@dataclass(frozen=True, slots=True)
class Plan:
    """The offset so far, the shards that must be looked at before it is complete, and more."""

    end: Positions
    to_probe: Mapping[str, Position]
    """Where to look: shards without a finding, with the position to look behind."""
    has_rows: bool
    childless: tuple[str, ...]
    """Finished shards whose children are not all known yet."""


def plan(start: Positions, lineage: Lineage, findings: Mapping[str, Finding]) -> Plan:
    """Put together the end of the batch that begins at ``start``.

    ``findings`` holds what was found behind each shard's place in ``start`` (behind TRIM_HORIZON
    for a shard that ``start`` does not list). To be called again with more findings while
    ``to_probe`` is not empty.
    """
    end: dict[str, Position] = {}
    finished: set[str] = set()
    to_probe: dict[str, Position] = {}
    has_rows = False
    todo = deque(sorted(_listed(start, lineage)))
    past: set[str] = set()  # what is taken up, and what lies behind: what led there
    _add_with_ancestors(past, todo, lineage)
    while todo:
        shard_id = todo.popleft()
        position = start_of(start, shard_id)
        if position is SHARD_END:
            found: Finding | None = Finished()
        else:
            found = findings.get(shard_id)
        match found:
            case None:
                to_probe[shard_id] = position
                end[shard_id] = position
            case Quiet():
                end[shard_id] = advanced(between_batches(position), found.clear_until)
            case Records():
                has_rows = True
                # A start that names a record tells what is missing by itself.
                first = None if isinstance(position, AfterRecord) else found.first
                end[shard_id] = AfterRecord(
                    found.end, found.clear_until, arrived_ms=found.arrived_ms, first=first
                )
            case Finished():
                finished.add(shard_id)
                end[shard_id] = SHARD_END
                # A listed parent that is not finished is still to come: the other side of a
                # merge. One that the service does not list any more has nothing left to read.
                new = [
                    child
                    for child in _children(shard_id, lineage)
                    if child not in past
                    and all(parent in finished for parent in lineage.listed_parents(child))
                ]
                _add_with_ancestors(past, new, lineage)
                todo.extend(new)
    childless = tuple(sorted(s for s in finished if lineage.children_of_ended(s) is None))
    for shard_id in finished:
        children = _children(shard_id, lineage)
        if children and past.issuperset(children):
            del end[shard_id]
    return Plan(end, to_probe, has_rows, childless)


def is_worth_storing(start: Positions, end: Positions) -> bool:
    """Whether an offset without new rows moves far enough to be stored all the same.

    A stored position grows old while nothing happens, and once its record has been trimmed nobody
    could tell any more that nothing was lost. Where a query is to begin in any shard may lie before
    the oldest record kept, so that nobody could tell either: what the first look found is stored.
    """
    if set(start) == {ANY_SHARD}:
        return bool(end) and TRIM_HORIZON not in end.values()
    before, after = _known_until(start), _known_until(end)
    return before is not None and after is not None and after - before > FRESH_FOR_MS


def missing(start: Positions, lineage: Lineage) -> tuple[str, ...]:
    """Shards that ``start`` stands in and the service no longer lists: what they held is lost."""
    return tuple(
        sorted(
            shard
            for shard, position in start.items()
            if shard != ANY_SHARD and shard not in lineage.shards and position is not SHARD_END
        )
    )


def without_missing(start: Positions, lineage: Lineage) -> dict[str, Position]:
    """Go on after a loss: leave out the missing shards and take up the oldest ones kept.

    Taken up, from TRIM_HORIZON, are listed shards that neither are nor descend from nor led to a
    shard of ``start``.
    """
    gone = missing(start, lineage)
    kept = {shard: position for shard, position in start.items() if shard not in gone}
    related = set(kept) | lineage.ancestors(kept) | lineage.descendants(kept)
    fresh = set(lineage.shards) - related
    for shard in sorted(fresh):
        if not any(parent in fresh for parent in lineage.listed_parents(shard)):
            kept[shard] = TRIM_HORIZON
    return kept


def _known_until(positions: Positions) -> int | None:
    """The oldest instant (epoch ms) from which on a position leaves open what arrived.

    A record's position without an instant, such as a KCL application's, leaves open all of time.
    """
    instants = (
        position.ms if isinstance(position, AtTimestamp) else position.clear_until or 0
        for position in positions.values()
        if isinstance(position, AtTimestamp | AfterRecord)
    )
    return min(instants, default=None)


def _children(shard_id: str, lineage: Lineage) -> tuple[str, ...]:
    """All shards that came from a finished one; none while only some of them are known."""
    return lineage.children_of_ended(shard_id) or ()


def _listed(start: Positions, lineage: Lineage) -> set[str]:
    listed = set(start) - {ANY_SHARD}
    return listed or set(lineage.roots())


def _add_with_ancestors(past: set[str], shards: Iterable[str], lineage: Lineage) -> None:
    """Add shards to ``past``, which has the listed ancestors of each shard that it has."""
    todo = list(shards)
    while todo:
        shard_id = todo.pop()
        if shard_id not in past:
            past.add(shard_id)
            todo.extend(lineage.listed_parents(shard_id))
