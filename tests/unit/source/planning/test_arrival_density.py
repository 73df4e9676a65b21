"""Density: the instant at which samples say that an amount is reached."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.source.planning.arrival_density import (
    Window,
    add_window,
    instant_at_weight,
    largest_error,
)

WEIGHT = st.floats(0.0, 2.0)


def window(start: float, end: float, weight: float) -> Window:
    return Window(start, end, weight, weight / max(end - start, 1.0))


def test_one_window_goes_on_as_it_is() -> None:
    assert instant_at_weight([window(1000, 1100, 0.1)]) == pytest.approx(2000)


def test_within_a_window_it_is_a_share_of_the_window() -> None:
    assert instant_at_weight([window(1000, 1100, 2.0)]) == pytest.approx(1050)


def test_between_two_windows_the_density_changes_evenly() -> None:
    # 0 to 0.002 a millisecond over 1,000 ms holds a weight of 1.0.
    windows = [window(0, 1, 0.0), window(1001, 1002, 0.002)]
    assert instant_at_weight(windows, 1.0) == pytest.approx(1001)
    assert instant_at_weight(windows, 0.25) == pytest.approx(1 + 500)


def test_what_is_never_reached_is_reached_at_infinity() -> None:
    assert instant_at_weight([window(0, 100, 0.5), window(100, 9000, 0.0)]) == math.inf


def test_windows_never_overlap() -> None:
    windows = add_window([window(0, 100, 1.0), window(200, 300, 1.0)], window(50, 250, 2.0))
    assert [(w.start, w.end) for w in windows] == [(0, 50), (50, 200), (200, 300)]
    assert [w.weight for w in windows] == pytest.approx([0.5, 1.5, 1.0])


def test_windows_that_differ_make_doubt_of_what_lies_between() -> None:
    even = [window(0, 10, 0.01), window(110, 120, 0.01)]
    uneven = [window(0, 10, 0.01), window(110, 120, 0.05)]
    assert largest_error(even, 200)[0] < largest_error(uneven, 200)[0]
    assert largest_error(uneven, 200)[1] == 60
    assert largest_error(uneven, 5)[0] == 0.0


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**5), WEIGHT), min_size=1))
def test_more_is_reached_later(steps: list[tuple[int, int, float]]) -> None:
    windows, at = [], 0.0
    for gap, span, weight in steps:
        windows.append(window(at + gap, at + gap + span, weight))
        at += gap + span
    instants = [instant_at_weight(windows, goal) for goal in (0.1, 0.5, 1.0, 3.0)]
    assert instants == sorted(instants)
    assert all(instant >= windows[0].start for instant in instants)
