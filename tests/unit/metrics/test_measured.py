"""A run is measured once, whatever comes of it, and nothing about it changes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.metrics.measured import measured


class Seen(list[tuple[str, float]]):
    """What was observed, by a clock that goes on by one second each time somebody asks."""

    def run(self, function: Callable[..., Any], **given: Any) -> Callable[..., Any]:
        observe = lambda result, seconds: self.append((result, seconds))  # noqa: E731
        return measured(function, itertools.count().__next__, observe, **given)


def test_each_run_is_measured() -> None:
    seen = Seen()
    run = seen.run(lambda number, *, factor: number * factor)
    assert [run(2, factor=3), run(5, factor=7)] == [6, 35]
    seen.run(lambda: 7, result=lambda value: f"{value} of 9")()
    assert seen == [("ok", 1), ("ok", 1), ("7 of 9", 1)]


def test_an_error_is_measured_and_raised_and_the_end_of_the_program_is_no_result() -> None:
    seen = Seen()

    def fail(error: BaseException) -> None:
        raise error

    for error in (ValueError("as it was"), KeyboardInterrupt()):
        for given in ({}, {"result_of": lambda error: type(error).__name__}):
            with pytest.raises(type(error)) as raised:
                seen.run(fail, **given)(error)
            assert raised.value is error
    assert seen == [("failed", 1), ("ValueError", 1)]
