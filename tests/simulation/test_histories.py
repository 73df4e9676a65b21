"""The invariants hold in every history that hypothesis draws; ``make simulate`` plays more."""

from __future__ import annotations

import pytest

from tests.examples import examples
from tests.simulation.rounds import Round, play_round
from tests.simulation.subjects import SUBJECTS

_SHORT, _LONG = (
    (10, 6, 6, 6, 6, 6, 6, 6, 8, 40, 12),
    (400, 150, 150, 150, 150, 150, 150, 150, 300, 400, 400),
)
"""The number of histories of each subject, in the short form and in the long one."""


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("name", "histories"),
    [
        *(
            (subject.name, examples(count, least=2))
            for subject, count in zip(SUBJECTS, _SHORT, strict=True)
        ),
        *(
            pytest.param(subject.name, count, marks=pytest.mark.long)
            for subject, count in zip(SUBJECTS, _LONG, strict=True)
        ),
    ],
)
def test_the_invariants_hold_in_each_history(name: str, histories: int) -> None:
    tally = play_round(Round(name, 1, 0, histories, deadline=1e12, seconds=1e12))
    assert tally.story == ""
    assert tally.histories == histories
