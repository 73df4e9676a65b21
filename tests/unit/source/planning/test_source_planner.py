"""A query that stays behind is noticed once, and one that catches up or keeps up is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparkinesis.source.planning.source_planner import INTERVAL, LagTrend

MINUTE = 60_000


def told(lag_ms: Callable[[float], float]) -> int:
    """How often a query is told of, in ten intervals of batches that take ten seconds."""
    trend = LagTrend()
    times = range(0, int(10 * INTERVAL), 10)
    return sum(trend.stays_behind(float(now), round(lag_ms(now))) for now in times)


@pytest.mark.parametrize(
    ("lag_ms", "times"),
    [
        (lambda now: 60 * MINUTE, 1),
        (lambda now: 60 * MINUTE + now, 1),
        (lambda now: 60 * MINUTE * (1 - now / (20 * INTERVAL)), 0),
        (lambda now: MINUTE / 2, 0),
        (lambda now: 60 * MINUTE - now + now % 100 * MINUTE / 10, 0),
    ],
    ids=["stands", "grows", "shrinks", "keeps up", "goes up and down, and shrinks"],
)
def test_a_lag_that_does_not_shrink_is_told_of_once(
    lag_ms: Callable[[float], float], times: int
) -> None:
    assert told(lag_ms) == times
