"""Translates Spark's pushed filters into the streams, shards and times that a batch read needs.

Arrival times may be out of order within a shard. A lower bound is exact nevertheless: no record
before the first one that arrived at an instant arrived later than it. After an upper bound, records
may follow that arrived before it, so the bound is moved up by `OUT_OF_ORDER_MS`. Spark therefore
still applies filters on time to the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

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
