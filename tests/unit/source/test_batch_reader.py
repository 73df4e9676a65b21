"""Filters make a read smaller, and never by a row that they let through."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
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
    Not,
    StringStartsWith,
)

from sparkinesis.source.batch_reader import OUT_OF_ORDER_MS, push_filter
from sparkinesis.source.options.checked_options import PushedFilters

ARRIVAL = ("approximateArrivalTimestamp",)
SHARD = ("shardId",)


def when(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=microseconds)


def test_shards_and_streams_are_handled_in_full() -> None:
    filters, is_done = push_filter(PushedFilters(), In(SHARD, ("a", "b")))
    assert is_done
    assert filters == PushedFilters(shards=frozenset("ab"))
    filters, is_done = push_filter(filters, EqualTo(SHARD, "b"))
    assert is_done
    assert [filters.has_shard(shard) for shard in "abc"] == [False, True, False]
    filters, is_done = push_filter(filters, EqualNullSafe(("stream",), "s"))
    assert is_done
    assert [filters.has_stream(stream) for stream in "st"] == [True, False]
    assert push_filter(filters, EqualTo(SHARD, "c"))[0].shards == frozenset()
    assert push_filter(filters, IsNotNull(SHARD)) == (filters, True)


@pytest.mark.parametrize(
    "pushed",
    [
        EqualTo(SHARD, None),
        EqualNullSafe(SHARD, None),
        In(SHARD, ("a", None)),
        EqualTo((*SHARD, "x"), "a"),
        Not(EqualTo(SHARD, "a")),
        StringStartsWith(SHARD, "a"),
        EqualTo(("partitionKey",), "a"),
        EqualTo(("data",), b"a"),
        EqualTo(ARRIVAL, None),
        IsNotNull(ARRIVAL),
        In(ARRIVAL, ()),
        GreaterThan(ARRIVAL, datetime(2026, 1, 1)),
        Not(LessThan(ARRIVAL, when(0))),
    ],
)
def test_any_other_filter_is_left_to_spark(pushed: Filter) -> None:
    assert push_filter(PushedFilters(), pushed) == (PushedFilters(), False)


KINDS: dict[type[Any], Callable[[datetime, datetime], bool]] = {
    GreaterThan: lambda arrival, value: arrival > value,
    GreaterThanOrEqual: lambda arrival, value: arrival >= value,
    LessThan: lambda arrival, value: arrival < value,
    LessThanOrEqual: lambda arrival, value: arrival <= value,
    EqualTo: lambda arrival, value: arrival == value,
}


@given(
    st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, OUT_OF_ORDER_MS)), max_size=12),
    st.lists(
        st.tuples(st.sampled_from(list(KINDS)), st.integers(-2_000_000, 300_000_000)), max_size=3
    ),
)
@example([(1, 0)], [(GreaterThanOrEqual, 999)])
@example([(1, 0)], [(GreaterThanOrEqual, 1001)])
@example([(OUT_OF_ORDER_MS, 0), (0, OUT_OF_ORDER_MS)], [(LessThanOrEqual, 0)])
def test_no_row_that_the_filters_let_through_is_left_out(
    records: list[tuple[int, int]], bounds: list[tuple[type[Any], int]]
) -> None:
    # In the shard's order: out of order by as much as is allowed for.
    arrivals = [ms for ms, late in sorted(records, key=sum)]
    filters = PushedFilters()
    for kind, value in bounds:
        filters, is_done = push_filter(filters, kind(ARRIVAL, when(value)))
        assert not is_done
    passing = {
        ms
        for ms in arrivals
        if all(KINDS[kind](when(ms * 1000), when(value)) for kind, value in bounds)
    }
    start, before = filters.start_ms or 0, filters.before_ms
    first = next((at for at, ms in enumerate(arrivals) if ms >= start), len(arrivals))
    rest = arrivals[first:]
    if before is not None:
        rest = rest[: next((at for at, ms in enumerate(rest) if ms >= before), len(rest))]
    assert passing <= set(rest)


def test_bounds_are_as_narrow_as_milliseconds_allow() -> None:
    filters, _ = push_filter(PushedFilters(), GreaterThan(ARRIVAL, when(5_000)))
    assert filters.start_ms == 6
    assert push_filter(filters, GreaterThanOrEqual(ARRIVAL, when(7_001)))[0].start_ms == 8
    assert push_filter(filters, GreaterThanOrEqual(ARRIVAL, when(1)))[0].start_ms == 6
    filters, _ = push_filter(filters, LessThan(ARRIVAL, when(9_000)))
    assert filters.before_ms == 9 + OUT_OF_ORDER_MS
    assert (
        push_filter(filters, LessThanOrEqual(ARRIVAL, when(8_000)))[0].before_ms
        == 9 + OUT_OF_ORDER_MS
    )
    several, _ = push_filter(PushedFilters(), In(ARRIVAL, (when(3_000), when(2_000))))
    assert several == PushedFilters(start_ms=2, before_ms=4 + OUT_OF_ORDER_MS)
