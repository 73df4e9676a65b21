"""Counts the histories until each deliberate bug is found: the documentation's table.

``python -m tests.simulation --bugs``
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from tests.simulation.subject import Outcome
from tests.simulation.subjects import SUBJECTS

_MOST = 250
"""Rough histories that a bug may take."""


@dataclass(frozen=True)
class Hunt:
    """A bug, and what has caught it in which of the rough histories, if anything has."""

    subject: str
    bug: str
    invariants: tuple[str, ...] = ()
    rough: int | None = None
    tried: int = 0
    """Histories until then, from number 0 on."""


def hunt(subject_name: str, bug_name: str) -> Hunt:
    """Plays the rough histories, one after the other, until the bug's own invariant breaks."""
    subject = next(each for each in SUBJECTS if each.name == subject_name)
    bug = subject.bugs[bug_name]
    seen: Hunt | None = None
    with bug.patch():
        for number in range(_MOST):
            outcome: Outcome = subject.play(subject.rough(number))
            broken = tuple(dict.fromkeys(text.partition(":")[0] for text in outcome.wrong))
            if bug.caught_by in broken:
                return Hunt(subject_name, bug_name, broken, number, number + 1)
            if broken and seen is None:
                seen = Hunt(subject_name, bug_name, broken, None, number + 1)
    return seen or Hunt(subject_name, bug_name, tried=_MOST)


def hunts(names: list[str], jobs: int) -> Iterator[Hunt]:
    pairs = [(one.name, bug) for one in SUBJECTS if one.name in names for bug in one.bugs]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(hunt, *zip(*pairs, strict=True))


def row(found: Hunt) -> str:
    """A row of the documentation's table."""
    subject = next(each for each in SUBJECTS if each.name == found.subject)
    caught_by = subject.bugs[found.bug].caught_by
    count = str(found.tried) if found.rough is not None else f"not in {_MOST}"
    return f"| {found.bug} | `{caught_by}` | {count} |"
