"""Each deliberate bug breaks the invariant that is to catch it, in a rough history.

`make test` plays one bug in twelve, `make test-more` one in three, and `make test-long` the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulation.subjects import SUBJECTS

_BUGS = [(subject, name) for subject in SUBJECTS for name, bug in subject.bugs.items()]
_MOST = 150
"""The maximum of histories to play if a change of the product has outdated the table."""
_SHORT = 4
"""The histories of each subject that the short form plays without a bug."""
_TABLE = Path(__file__).parents[2] / "docs" / "simulation.md"


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
    broken: set[str] = set()
    with bug.patch():
        # Mostly the first of these finds it: what it took when the table was made.
        for number in (bug.rough, *range(_MOST)):
            wrong = subject.play(subject.rough(number)).wrong
            broken |= {text.partition(":")[0] for text in wrong}
            assert bug.misfits == []
            if bug.caught_by in broken:
                return
    pytest.fail(f"in {_MOST} histories only {broken} was broken")


def _without_a_bug(subject: Any, histories: slice) -> None:
    for number in sorted({bug.rough or 0 for bug in subject.bugs.values()})[histories]:
        assert subject.play(subject.rough(number)).wrong == [], number


@pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name for subject in SUBJECTS])
def test_without_a_bug_these_histories_are_in_order(subject: Any) -> None:
    _without_a_bug(subject, slice(_SHORT))


@pytest.mark.long
@pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name for subject in SUBJECTS])
def test_without_a_bug_the_other_histories_are_in_order(subject: Any) -> None:
    _without_a_bug(subject, slice(_SHORT, None))


def test_the_table_of_the_documentation_names_each_bug() -> None:
    table = _TABLE.read_text(encoding="utf-8")
    for subject, name in _BUGS:
        assert f"| {name} | `{subject.bugs[name].caught_by}` |" in table
