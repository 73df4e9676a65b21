"""Rounds of histories: the unit of work that one process plays before it reports."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from tests.simulation import storytelling
from tests.simulation.drawn import draw_no_constants
from tests.simulation.subject import Outcome
from tests.simulation.subjects import SUBJECTS

draw_no_constants()

HISTORIES = 20
"""The maximum of histories in one round."""


@dataclass(frozen=True)
class Round:
    """One round of histories: all but the times decides what it plays."""

    subject: str
    seed: int
    number: int
    """The number of the round among those of its subject."""
    histories: int
    deadline: float
    """The time (by `time.time`) after which no history begins."""
    seconds: float
    """The time after which no history but the first begins."""


@dataclass
class Tally:
    histories: int = 0
    virtual_seconds: float = 0.0
    records: int = 0
    slowest: float = 0.0
    """The longest time, in virtual seconds, until everything was in order again."""
    seconds: float = 0.0
    """Wall time of the rounds, summed over all processes."""
    story: str = ""
    """The story of the simplest failing history, if one fails."""

    def count(self, outcome: Outcome) -> None:
        self.histories += 1
        self.virtual_seconds += outcome.virtual_seconds
        self.records += outcome.records
        self.slowest = max(self.slowest, outcome.settled_after)

    def add(self, other: Tally) -> None:
        self.histories += other.histories
        self.virtual_seconds += other.virtual_seconds
        self.records += other.records
        self.slowest = max(self.slowest, other.slowest)
        self.seconds += other.seconds
        self.story = self.story or other.story

    def told(self, elapsed: float) -> str:
        return (
            f"{self.histories} histories ({self.histories / elapsed:.1f}/s), "
            f"{self.virtual_seconds / 3600:.1f} virtual hours, {self.records} records; in order "
            f"again after {self.slowest:.0f} virtual seconds at most"
        )


def play_round(this: Round) -> Tally:
    """Plays some histories that hypothesis draws, and simplifies one that fails."""
    subject = next(each for each in SUBJECTS if each.name == this.subject)
    began, tally = time.monotonic(), Tally()
    failed: list[Any] = []

    def play(history: Any) -> None:
        # Only until one has failed, however it did: hypothesis plays that again.
        is_over = tally.histories and time.monotonic() - began > this.seconds
        if (is_over or time.time() > this.deadline) and not failed:
            return
        try:
            outcome = subject.play(history)
            assert not outcome.wrong
        except Exception:
            failed.append(history)
            raise
        if not failed:
            tally.count(outcome)

    try:
        draw(this, subject.histories(), play)
    except Exception as failure:  # noqa: BLE001 - of the simulation itself, or of hypothesis
        tally.story = storytelling.told(failure, subject.tell, failed[-1] if failed else None)
    tally.seconds = time.monotonic() - began
    return tally


def draw(this: Round, histories: st.SearchStrategy[Any], play: Callable[[Any], None]) -> None:
    """Passes the histories of a round to ``play``; one for which it raises is made simple."""

    @seeded(random.Random(f"{this.seed} {this.subject} {this.number}").getrandbits(64))
    @settings(
        max_examples=this.histories,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(histories)
    def run(history: Any) -> None:
        play(history)

    run()
