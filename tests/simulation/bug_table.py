"""Counts the histories until each planted bug is found: the documentation's table.

``python -m tests.simulation --bugs``
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from tests.simulation.subjects import SUBJECTS

_MOST = 250
"""Rough histories that a bug may take."""


def hunt(subject: Any, name: str, numbers: Iterable[int]) -> tuple[int, set[str]]:
    """Plays rough histories with a bug until its own invariant is broken.

    Returns the number of histories, and the invariants that were broken.
    """
    bug, broken, tried = subject.bugs[name], set[str](), 0
    with bug.patch():
        for number in numbers:
            tried += 1
            wrong = subject.play(subject.rough(number)).wrong
            broken |= {text.partition(":")[0] for text in wrong}
            if bug.caught_by in broken:
                break
    return tried, broken


def rows(names: list[str], jobs: int) -> Iterator[str]:
    """The rows of the documentation's table."""
    pairs = [(one.name, bug) for one in SUBJECTS if one.name in names for bug in one.bugs]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_row, *zip(*pairs, strict=True))


def _row(subject_name: str, name: str) -> str:
    subject = next(each for each in SUBJECTS if each.name == subject_name)
    tried, broken = hunt(subject, name, range(_MOST))
    caught_by = subject.bugs[name].caught_by
    return f"| {name} | `{caught_by}` | {tried if caught_by in broken else f'not in {_MOST}'} |"
