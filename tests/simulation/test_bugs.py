"""Each planted bug breaks the invariant that is to catch it, in a rough history.

`make test` plays one bug in twelve, `make test-more` one in three, and `make test-long` the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulation.bug_table import hunt
from tests.simulation.subjects import SUBJECTS

_BUGS = [(subject, name) for subject in SUBJECTS for name, bug in subject.bugs.items()]
_MOST = 150
"""The maximum of histories to play if a change of the product has outdated the table."""
_SHORT = 4
"""The histories of each subject that the short form plays without a bug."""
_TABLE = Path(__file__).parents[2] / "docs" / "simulation.md"


@pytest.mark.limit(300)
@pytest.mark.parametrize(
    ("subject", "name"),
    [
        pytest.param(
            *bug,
            id=f"{bug[0].name}: {bug[1]}",
            marks=[pytest.mark.long] if place % 3 else [pytest.mark.more] if place % 4 else [],
        )
        for place, bug in enumerate(_BUGS)
    ],
)
def test_a_deliberate_bug_is_found(subject: Any, name: str) -> None:
    bug = subject.bugs[name]
    # Mostly the first of these finds it: what it took when the table was made.
    _, broken = hunt(subject, name, (bug.rough, *range(_MOST)))
    assert bug.caught_by in broken


@pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name for subject in SUBJECTS])
@pytest.mark.parametrize(
    "histories",
    [slice(_SHORT), pytest.param(slice(_SHORT, None), marks=pytest.mark.long)],
    ids=["some", "the others"],
)
def test_without_a_bug_these_histories_are_in_order(subject: Any, histories: slice) -> None:
    for number in sorted({bug.rough for bug in subject.bugs.values()})[histories]:
        assert subject.play(subject.rough(number)).wrong == [], number


def test_each_bug_can_be_made_and_is_in_the_table_of_the_documentation() -> None:
    table = _TABLE.read_text(encoding="utf-8")
    for subject, name in _BUGS:
        with subject.bugs[name].patch():  # it fits the package as it is
            pass
        assert f"| {name} | `{subject.bugs[name].caught_by}` |" in table
