"""Density: the weight of all records up to an instant, as samples tell it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.source.planning.probing.survey import (
    Window,
    add_window,
    density_window,
    gaps_until,
    weight_until,
)

WEIGHT = st.floats(0.0, 2.0)


def window(start: float, end: float, weight: float) -> Window:
    return Window(start, end, weight, weight / max(end - start, 1.0))


def test_one_window_goes_on_as_it_is() -> None:
    assert weight_until([window(1000, 1100, 0.1)], 2000) == pytest.approx(1.0)


def test_within_a_window_it_is_a_share_of_the_window() -> None:
    assert weight_until([window(1000, 1100, 2.0)], 1050) == pytest.approx(1.0)


def test_between_two_windows_the_density_changes_evenly() -> None:
    # 0 to 0.002 a millisecond over 1,000 ms holds a weight of 1.0.
    windows = [window(0, 1, 0.0), window(1001, 1002, 0.002)]
    assert weight_until(windows, 1001) == pytest.approx(1.0)
    assert weight_until(windows, 501) == pytest.approx(0.25)


def test_nothing_follows_a_window_without_records() -> None:
    assert weight_until([window(0, 100, 0.5), window(100, 9000, 0.0)], 10**9) == 0.5


def test_windows_never_overlap() -> None:
    windows = add_window([window(0, 100, 1.0), window(200, 300, 1.0)], window(50, 250, 2.0))
    assert [(w.start, w.end) for w in windows] == [(0, 50), (50, 200), (200, 300)]
    assert [w.weight for w in windows] == pytest.approx([0.5, 1.5, 1.0])


def test_windows_that_differ_make_doubt_of_what_lies_between() -> None:
    even = [window(0, 10, 0.01), window(110, 120, 0.01)]
    uneven = [window(0, 10, 0.01), window(110, 120, 0.05)]
    (even_gap,), (uneven_gap,) = gaps_until(even, 115), gaps_until(uneven, 115)
    assert even_gap.error < uneven_gap.error
    assert (uneven_gap.start, uneven_gap.end) == (10, 110)
    assert list(gaps_until(uneven, 5)) == []


def test_nobody_knows_what_follows_the_last_window() -> None:
    *_, gap = gaps_until([window(0, 10, 0.01), window(110, 120, 0.01)], 220)
    assert (gap.start, gap.end) == (120, 220)
    assert gap.weight == gap.error == pytest.approx(0.1)


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**5), WEIGHT), min_size=1))
def test_more_has_arrived_later(steps: list[tuple[int, int, float]]) -> None:
    windows, at = [], 0.0
    for gap, span, weight in steps:
        windows.append(window(at + gap, at + gap + span, weight))
        at += gap + span
    weights = [weight_until(windows, at * tenth / 10) for tenth in range(12)]
    assert weights == sorted(weights)
    assert weights[0] == 0.0


def test_a_sample_without_records_has_no_density() -> None:
    """As one whose records are all in hand already."""
    assert density_window(5.0, [], []) is None


def test_the_last_burst_of_a_sample_may_be_a_part_and_does_not_count() -> None:
    arrivals = [at for burst in range(0, 50, 10) for at in [burst] * 3] + [50]
    window = density_window(0.0, arrivals, [1.0] * len(arrivals))
    assert window is not None
    assert window.density == 15 / 50
