"""The invariants hold in every history of an application of record processors.

More of the same: ``make simulate``.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings

from tests.simulation.histories import histories
from tests.simulation.history import History
from tests.simulation.invariants import check
from tests.simulation.story import Story
from tests.simulation.world import World


@pytest.mark.parametrize("count", [50, pytest.param(100, marks=pytest.mark.long)])
def test_what_must_be_true_is_in_every_history(count: int) -> None:
    @settings(
        derandomize=True,
        max_examples=count,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=(HealthCheck.too_slow,),
    )
    @given(history=histories())
    def is_in_order(history: History) -> None:
        wrong = check(World(history).run())
        note(Story(history))
        assert wrong == []

    is_in_order()
