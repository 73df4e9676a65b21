"""The invariants bite: each deliberate bug breaks one, in some rough history."""

from __future__ import annotations

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.histories import rough_history
from tests.simulation.invariants import check
from tests.simulation.world import World

_HISTORIES = 120


@pytest.mark.parametrize("bug", BUGS)
def test_a_deliberate_bug_is_found(bug: str) -> None:
    with BUGS[bug].patch():
        assert any(check(World(rough_history(number)).run()) for number in range(_HISTORIES))


def test_without_a_bug_rough_histories_are_in_order() -> None:
    for number in range(40):
        assert check(World(rough_history(number)).run()) == [], number
