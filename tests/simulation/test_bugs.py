"""Each planted bug breaks the invariant that is to catch it, in a rough history.

`make test` hunts one bug in 24, `make test-more` some others, and `make test-long` the rest,
with those that are rare.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.bug_table import hunt
from tests.simulation.subjects import SUBJECTS

_BUGS = [(subject, name) for subject in SUBJECTS for name, bug in subject.bugs.items()]
_SHORT, _LONG = 4, 60
"""The histories of each subject that are played without a bug."""


@pytest.mark.limit(600)
@pytest.mark.parametrize(
    ("subject", "name"),
    [
        pytest.param(
            *bug,
            id=f"{bug[0].name}: {bug[1]}",
            marks=[pytest.mark.long]
            if place % 6 or bug[0].bugs[bug[1]].is_rare
            else [pytest.mark.more]
            if place % 24
            else [],
        )
        for place, bug in enumerate(_BUGS)
    ],
)
def test_a_deliberate_bug_is_found(subject: Any, name: str) -> None:
    assert hunt(subject, name) is not None


@pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name for subject in SUBJECTS])
@pytest.mark.parametrize(
    "numbers",
    [range(_SHORT), pytest.param(range(_SHORT, _LONG), marks=pytest.mark.long)],
    ids=["some", "the others"],
)
def test_without_a_bug_the_rough_histories_are_in_order(subject: Any, numbers: range) -> None:
    for number in numbers:
        assert subject.play(subject.rough(number)).wrong == [], number


def test_each_bug_can_be_made() -> None:
    for subject, name in _BUGS:
        with subject.bugs[name].patch():  # it fits the package as it is
            pass
