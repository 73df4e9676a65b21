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

from sparkinesis.source.batch.shard_reads import (
    OUT_OF_ORDER_MS,
    PushedFilters,
    ShardRead,
    open_ended,
    plan_shard_reads,
    push_filter,
    unlisted,
)
from sparkinesis.source.offsets import ANY_SHARD, Positions
from sparkinesis.source.planning.batch_end import Finding
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)
from sparkinesis.stream.shard import Lineage, Shard
from tests.planners import plan, probed
from tests.unit.source.planning.test_batch_end import histories, look

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


NOW = 1_000_000
ALL: Positions = {ANY_SHARD: TRIM_HORIZON}
PRESENT: Positions = {ANY_SHARD: LATEST}
SPLIT = Lineage.of([Shard("p", (), False), Shard("c1", ("p",)), Shard("c2", ("p",)), Shard("x")])


def read(start: Positions, end: Positions, filters: PushedFilters | None = None) -> list[ShardRead]:
    return plan_shard_reads(SPLIT, start, end, filters or PushedFilters(), NOW)


def test_every_generation_is_read_and_only_open_shards_lack_an_end() -> None:
    planned = read(ALL, PRESENT)
    assert planned == [
        ShardRead("c1", TRIM_HORIZON, LATEST, is_initial=True),
        ShardRead("c2", TRIM_HORIZON, LATEST, is_initial=True),
        ShardRead("p", TRIM_HORIZON, SHARD_END, is_initial=True),
        ShardRead("x", TRIM_HORIZON, LATEST, is_initial=True),
    ]
    assert open_ended(planned) == {(None, True): [planned[0], planned[1], planned[3]]}


def test_a_start_says_of_its_ancestors_that_they_are_done() -> None:
    planned = read({"c1": AfterRecord("7")}, PRESENT)
    assert {s.shard_id: (s.start, s.is_initial) for s in planned} == {
        "c1": (AfterRecord("7"), False),
        "c2": (TRIM_HORIZON, True),
        "x": (TRIM_HORIZON, True),
    }
    # What a child's start says of its parent, a start for all others overrules.
    assert "p" in {s.shard_id for s in read({"c1": AfterRecord("7"), **ALL}, PRESENT)}


def test_an_end_says_of_descendants_that_they_have_not_begun() -> None:
    planned = read(ALL, {"p": AfterRecord("7")})
    assert {s.shard_id: s.end for s in planned} == {"p": AfterRecord("7"), "x": LATEST}
    planned = read(ALL, {"c1": AfterRecord("7")})
    assert {s.shard_id: s.end for s in planned} == {
        "p": SHARD_END,
        "c1": AfterRecord("7"),
        "c2": LATEST,
        "x": LATEST,
    }
    assert len(read(ALL, {"p": LATEST})) == 4


def test_a_shard_without_anything_between_is_left_out() -> None:
    assert read(PRESENT, PRESENT) == []
    assert read({ANY_SHARD: SHARD_END}, PRESENT) == []
    assert read(ALL, {ANY_SHARD: TRIM_HORIZON}) == []
    assert read({ANY_SHARD: AtTimestamp(5)}, {ANY_SHARD: AtTimestamp(5)}) == []
    assert len(read({ANY_SHARD: AtTimestamp(5)}, {ANY_SHARD: AtTimestamp(6)})) == 4
    assert read({ANY_SHARD: AtTimestamp(NOW + 1)}, PRESENT) == []
    assert len(read({ANY_SHARD: AtTimestamp(NOW)}, PRESENT)) == 4
    only_x: Positions = {"x": AfterRecord("10"), ANY_SHARD: SHARD_END}
    assert read(only_x, {"x": AfterRecord("9")}) == []
    assert read(only_x, {"x": AfterRecord("10", 7)}) == []
    assert len(read(only_x, {"x": AfterRecord("11")})) == 1


def test_instants_of_filters_narrow_those_of_the_options() -> None:
    filters = PushedFilters(shards=frozenset({"p", "x"}), start_ms=50, before_ms=90)
    assert read({ANY_SHARD: AtTimestamp(40)}, {ANY_SHARD: AtTimestamp(80)}, filters) == [
        ShardRead("p", AtTimestamp(50), SHARD_END, 80, is_initial=True),
        ShardRead("x", AtTimestamp(50), LATEST, 80, is_initial=True),
    ]
    start: Positions = {"p": AfterRecord("7"), "x": AtTimestamp(60)}
    assert read(start, {"p": AfterRecord("9")}, filters) == [
        ShardRead("p", AfterRecord("7"), AfterRecord("9"), 90),
        ShardRead("x", AtTimestamp(60), LATEST, 90),
    ]


def test_shards_that_a_map_stands_in_and_that_are_gone_are_named() -> None:
    boundary: Positions = {"z": AfterRecord("7"), "y": TRIM_HORIZON, "done": SHARD_END, **ALL}
    assert unlisted({**boundary, "p": LATEST}, SPLIT) == ("y", "z")


def _streamed(
    lineage: Lineage, held: dict[str, int], batches: int, data: st.DataObject
) -> Positions:
    """The offset of a streaming query after some batches."""

    def probe(shard: str, position: Position) -> Finding:
        done = int(position.sequence_number) if isinstance(position, AfterRecord) else 0
        take = data.draw(st.integers(1, 3))
        return look(lineage.shards[shard], done, held[shard], take)

    at: Positions = {ANY_SHARD: TRIM_HORIZON}
    for _ in range(batches):
        at = plan(at, lineage, probed(at, lineage, probe)).end
    return at


@given(histories(), st.integers(1, 6), st.data())
def test_an_offset_of_a_streaming_query_parts_the_records_in_two(
    history: tuple[Lineage, dict[str, int]], batches: int, data: st.DataObject
) -> None:
    lineage, held = history
    offset = _streamed(lineage, held, batches, data)

    def records(start: Positions, end: Positions) -> list[tuple[str, int]]:
        found = []
        for shard_read in plan_shard_reads(lineage, start, end, PushedFilters(), NOW):
            since, until = shard_read.start, shard_read.end
            first = int(since.sequence_number) if isinstance(since, AfterRecord) else 0
            last = held[shard_read.shard_id]
            if isinstance(until, AfterRecord):
                last = int(until.sequence_number)
            elif isinstance(shard_read.before_ms, int):
                last = 0
            found += [(shard_read.shard_id, number) for number in range(first, last)]
        return found

    everything = [(shard, number) for shard, count in held.items() for number in range(count)]
    before, behind = records(ALL, offset), records(offset, PRESENT)
    assert sorted(before + behind) == sorted(everything)
