"""The example of who is active now, as a query: its state function, and a whole run of it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from examples.active_users.query import update_user
from tests.active_users import run_active_users

SILENCE_MS = 120_000
STARTED_MS = 1_800_000_000_000


class State:
    """The state of one user in one batch, as Spark hands it in."""

    def __init__(self, now: int, stored: tuple[int, int] | None, timed_out: bool = False) -> None:
        self.now = now
        self.stored = stored
        self.hasTimedOut = timed_out
        self.timeout: int | None = None

    @property
    def get(self) -> tuple[int, int] | None:
        return self.stored

    def getCurrentProcessingTimeMs(self) -> int:
        return self.now

    def update(self, stored: tuple[int, int]) -> None:
        self.stored = stored

    def remove(self) -> None:
        self.stored = None

    def setTimeoutDuration(self, ms: int) -> None:
        self.timeout = ms


def update(state: Any, *arrivals: int) -> list[dict[str, Any]]:
    batch = pd.DataFrame({"approximateArrivalTimestamp": pd.to_datetime(list(arrivals), unit="ms")})
    rows = update_user(("ann",), iter([batch]), state, silence_ms=SILENCE_MS, started_ms=STARTED_MS)
    return [row for frame in rows for row in frame.to_dict("records")]


def test_heartbeats_set_the_timer_anew() -> None:
    now = STARTED_MS + 5_000
    state = State(now, None)
    (row,) = update(state, now - 900, now - 300)
    assert row == {
        "user": "ann",
        "active": True,
        "arrivals": [now - 900, now - 300],
        "planned": now,
    }
    assert state.stored == (now - 300, now)
    assert state.timeout == SILENCE_MS


def test_the_timer_evicts() -> None:
    heard = STARTED_MS + 1_000
    state = State(heard + SILENCE_MS, (heard - 300, heard), timed_out=True)
    (row,) = update(state)
    assert (row["active"], row["arrivals"]) == (False, [heard - 300])
    assert state.stored is None


@pytest.mark.parametrize("stopped_for", [60_000, 86_400_000])
def test_a_timer_that_went_off_while_the_query_was_stopped_is_set_once_more(
    stopped_for: int,
) -> None:
    heard = STARTED_MS - stopped_for
    now = max(STARTED_MS, heard + SILENCE_MS) + 2_000
    state = State(now, (heard, heard), timed_out=True)
    assert update(state) == []
    assert state.stored == (heard, heard)
    assert state.timeout == STARTED_MS + SILENCE_MS - now


@pytest.mark.parametrize("course", [["--short"], pytest.param([], marks=pytest.mark.long)])
def test_old_heartbeats_are_skipped_and_nobody_is_evicted_wrongly(course: list[str]) -> None:
    run_active_users("--spark", *course, minute=1.6)
