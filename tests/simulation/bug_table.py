"""The search for a planted bug in rough histories, and how many each takes today.

``python -m tests.simulation --bugs``
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from tests.simulation.subjects import SUBJECTS

_MOST, _MOST_OF_RARE = 300, 600
"""Rough histories that a bug may take."""


def hunt(subject: Any, name: str) -> int | None:
    """Plays rough histories with a bug, from the first on, until its own invariant is broken.

    Returns the number of histories; None if the bug is not found within its bound.
    """
    bug = subject.bugs[name]
    with bug.patch():
        for number in range(_MOST_OF_RARE if bug.is_rare else _MOST):
            wrong = subject.play(subject.rough(number)).wrong
            if any(text.partition(":")[0] == bug.caught_by for text in wrong):
                return number + 1
    return None


def rows(names: list[str], jobs: int) -> Iterator[str]:
    """A row of a table for each bug: its name, its invariant, and the histories that it takes."""
    pairs = [(one.name, bug) for one in SUBJECTS if one.name in names for bug in one.bugs]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_row, *zip(*pairs, strict=True))


def _row(subject_name: str, name: str) -> str:
    subject = next(each for each in SUBJECTS if each.name == subject_name)
    return f"| {name} | `{subject.bugs[name].caught_by}` | {hunt(subject, name) or 'not found'} |"
