"""How a run shares its time among the subjects, and what it says of a subject that had none."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clocks import MovedClock
from tests.simulation.query.subject import SUBJECT as QUERIES
from tests.simulation.rounds import HISTORIES, Round, play_round
from tests.simulation.subjects import SUBJECTS
from tests.simulation.turns import Turns

FAST, SLOW = "fast", "slow"
REPOSITORY = Path(__file__).parents[2]


def test_a_subject_of_long_histories_gets_no_more_time() -> None:
    clock = MovedClock(0.0)
    turns = Turns([SLOW, FAST], 1, jobs=1, seconds=200.0, clock=clock)
    spent: Counter[str] = Counter()
    while (drawn := turns.take()) is not None:
        seconds = 35.0 if drawn.subject == SLOW else 5.0
        clock.now += seconds
        spent[drawn.subject] += int(seconds)
        turns.end(drawn, seconds)
    assert abs(spent[SLOW] - spent[FAST]) <= 35
    assert clock.now <= 200 + 35


def test_histories_are_shared_out_and_numbered_by_subject() -> None:
    turns = Turns(["a", "b"], 7, jobs=2, histories=2 * HISTORIES + 3)
    drawn = []
    while (one := turns.take()) is not None:
        drawn.append(one)
        turns.end(one, 100.0 if one.subject == "a" else 1.0)
    assert {(one.subject, one.number, one.histories, one.seed) for one in drawn} == {
        ("a", 0, HISTORIES, 7),
        ("a", 1, 2, 7),
        ("b", 0, HISTORIES, 7),
        ("b", 1, 1, 7),
    }
    assert {one.seconds for one in drawn} == {float("inf")}


def _raise(world: object) -> Iterator[str]:
    """A rule that was not made for what has happened, or a part of a world that is wrong."""
    raise KeyError("shard 7")


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (
            "invariants.INVARIANTS",
            "fault of the rule _raise: KeyError('shard 7') at test_turns.py",
        ),
        ("world.World.run", "A fault of the simulation, not a broken invariant:"),
    ],
)
def test_what_fails_by_itself_is_told_with_its_history(
    monkeypatch: pytest.MonkeyPatch, broken: str, told: str
) -> None:
    """Although the time of the round is over when hypothesis plays the history again."""
    new = (_raise,) if "INVARIANTS" in broken else _raise
    monkeypatch.setattr(f"tests.simulation.query.{broken}", new)
    story = play_round(Round(QUERIES.name, 1, 0, 3, float("inf"), 0.0)).story
    assert told in story
    assert "KeyError('shard 7')" in story or "KeyError: 'shard 7'" in story
    assert story.startswith("History(")


def test_a_run_fails_if_it_has_played_nothing_of_a_subject() -> None:
    name = SUBJECTS[0].name
    command = [sys.executable, "-m", "tests.simulation", "--jobs", "1", "--subject", name]
    run = subprocess.run(
        [*command, "--seconds", "0.001"],
        check=False,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert f"{name}: 0 histories" in run.stdout
    assert f"No history was played of {name}" in run.stderr
