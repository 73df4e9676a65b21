"""Decides whether the loops and pools of a process go on.

What counts is the time in which the process runs: after a process was stopped, or its machine
slept, each loop seems late for a moment.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping

import msgspec

CONFIRMED = 2.0
"""Seconds of a running process, by its checks, that a part must be late before it stands still."""

CHECK_EVERY = 0.5
"""Seconds between two checks."""


class Part(msgspec.Struct, frozen=True):
    """A loop or a pool at one moment."""

    name: str
    """The name for people, such as "the loop that renews leases"."""
    due: float = math.inf
    """The time by which it is due to give a sign of life."""
    is_dead: bool = False
    """True if its thread has ended, although it has work to do."""


def after_check(
    late: Mapping[str, float], parts: Iterable[Part], now: float, seconds: float
) -> dict[str, float]:
    """Return for how long each part has been late by checks, by name; see `CONFIRMED`. Pure.

    late: the same at the check before. seconds: the time since then, in which the process ran.
    """
    return {
        part.name: late[part.name] + seconds if part.name in late else 0.0
        for part in parts
        if now > part.due
    }


def problems(parts: Iterable[Part], late: Mapping[str, float], now: float) -> tuple[str, ...]:
    """Return why the process is not alive: a sentence for each part. Pure."""
    return tuple(
        f"{part.name} has died"
        if part.is_dead
        else f"{part.name} stands still: its sign of life is {now - part.due:.0f} s overdue"
        for part in parts
        if part.is_dead or (now > part.due and late.get(part.name, 0.0) >= CONFIRMED)
    )


class Liveness:
    """Checks the parts of a process from time to time. For any thread.

    every: seconds between two calls of `check`.
    """

    def __init__(
        self,
        parts: Callable[[], Iterable[Part]],
        clock: Callable[[], float],
        every: float = CHECK_EVERY,
    ) -> None:
        self._parts = parts
        self._clock = clock
        self._longest = 2 * every
        self._lock = threading.Lock()
        self._late: dict[str, float] = {}
        self._checked_at = clock()

    def check(self) -> None:
        """Note which parts are late."""
        with self._lock:
            now = self._clock()
            seconds = min(now - self._checked_at, self._longest)
            self._checked_at = now
            self._late = after_check(self._late, self._parts(), now, seconds)

    def problems(self) -> tuple[str, ...]:
        """Return why the process is not alive; () if it is."""
        with self._lock:
            late = self._late
        return problems(self._parts(), late, self._clock())
