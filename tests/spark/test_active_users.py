"""The example of who is active now, as a query: its state function, and a whole run of it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from examples.active_users.board import Board
from examples.active_users.query import update_user
from examples.active_users.users import STREAMS
from tests.active_users import run_active_users

SILENCE_MS = 120_000
NOW_MS = 1_800_000_000_000


class State:
    """The state of one user in one batch, as Spark hands it in."""

    def __init__(self, stored: tuple[int] | None, timed_out: bool = False) -> None:
        self.stored = stored
        self.hasTimedOut = timed_out
        self.timeout: int | None = None

    @property
    def exists(self) -> bool:
        return self.stored is not None

    @property
    def get(self) -> tuple[int] | None:
        return self.stored

    def getCurrentProcessingTimeMs(self) -> int:
        return NOW_MS

    def update(self, stored: tuple[int]) -> None:
        self.stored = stored

    def remove(self) -> None:
        self.stored = None

    def setTimeoutTimestamp(self, ms: int) -> None:
        self.timeout = ms


def update(state: Any, *arrivals: int) -> list[dict[str, Any]]:
    batch = pd.DataFrame(
        {
            "approximateArrivalTimestamp": pd.to_datetime(list(arrivals), unit="ms"),
            "stream": STREAMS[: len(arrivals)],
        }
    )
    rows = update_user(("ann",), iter([batch]), state, silence_ms=SILENCE_MS)
    return [row for frame in rows for row in frame.to_dict("records")]


@pytest.mark.parametrize("before", [None, (NOW_MS - 5_000,), (NOW_MS - 100,)])
def test_heartbeats_set_the_timer_anew(before: tuple[int] | None) -> None:
    state = State(before)
    arrivals = [NOW_MS - 900, NOW_MS - 300]
    (row,) = update(state, *arrivals)
    assert row == {
        "user": "ann",
        "active": True,
        "arrivals": arrivals,
        "streams": list(STREAMS),
        "planned": NOW_MS,
    }
    last = max(*arrivals, *(before or ()))
    assert state.stored == (last,)
    assert state.timeout == last + SILENCE_MS


def test_the_timer_evicts() -> None:
    state = State((NOW_MS - SILENCE_MS,), timed_out=True)
    (row,) = update(state)
    assert (row["active"], row["arrivals"]) == (False, [NOW_MS - SILENCE_MS])
    assert row["streams"] == []
    assert state.stored is None


@pytest.mark.parametrize(("planned", "old"), [(990.0, 0), (1000.0, 1)])
def test_heartbeats_of_a_batch_that_an_earlier_run_planned_are_not_old(
    planned: float, old: int
) -> None:
    """That run's batches took long, and Spark runs its last one again as it was planned."""
    board = Board(silence=120.0, clock=lambda: 1000.0)
    board.hear("ann", 800.0, "web", planned)
    assert (board.heartbeats, board.old) == ({"web": 1}, old)


@pytest.mark.parametrize("course", [["--short"], pytest.param([], marks=pytest.mark.long)])
def test_old_heartbeats_are_skipped_and_nobody_is_evicted_wrongly(course: list[str]) -> None:
    run_active_users("--spark", *course, minute=1.0)
