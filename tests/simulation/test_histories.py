"""The invariants hold in every history of an application of record processors.

``make simulate`` plays more of them.
"""

from __future__ import annotations

import pytest
from hypothesis import given, note

from tests.simulation.drawn import drawn
from tests.simulation.histories import histories
from tests.simulation.history import History
from tests.simulation.invariants import check
from tests.simulation.story import Story
from tests.simulation.world import World


@drawn(histories=10)
@given(history=histories())
def test_the_invariants_hold_in_each_history(history: History) -> None:
    play(history)


@pytest.mark.long
@drawn(histories=400)
@given(history=histories())
def test_the_invariants_hold_in_each_of_many_histories(history: History) -> None:
    play(history)


def play(history: History) -> None:
    wrong = check(World(history).run())
    note(Story(history))
    assert wrong == []
