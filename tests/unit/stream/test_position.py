"""Positions read back as they were written, and sort as Kinesis orders them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
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
        st.none() | st.integers(0, 10**17),
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


@pytest.mark.parametrize(
    "text", ["", "-1", "12a", "AT_TIMESTAMP", "AT_TIMESTAMP:", "1@", "\u0661", "1:", ":1", "1@2:3"]
)
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


@given(numbers, numbers)
def test_sequence_order_is_the_order_of_the_numbers(one: int, other: int) -> None:
    assert (sequence_order(str(one)) < sequence_order(str(other))) == (one < other)
    assert sequence_order(f"000{one}") == sequence_order(str(one))
