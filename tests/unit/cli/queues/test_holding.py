"""Which dead letters options choose: the bounds of each, and what a record does not have."""

from __future__ import annotations

import math

import pytest

from sparkinesis.cli.queues.holding import EVERY, DeadLetterFilter, parse_arrival
from sparkinesis.errors import OptionError
from sparkinesis.queue.client import Received

NOW_MS = 1_795_249_800_500


def letter(record_id: str = "id", key: str | None = "k", at: float | None = 10.0) -> Received:
    return Received("h", record_id, b"", key, at, receive_count=3)


@pytest.mark.parametrize(
    ("wanted", "is_taken"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(ids=frozenset({"id", "x"})), True),
        (DeadLetterFilter(ids=frozenset({"x"})), False),
        (DeadLetterFilter(keys=frozenset({"k"})), True),
        (DeadLetterFilter(keys=frozenset({"x"})), False),
        (DeadLetterFilter(ids=frozenset({"id"}), keys=frozenset({"x"})), False),
        (DeadLetterFilter(arrived=(10.0, 11.0)), True),
        (DeadLetterFilter(arrived=(9.0, 10.0)), False),
        (DeadLetterFilter(arrived=(10.1, math.inf)), False),
        (DeadLetterFilter(receives=(3, 4)), True),
        (DeadLetterFilter(receives=(4, math.inf)), False),
        (DeadLetterFilter(receives=(-math.inf, 3)), False),
    ],
)
def test_all_that_is_given_has_to_fit(wanted: DeadLetterFilter, is_taken: bool) -> None:
    assert wanted.takes(letter()) == is_taken


def test_what_a_record_does_not_have_fits_nothing() -> None:
    assert not DeadLetterFilter(keys=frozenset({"k"})).takes(letter(key=None))
    assert not DeadLetterFilter(arrived=(-math.inf, 99.0)).takes(letter(at=None))
    assert DeadLetterFilter().takes(letter(key=None, at=None))


def test_no_more_than_the_ids_and_the_count_can_be_wanted() -> None:
    two = frozenset({"a", "b"})
    assert [
        DeadLetterFilter(ids=two).most,
        DeadLetterFilter(count=5).most,
        DeadLetterFilter().most,
    ] == [2, 5, math.inf]
    assert [DeadLetterFilter(ids=two, count=1).most, DeadLetterFilter(ids=two, count=9).most] == [
        1,
        2,
    ]
    assert [DeadLetterFilter(count=5).is_any, DeadLetterFilter(ids=two).is_any] == [True, False]


def test_a_span_is_between_instants_and_ages() -> None:
    assert parse_arrival(None, None, NOW_MS) == EVERY
    assert parse_arrival("10m", "30s", NOW_MS) == (1_795_249_200.5, 1_795_249_770.5)
    assert parse_arrival("1970-01-01T01:00:00+01:00", None, NOW_MS) == (0.0, math.inf)


@pytest.mark.parametrize(
    ("start", "end", "said"),
    [
        ("trim_horizon", None, "--from is 'trim_horizon'; it takes an instant"),
        (None, "2126-11-21T08:30:00Z", "--to is '2126-11-21T08:30:00Z'; .* not yet to come"),
        ("1m", "1m", "--to is not after --from"),
    ],
)
def test_what_is_no_span_is_refused(start: str | None, end: str | None, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_arrival(start, end, NOW_MS)
