"""The invariants bite: each deliberate bug breaks the one that it should, in a rough history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulation.subjects import SUBJECTS

_BUGS = [(subject, name) for subject in SUBJECTS for name, bug in subject.bugs.items()]
_TABLE = Path(__file__).parents[2] / "docs" / "simulation.md"


@pytest.mark.parametrize(
    ("subject", "name"), _BUGS, ids=[f"{subject.name}: {name}" for subject, name in _BUGS]
)
def test_a_deliberate_bug_is_found(subject: Any, name: str) -> None:
    bug = subject.bugs[name]
    history = subject.rough(bug.rough)
    with bug.patch():
        broken = {text.partition(":")[0] for text in subject.play(history).wrong}
    assert bug.caught_by in broken


@pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name for subject in SUBJECTS])
def test_without_a_bug_these_histories_are_in_order(subject: Any) -> None:
    for number in sorted({bug.rough or 0 for bug in subject.bugs.values()})[:20]:
        assert subject.play(subject.rough(number)).wrong == [], number


def test_the_table_of_the_documentation_names_each_bug() -> None:
    table = _TABLE.read_text(encoding="utf-8")
    for subject, name in _BUGS:
        assert f"| {name} | `{subject.bugs[name].caught_by}` |" in table
