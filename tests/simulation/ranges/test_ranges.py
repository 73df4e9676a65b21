"""Reading a range by enhanced fan-out gives exactly that range, however subscriptions break."""

from __future__ import annotations

import collections

import pytest

from tests.simulation.ranges.invariants import check
from tests.simulation.ranges.world import Ranges


@pytest.mark.parametrize("histories", [60, pytest.param(600, marks=pytest.mark.long)])
def test_each_range_is_read_exactly_however_subscriptions_break(histories: int) -> None:
    outcomes: collections.Counter[str] = collections.Counter()
    met: collections.Counter[str | None] = collections.Counter()
    for number in range(histories):
        ranges = Ranges(number).run()
        assert check(ranges) == [], number
        outcomes.update(reading.outcome for reading in ranges.readings)
        met.update(one.met for one in ranges.subscriptions.connections)
    assert outcomes["whole"] > 25 * histories
    assert {"reset", "reset_after", "refused", "timeout", "late", "error", "throttle"} <= met.keys()


def test_a_range_is_pushed_whole_where_nothing_fails() -> None:
    pushed = 0
    for number in range(10):
        ranges = Ranges(number, has_trouble=False).run()
        assert check(ranges) == []
        for one in ranges.subscriptions.connections:
            if one.met is None and not one.process.is_killed:
                assert (one.process.name, "GetRecords") not in ranges.calls
                pushed += 1
    assert pushed > 150
