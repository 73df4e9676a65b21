"""Budgets keep calls apart, whoever makes them (P7)."""

from __future__ import annotations

import itertools

import pytest

from sparkinesis.stream.reading.budget import (
    BudgetState,
    CallBudget,
    LocalBudgetState,
    Pace,
    ShardBudget,
)
from tests.planners import Time


def budget_of(pace: Pace, time: Time, slot: BudgetState | None = None) -> CallBudget:
    return CallBudget(pace, lambda: slot or LocalBudgetState(), time, time.sleep)


def test_p7_calls_are_spaced_and_silence_saves_up_no_burst() -> None:
    time = Time()
    budget = budget_of(Pace(calls_per_second=2.0), time)
    made = []
    for pause in (0.0, 0.0, 0.0, 60.0, 0.0, 0.0):
        time.now += pause
        with budget:
            made.append(time.now)
    gaps = [round(later - earlier, 6) for earlier, later in itertools.pairwise(made)]
    assert gaps == [0.5, 0.5, 60.0, 0.5, 0.5]


def test_p7_calls_reach_the_service_apart_however_long_they_are_on_their_way() -> None:
    time = Time()
    budget = budget_of(Pace(calls_per_second=2.0), time)
    reached = []
    for there, back in [(0.45, 0.0), (0.0, 0.3), (2.0, 0.0), (0.0, 0.0), (0.1, 0.1), (0.0, 0.0)]:
        with budget:
            time.now += there
            reached.append(time.now)
            time.now += back
    gaps = [later - earlier for earlier, later in itertools.pairwise(reached)]
    assert min(gaps) >= 0.5 - 1e-9


def test_p7_a_failed_call_counts() -> None:
    time = Time()
    budget = budget_of(Pace(calls_per_second=2.0), time)

    def fail() -> None:
        with budget:
            time.now += 3.0
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fail()
    with budget:
        assert time.now == pytest.approx(3.5)


def test_p7_a_10_mb_page_keeps_the_shard_busy_for_five_seconds() -> None:
    time = Time()
    budget = budget_of(Pace(), time)
    with budget:
        time.now += 0.25
    budget.spend(10_000_000)
    with budget:
        assert time.now == pytest.approx(5.25)


def test_each_operation_has_a_budget_of_its_own() -> None:
    time = Time()
    budget = ShardBudget(Pace(), time, time.sleep)
    with budget.records:
        pass
    budget.records.spend(10_000_000)
    with budget.iterators:
        assert time.now == 0.0
    with budget.iterators:
        assert time.now == pytest.approx(0.6)


def test_without_limit_nothing_waits_and_no_slot_is_used() -> None:
    time = Time()

    def no_slot(operation: str) -> BudgetState:
        raise AssertionError(operation)

    budget = ShardBudget(Pace(0.0, 0.0), time, time.sleep, no_slot)
    for _ in range(100):
        with budget.iterators, budget.records:
            budget.records.spend(10_000_000)
    assert time.now == 0.0


def test_an_instant_from_before_a_reboot_is_not_waited_for() -> None:
    time = Time()
    slot = LocalBudgetState()
    budget = budget_of(Pace(), time, slot)
    slot.free_at = time.now + 5.0
    with budget:
        assert time.now == pytest.approx(5.0)
    slot.free_at = time.now + 3600.0
    with budget:
        assert time.now == pytest.approx(5.0)
    with budget:
        assert time.now == pytest.approx(5.6)
