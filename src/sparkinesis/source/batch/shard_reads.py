"""What a batch read reads of each shard: a pure decision over the shards and the options.

Shards of all generations are read side by side. A position says what is done: a read begins behind
its start and ends with its end, so that the end of one read is the start of the next.

A shard that a map does not list follows from those that it lists, as in an offset of a streaming
query: what a listed shard came from is done (before a start), or read whole (before an end); what
came from a listed shard is read whole (behind a start), or not at all (behind an end). A shard that
is related to none is read from the oldest record, or up to the present.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sparkinesis.source.batch.filters import PushedFilters
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    Sentinel,
    ShardRange,
    sequence_order,
)
from sparkinesis.stream.shard import Lineage

Start: TypeAlias = AfterRecord | AtTimestamp | Literal[Sentinel.TRIM_HORIZON]
End: TypeAlias = AfterRecord | Literal[Sentinel.SHARD_END, Sentinel.LATEST]


@dataclass(frozen=True, slots=True)
class ShardRead:
    """What is to be read of one shard: of the records behind ``start`` those up to the end."""

    shard_id: str
    start: Start
    end: End
    """LATEST: a record that is there now; which one has yet to be found out."""
    before_ms: int | None = None
    """And none from the first record on that arrived at this epoch millisecond or later."""
    is_initial: bool = False
    """The start is as far back as records are kept: it cannot have expired."""

    def range(self, end: AfterRecord | Literal[Sentinel.SHARD_END]) -> ShardRange:
        """The range that is read when this turns out to be its end."""
        return ShardRange(self.shard_id, self.start, end, self.is_initial)


def unlisted(boundary: Positions, lineage: Lineage) -> tuple[str, ...]:
    """Shards that a map stands in, and that the service does not list (any more)."""
    return tuple(
        sorted(
            shard
            for shard, position in boundary.items()
            if shard not in lineage.shards and shard != ANY_SHARD and position is not SHARD_END
        )
    )


def plan_shard_reads(
    lineage: Lineage, start: Positions, end: Positions, filters: PushedFilters, now_ms: int
) -> list[ShardRead]:
    """What is to be read of a stream, sorted by shard; nothing where the end is not behind.

    ``now_ms``: no record has arrived after this epoch millisecond.
    """
    starts = _complete(start, lineage, before=SHARD_END, behind=TRIM_HORIZON, other=TRIM_HORIZON)
    ends = _complete(end, lineage, before=SHARD_END, behind=TRIM_HORIZON, other=LATEST)
    found: list[ShardRead] = []
    for shard_id in sorted(lineage.shards):
        since, until = starts[shard_id], ends[shard_id]
        if since is LATEST or since is SHARD_END or until is TRIM_HORIZON:
            continue
        assert not isinstance(since, FromApplication), "no batch read begins there"
        shard_read = ShardRead(
            shard_id,
            _later(since, filters.start_ms),
            _end(until, lineage.shards[shard_id].is_open),
            _earlier(until, filters.before_ms),
            is_initial=shard_id not in start or since is TRIM_HORIZON,
        )
        if filters.has_shard(shard_id) and not _is_empty(shard_read, now_ms):
            found.append(shard_read)
    return found


def _complete(
    boundary: Positions, lineage: Lineage, *, before: Position, behind: Position, other: Position
) -> dict[str, Position]:
    """A position for every listed shard."""
    listed = set(boundary) - {ANY_SHARD}
    ancestors = lineage.ancestors(listed)
    # LATEST is the present of a shard and of what came from it.
    descendants = lineage.descendants(s for s in listed if boundary[s] is not LATEST)

    def position(shard: str) -> Position:
        if shard in boundary:
            return boundary[shard]
        if ANY_SHARD in boundary:
            return boundary[ANY_SHARD]
        if shard in ancestors:
            return before
        return behind if shard in descendants else other

    return {shard: position(shard) for shard in lineage.shards}


def _later(start: Start, start_ms: int | None) -> Start:
    """The start, moved up to an instant; a sequence number cannot be compared with one."""
    if start_ms is None or isinstance(start, AfterRecord):
        return start
    return AtTimestamp(max(start_ms, start.ms) if isinstance(start, AtTimestamp) else start_ms)


def _end(end: Position, is_open: bool) -> End:
    if isinstance(end, AfterRecord):
        return end
    # A closed shard can be read to its end. An open one has none yet.
    return LATEST if is_open else SHARD_END


def _earlier(end: Position, before_ms: int | None) -> int | None:
    if not isinstance(end, AtTimestamp):
        return before_ms
    return end.ms if before_ms is None else min(end.ms, before_ms)


def _is_empty(shard_read: ShardRead, now_ms: int) -> bool:
    """Whether the start is known to lie behind the end."""
    start, end = shard_read.start, shard_read.end
    if isinstance(start, AtTimestamp):
        return start.ms > now_ms or (
            shard_read.before_ms is not None and start.ms >= shard_read.before_ms
        )
    if isinstance(start, AfterRecord) and isinstance(end, AfterRecord):
        return sequence_order(end.sequence_number) <= sequence_order(start.sequence_number)
    return shard_read.before_ms == 0


def open_ended(
    planned: Iterable[ShardRead],
) -> dict[tuple[int | None, bool], list[ShardRead]]:
    """The reads whose end has yet to be found out, by ``before_ms`` and ``is_initial``."""
    groups: dict[tuple[int | None, bool], list[ShardRead]] = {}
    for shard_read in planned:
        if shard_read.end is LATEST:
            groups.setdefault((shard_read.before_ms, shard_read.is_initial), []).append(shard_read)
    return groups
