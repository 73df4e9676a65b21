"""The bound of a run's cost, its leftovers, and its time limit: rules, without a service."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from tests.aws.bench import OutOfTimeError, TimeLimit
from tests.aws.resources import TAG, UNTIL_TAG, Resource, is_abandoned, read_leftover, tags
from tests.aws.spending import (
    MOST,
    Allowance,
    Prices,
    SpendingError,
    Use,
    bound,
    require_within,
    statement,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
STREAM = Resource("stream", "me-sparkinesis-check-1123120000-abc-main")


def test_the_bound_counts_begun_hours_of_all_shards() -> None:
    prices = Prices(shard_hour=1.0, million_puts=2.0, million_writes=3.0, million_reads=4.0)
    use = Use(shards=7, puts=1_000_000, writes=1_000_000, reads=1_000_000)
    assert bound(use, 20, prices) == 7 + 2 + 3 + 4
    assert bound(use, 50, prices) == bound(use, 20, prices)
    assert bound(use, 51, prices) == 14 + 2 + 3 + 4, "the removal may take until the next hour"


def test_the_statement_is_aligned_and_sums_up() -> None:
    lines = statement(20, Prices())
    assert len({len(line) for line in lines}) == 1
    assert lines[-1].split() == ["at", "most", "$", f"{bound(MOST, 20, Prices()):.4f}"]
    assert lines[0].split()[:6] == ["7", "shards", "x", "1", "h", "x"]


def test_a_run_that_may_cost_more_than_allowed_is_refused() -> None:
    require_within(20, 0.2, Prices())
    with pytest.raises(SpendingError, match=r"may cost \$0\.11, .* \$0\.10 of --max-cost"):
        require_within(20, 0.1, Prices())


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


def test_a_leftover_has_the_name_and_the_tag_of_the_prefix() -> None:
    given = tags("me", NOW)
    found = read_leftover("me", STREAM, given)
    assert found is not None
    assert found.until == NOW
    assert read_leftover("me", STREAM, {}) is None
    assert read_leftover("me", STREAM, {**given, TAG: "you"}) is None
    assert read_leftover("me", Resource("stream", "me-orders"), given) is None
    assert read_leftover("m", STREAM, given) is None


def test_what_a_run_that_goes_on_has_made_is_not_abandoned() -> None:
    found = read_leftover("me", STREAM, tags("me", NOW))
    assert found is not None
    assert not is_abandoned(found, NOW - timedelta(minutes=1))
    assert not is_abandoned(found, NOW + timedelta(minutes=4))
    assert is_abandoned(found, NOW + timedelta(minutes=6))
    unreadable = read_leftover("me", STREAM, {TAG: "me", UNTIL_TAG: "soon"})
    assert unreadable is not None
    assert is_abandoned(unreadable, NOW)


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
