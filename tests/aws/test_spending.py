"""The bound of a run's cost, and its time limit: rules, without a service."""

from __future__ import annotations

import pytest

from tests.aws.bench import OutOfTimeError, TimeLimit
from tests.aws.spending import MOST, SHARD_HOUR, Allowance, SpendingError, Use, dollars


def test_the_bound_counts_begun_hours_of_all_shards() -> None:
    assert dollars(Use(shards=7), 20) == dollars(Use(shards=7), 50) == pytest.approx(7 * SHARD_HOUR)
    in_two_hours = dollars(Use(shards=7), 51)
    assert in_two_hours == pytest.approx(14 * SHARD_HOUR), "the removal may take until then"
    others = Use(puts=1_000_000, writes=1_000_000, reads=1_000_000)
    assert dollars(others, 20) == pytest.approx(0.014 + 1.25 + 0.25)
    assert dollars(MOST, 20) < 0.11


@pytest.mark.parametrize("use", [Use(shards=8), Use(puts=5001), Use(writes=2001), Use(reads=2001)])
def test_nothing_is_used_beyond_the_stated_bound(use: Use) -> None:
    allowance = Allowance()
    with pytest.raises(SpendingError):
        allowance.take(use)
    assert allowance.used == Use()
    allowance.take(MOST)
    assert allowance.used == MOST
    with pytest.raises(SpendingError):
        allowance.take(Use(puts=1))


def test_the_time_limit_ends_waits_and_calls() -> None:
    now = 0.0
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    limit = TimeLimit(10.0, clock=lambda: now, sleep=sleep)
    limit.sleep(4.0)
    limit.check()
    with pytest.raises(OutOfTimeError):
        limit.sleep(100.0)
    assert slept == [4.0, 6.0]
    with pytest.raises(OutOfTimeError):
        limit.check()
