"""Decides which part of each shard a batch read reads. Pure, over the shards and the options.

Shards of all generations are read in parallel. A position means that all records up to it are done:
a read begins after its start and ends with its end, so the end of one read is the start of the
next.

The position of a shard that a map does not list follows from the listed shards, as in an offset of
a streaming query. An ancestor of a listed shard is done (in a start) or is read whole (in an end);
a descendant is read whole (in a start) or not at all (in an end). A shard without a listed relative
is read from its oldest record, or up to the present.

Spark's pushed filters become the streams, shards and times to read. Arrival times may be out of
order within a shard. A lower bound is exact nevertheless: no record before the first one that
arrived at an instant arrived later than it. After an upper bound, records may follow that arrived
before it, so the bound is moved up by `OUT_OF_ORDER_MS`. Spark therefore still applies filters on
time to the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, TypeAlias

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

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

OUT_OF_ORDER_MS = 60_000
"""The assumed disorder of arrival times within a shard, at most."""


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """The filters of a query that reduce the records to read; None: no filter."""

    streams: frozenset[str] | None = None
    shards: frozenset[str] | None = None
    start_ms: int | None = None
    """Read only records that arrived at this epoch millisecond or later."""
    before_ms: int | None = None
    """Read only up to the first record that arrived at this epoch millisecond or later."""

    def has_stream(self, stream: str) -> bool:
        return self.streams is None or stream in self.streams

    def has_shard(self, shard_id: str) -> bool:
        return self.shards is None or shard_id in self.shards


def push_filter(filters: PushedFilters, pushed: Filter) -> tuple[PushedFilters, bool]:
    """Add one filter; the flag is True if Spark need not apply the filter to the rows."""
    column: tuple[str, ...] = getattr(pushed, "attribute", ())
    if column == ("approximateArrivalTimestamp",):
        return _push_time_filter(filters, pushed), False
    if column not in {("shardId",), ("stream",)}:
        return filters, False
    if isinstance(pushed, IsNotNull):
        return filters, True
    values = _values(pushed)
    if values is None or not all(isinstance(value, str) for value in values):
        return filters, False
    if column == ("shardId",):
        return replace(filters, shards=_both(filters.shards, values)), True
    return replace(filters, streams=_both(filters.streams, values)), True


def _both(present: frozenset[str] | None, values: Sequence[Any]) -> frozenset[str]:
    return frozenset(values) if present is None else present.intersection(values)


def _values(pushed: Filter) -> Sequence[Any] | None:
    """Return the values that the column may have; None for another kind of filter."""
    if isinstance(pushed, EqualTo | EqualNullSafe):
        return (pushed.value,)
    return pushed.value if isinstance(pushed, In) else None


def _push_time_filter(filters: PushedFilters, pushed: Filter) -> PushedFilters:
    values = _values(pushed)
    if values is None:
        values = (getattr(pushed, "value", None),)
    # A time without a zone cannot be compared with an instant.
    if not values or not all(isinstance(v, datetime) and v.tzinfo is not None for v in values):
        return filters
    first, last = min(values), max(values)
    match pushed:
        case EqualTo() | EqualNullSafe() | In():
            return _before(_from(filters, _ceil_ms(first)), _floor_ms(last) + 1)
        case GreaterThanOrEqual():
            return _from(filters, _ceil_ms(first))
        case GreaterThan():
            return _from(filters, _floor_ms(first) + 1)
        case LessThan():
            return _before(filters, _ceil_ms(last))
        case LessThanOrEqual():
            return _before(filters, _floor_ms(last) + 1)
    return filters


def _from(filters: PushedFilters, ms: int) -> PushedFilters:
    return replace(filters, start_ms=max(0, ms, filters.start_ms or 0))


def _before(filters: PushedFilters, ms: int) -> PushedFilters:
    margin = max(0, ms + OUT_OF_ORDER_MS)
    present = filters.before_ms
    return replace(filters, before_ms=margin if present is None else min(margin, present))


def _floor_ms(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def _ceil_ms(instant: datetime) -> int:
    floor = _floor_ms(instant)
    return floor + (instant.microsecond % 1000 > 0)


Start: TypeAlias = AfterRecord | AtTimestamp | Literal[Sentinel.TRIM_HORIZON]
End: TypeAlias = AfterRecord | Literal[Sentinel.SHARD_END, Sentinel.LATEST]


@dataclass(frozen=True, slots=True)
class ShardRead:
    """The part of one shard to read: the records after ``start`` up to ``end``."""

    shard_id: str
    start: Start
    end: End
    """LATEST: the last record at present, which the planner has yet to find."""
    before_ms: int | None = None
    """The read stops at the first record that arrived at this epoch millisecond or later."""
    is_initial: bool = False
    """True if the read starts at the oldest record kept, so the start cannot have expired."""

    def range(self, end: AfterRecord | Literal[Sentinel.SHARD_END]) -> ShardRange:
        """Return the range that ends at ``end``."""
        return ShardRange(self.shard_id, self.start, end, self.is_initial)


@dataclass
class BatchPartition(InputPartition):
    """One task of a batch read: a range of one shard."""

    stream: str
    shard_range: ShardRange
    before_ms: int | None = None
    """The read stops at the first record that arrived at this epoch millisecond or later."""


def unlisted(boundary: Positions, lineage: Lineage) -> tuple[str, ...]:
    """Return the shards of ``boundary`` that the service does not list, or no longer lists."""
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
    """Return the reads of a stream's shards, sorted by shard, without those known to be empty.

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
    """Return a position for every shard that the service lists."""
    listed = set(boundary) - {ANY_SHARD}
    ancestors = lineage.ancestors(listed)
    # LATEST is the present of a shard and of its descendants.
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
    """Return the later of ``start`` and an instant; a sequence number stays as it is."""
    if start_ms is None or isinstance(start, AfterRecord):
        return start
    return AtTimestamp(max(start_ms, start.ms) if isinstance(start, AtTimestamp) else start_ms)


def _end(end: Position, is_open: bool) -> End:
    if isinstance(end, AfterRecord):
        return end
    # A closed shard is read to its end. An open shard has no end yet.
    return LATEST if is_open else SHARD_END


def _earlier(end: Position, before_ms: int | None) -> int | None:
    if not isinstance(end, AtTimestamp):
        return before_ms
    return end.ms if before_ms is None else min(end.ms, before_ms)


def _is_empty(shard_read: ShardRead, now_ms: int) -> bool:
    """Return True if the start is known to lie after the end."""
    start, end = shard_read.start, shard_read.end
    if isinstance(start, AtTimestamp):
        return start.ms > now_ms or (
            shard_read.before_ms is not None and start.ms >= shard_read.before_ms
        )
    if isinstance(start, AfterRecord) and isinstance(end, AfterRecord):
        begins, ends = sequence_order(start.sequence_number), sequence_order(end.sequence_number)
        return ends < begins or (
            ends == begins and (end.is_before or start.sub_sequence_number is None)
        )
    return shard_read.before_ms == 0


def open_ended(
    planned: Iterable[ShardRead],
) -> dict[tuple[int | None, bool], list[ShardRead]]:
    """Return the reads without a known end, by ``before_ms`` and ``is_initial``."""
    groups: dict[tuple[int | None, bool], list[ShardRead]] = {}
    for shard_read in planned:
        if shard_read.end is LATEST:
            groups.setdefault((shard_read.before_ms, shard_read.is_initial), []).append(shard_read)
    return groups
