"""What readers may not do is found; the readers themselves need `make interop`."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.interop.kcl.tenures import Place, problems_of

PLACES = {("a", 0): Place("7", 0), ("a", 1): Place("7", 1), ("a", 2): Place("9", 0)}


def line(at: float, reader: str, **more: Any) -> dict[str, Any]:
    return {"at": at, "reader": reader, "shard": "s", **more}


def given(at: float, reader: str, *numbers: int) -> dict[str, Any]:
    places = [PLACES["a", number] for number in numbers]
    return line(
        at,
        reader,
        records=[["a", number] for number in numbers],
        places=[[one.sequence_number, one.sub_sequence_number] for one in places],
    )


def start(at: float, reader: str, sequence_number: str, sub: int = 0) -> dict[str, Any]:
    return line(at, reader, **{"from": [sequence_number, sub]})


FIRST = [start(1, "v", "TRIM_HORIZON"), given(2, "v", 0, 1), line(3, "v", checkpoint=["7", 0])]


def test_a_reader_that_begins_inside_an_aggregate_is_fine() -> None:
    lines = [given(5, "w", 1, 2), start(4, "w", "7", 0), *FIRST]
    assert problems_of(lines, PLACES) == []
    places = {**PLACES, ("a", 1): Place("7", 2)}
    assert problems_of(FIRST, places) == ["v was given a 1 at another place"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([start(4, "w", "TRIM_HORIZON"), given(5, "w", 0)], "w began s at .* ahead of v's check"),
        ([start(4, "w", "7", 0), given(5, "w", 0, 1)], "w was given a 0"),
        # A checkpoint that comes late does not hide a later one.
        (
            [
                line(3.5, "w", checkpoint=["9", 0]),
                line(3.6, "v", checkpoint=["7", 1]),
                start(4, "u", "7", 1),
            ],
            ".*ahead of w's checkpoint",
        ),
        ([line(4, "v", checkpoint=["SHARD_END", 0]), start(5, "w", "9", 0)], ".*SHARD_END"),
    ],
)
def test_what_no_reader_may_do_is_found(more: list[dict[str, Any]], says: str) -> None:
    (problem,) = problems_of([*FIRST, *more], PLACES)
    assert re.match(says, problem)
