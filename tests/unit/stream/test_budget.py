"""Budgets keep calls apart, whoever makes them (P7)."""

from __future__ import annotations

import itertools

import pytest

from sparkinesis.stream.budget import Pace, ShardBudget


class VirtualTime:
    def __init__(self) -> None:
        self.now = 100.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def test_p7_calls_are_spaced_and_silence_saves_up_no_burst() -> None:
    time = VirtualTime()
    budget = ShardBudget(Pace(calls_per_second=2.0), time.clock, time.sleep)
    made = []
    for pause in (0.0, 0.0, 0.0, 60.0, 0.0, 0.0):
        time.now += pause
        budget.wait()
        made.append(time.now)
    gaps = [round(later - earlier, 6) for earlier, later in itertools.pairwise(made)]
    assert gaps == [0.5, 0.5, 60.0, 0.5, 0.5]


def test_p7_a_10_mb_page_keeps_the_shard_busy_for_five_seconds() -> None:
    time = VirtualTime()
    budget = ShardBudget(Pace(), time.clock, time.sleep)
    budget.wait()
    budget.spend(10_000_000)
    budget.wait()
    assert time.now == pytest.approx(105.0)


def test_without_limit_nothing_waits() -> None:
    time = VirtualTime()
    budget = ShardBudget(Pace(0.0, 0.0), time.clock, time.sleep)
    for _ in range(100):
        budget.wait()
        budget.spend(10_000_000)
    assert time.now == 100.0
