"""The points of the charts."""

from __future__ import annotations

from sparkinesis.ui.history import KEPT_FOR, History, Point


def at(seconds: float) -> Point:
    return Point(seconds, 1, None, None)


def test_an_hour_is_kept() -> None:
    history = History()
    for seconds in range(0, 2 * int(KEPT_FOR), 10):
        found = history.add(at(seconds))
    assert [found[0].at, found[-1].at] == [KEPT_FOR - 10, 2 * KEPT_FOR - 10]


def test_memory_is_bounded() -> None:
    history = History()
    for number in range(20_000):
        found = history.add(at(number / 100))
    assert len(found) == 7200


def test_a_clock_that_is_set_back_begins_anew() -> None:
    history = History()
    history.add(at(500))
    assert history.add(at(100)) == (at(100),)
