"""A history is the same each time: no clock, thread, hash, address or module has a say in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.simulation.dynamodb import LeaseTableModel
from tests.simulation.kinesis import KinesisClient
from tests.simulation.rounds import Round, draw
from tests.simulation.subjects import SUBJECTS

_NAMES = [subject.name for subject in SUBJECTS]


def _round(name: str, histories: int) -> Round:
    return Round(name, 1, 0, histories, deadline=1e12, seconds=1e12)


@contextmanager
def _requests_noted(told: list[str]) -> Iterator[None]:
    """Note what the services are asked, which no story tells where it changes nothing."""

    def noting(serve: Callable[..., Any]) -> Callable[..., Any]:
        def call(service: object, operation: str, request: object, *more: object) -> Any:
            told.append(f"{operation} {request} {more}")
            return serve(service, operation, request, *more)

        return call

    with ExitStack() as stack:
        for service in (KinesisClient, LeaseTableModel):
            stack.enter_context(mock.patch.object(service, "serve", noting(service.serve)))
        yield


def stories(rounds: list[Round]) -> list[list[str]]:
    """The story of each history of these rounds, and all requests of its calls."""
    told: list[list[str]] = []
    for this in rounds:
        subject: Any = next(each for each in SUBJECTS if each.name == this.subject)
        histories: list[Any] = []
        draw(this, subject.histories(), histories.append)
        told.append([])
        for history in histories:
            requests: list[str] = []
            with _requests_noted(requests):
                story = subject.tell(history)
            told[-1].append("\n".join([story, *requests]))
    return told


def _in_a_new_process(rounds: list[Round]) -> subprocess.Popen[str]:
    """Print the stories where other modules are loaded, and hashes differ."""
    root = Path(__file__).parents[2]
    program = (
        "import json\n"
        "from tests.simulation.rounds import Round\n"
        "from tests.simulation.test_determinism import stories\n"
        f"print(json.dumps(stories({rounds})))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": f"{root / 'src'}:{root}"},
        stdout=subprocess.PIPE,
        text=True,
    )


def _assert_the_same_each_time(histories: int, names: list[str]) -> None:
    rounds = [_round(name, histories) for name in names]
    with _in_a_new_process(rounds[::-1]) as other:
        here = stories(rounds)
        there, _ = other.communicate()
    assert [len(each) for each in here] == [histories] * len(names)
    assert json.loads(there)[::-1] == here


@pytest.mark.limit(300)
def test_the_same_seed_plays_the_same_histories_in_any_process() -> None:
    _assert_the_same_each_time(1, _NAMES)


@pytest.mark.long
@pytest.mark.parametrize("name", _NAMES)
def test_twenty_histories_are_the_same_each_time(name: str) -> None:
    _assert_the_same_each_time(20, [name])


def test_another_seed_is_another_history() -> None:
    subject: Any = SUBJECTS[0]
    history = subject.rough(0)
    other = replace(history, seed=history.seed + 1)
    one, another = (subject.tell(each).partition("\n\n")[2] for each in (history, other))
    assert one != another
