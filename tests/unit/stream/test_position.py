"""Positions read back as they were written, and sort as Kinesis orders them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.stream.position import (
    LATEST,
    NONE_OF_IT,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
    advanced,
    between_batches,
    iterator_type,
    parse_initial_position,
    parse_position,
    sequence_order,
)

numbers = st.integers(0, 2**186 - 1)
positions: st.SearchStrategy[Position] = st.one_of(
    st.sampled_from([TRIM_HORIZON, LATEST, SHARD_END]),
    st.integers(0, 10**14).map(AtTimestamp),
    st.builds(
        AfterRecord,
        numbers.map(str),
        st.none() | st.integers(0, 10**14),
        st.none() | st.integers(NONE_OF_IT, 10**17),
        st.none() | st.integers(0, 10**14),
        st.none() | numbers.map(str),
    ),
    st.from_regex(r"[a-zA-Z0-9_.-]{3,255}", fullmatch=True).map(FromApplication),
)


@given(positions)
def test_a_position_reads_back_as_it_was_written(position: Position) -> None:
    assert parse_position(str(position)) == position


@given(st.text())
def test_anything_else_is_refused_with_a_value_error(text: str) -> None:
    try:
        position = parse_position(text)
    except ValueError as error:
        assert "is not a position" in str(error)
    else:
        assert str(position) == text


NEAR_MISSES = "-1 12a 1@ 1: :1 1@2:3 1~ 1~2@3 1^ 1^2~3 ~1 7:-2 7:- AT_TIMESTAMP AT_TIMESTAMP:"


@pytest.mark.parametrize("text", ["", "\u0661", "AT_TIMESTAMP:1~2", *NEAR_MISSES.split()])
def test_near_misses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a position"):
        parse_position(text)


def test_a_place_inside_a_record_is_another_than_behind_it() -> None:
    inside = parse_position("7:2@9")
    assert inside == AfterRecord("7", 9, 2)
    assert isinstance(inside, AfterRecord)
    assert inside.is_same_place(AfterRecord("7", None, 2))
    assert not inside.is_same_place(AfterRecord("7", 9))
    assert not inside.is_same_place(AfterRecord("7", 9, 3))
    assert not inside.is_same_place(SHARD_END)


def test_a_place_before_a_record_reads_it_and_is_not_inside_it() -> None:
    before = parse_position("7:-1@9")
    assert before == AfterRecord("7", 9, NONE_OF_IT)
    assert isinstance(before, AfterRecord)
    assert before.is_before
    assert not before.is_same_place(AfterRecord("7", 9))
    assert not AfterRecord("7", 9).is_before
    assert not AfterRecord("7", 9, 0).is_before
    assert iterator_type(before, inclusive=False) == {
        "ShardIteratorType": "AT_SEQUENCE_NUMBER",
        "StartingSequenceNumber": "7",
    }


def test_optional_parts_follow_in_one_order_and_only_where_they_are_known() -> None:
    full = AfterRecord("7", 9, 2, 8, "5")
    assert str(full) == "7:2@9~8^5"
    assert parse_position("7~8") == AfterRecord("7", arrived_ms=8)
    assert parse_position("7^5") == AfterRecord("7", first="5")
    assert str(AfterRecord("7")) == "7"
    assert full.is_same_place(AfterRecord("7", sub_sequence_number=2))


def test_between_batches_a_position_says_nothing_of_the_last_one() -> None:
    assert between_batches(AfterRecord("7", 9, None, 8, "5")) == AfterRecord("7", 9, None, 8)
    assert between_batches(TRIM_HORIZON) is TRIM_HORIZON


def test_what_is_known_of_a_place_moves_on_and_its_record_does_not() -> None:
    assert advanced(AfterRecord("7", 9, None, 8), 12) == AfterRecord("7", 12, None, 8)


@given(numbers, numbers)
def test_sequence_order_is_the_order_of_the_numbers(one: int, other: int) -> None:
    assert (sequence_order(str(one)) < sequence_order(str(other))) == (one < other)
    assert sequence_order(f"000{one}") == sequence_order(str(one))


@pytest.mark.parametrize(
    ("value", "position"),
    [
        ("latest", LATEST),
        (" TRIM_HORIZON ", TRIM_HORIZON),
        ("Earliest", TRIM_HORIZON),
        ("1970-01-01T00:00:01.002Z", AtTimestamp(1002)),
        ("1970-01-01T01:00:00.001999+01:00", AtTimestamp(1)),
        (datetime(1970, 1, 1, 0, 0, 0, 1999, timezone.utc), AtTimestamp(1)),
    ],
)
def test_initial_positions(value: object, position: Position) -> None:
    assert parse_initial_position(value) == position


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "it takes latest, trim_horizon or an instant with a time zone"),
        ("shard_end", "not a position"),
        ("1700000000", "not a position"),
        (17, "not a position"),
        (None, "not a position"),
        ("2026-11-21T08:30:00", "without a time zone; add one, for instance 2026-11-21T08:30:00Z"),
        (datetime(2026, 11, 21), "without a time zone"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "after 9999"),
    ],
)
def test_initial_positions_that_are_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_initial_position(value)
