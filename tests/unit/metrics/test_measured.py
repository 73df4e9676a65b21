"""A run is measured once, whatever comes of it, and nothing about it changes."""

from __future__ import annotations

import itertools

import pytest

from sparkinesis.metrics.measured import measured


class Observed:
    """What was observed, by a clock that goes on by one second each time somebody asks."""

    def __init__(self) -> None:
        self.clock = itertools.count().__next__
        self.seen: list[tuple[str, float]] = []

    def __call__(self, result: str, seconds: float) -> None:
        self.seen.append((result, seconds))


def test_each_run_is_measured() -> None:
    observed = Observed()
    run = measured(lambda number, *, factor: number * factor, observed.clock, observed)
    assert [run(2, factor=3), run(5, factor=7)] == [6, 35]
    assert observed.seen == [("ok", 1), ("ok", 1)]


def test_an_error_is_measured_and_raised() -> None:
    observed = Observed()

    def fail() -> None:
        raise ValueError("as it was")

    with pytest.raises(ValueError, match="as it was"):
        measured(fail, observed.clock, observed)()
    with pytest.raises(ValueError, match="as it was"):
        measured(fail, observed.clock, observed, lambda error: type(error).__name__)()
    assert observed.seen == [("failed", 1), ("ValueError", 1)]


def test_an_answer_may_have_a_result_of_its_own() -> None:
    observed = Observed()
    measured(lambda: 7, observed.clock, observed, result=lambda value: f"{value} of 9")()
    assert observed.seen == [("7 of 9", 1)]


def test_the_end_of_the_program_is_no_result() -> None:
    observed = Observed()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(interrupted, observed.clock, observed)()
    assert observed.seen == []
