"""Whether the loops and pools of a process go on: their signs of life, and the decision by them.

A loop says for how long it may now be silent: for its pause, or for the timeouts of a call. One
that is silent for longer stands still. So a table that does not answer is no loop that stands
still, but a call that outlasts its own timeouts is one.

What counts is the time in which the process runs: after a process was stopped, or its machine
slept, each loop seems late for a moment.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import TypeVar

import msgspec

_T = TypeVar("_T")
_R = TypeVar("_R")

PATIENCE = 10.0
"""Seconds that a loop may always be silent: for computing, on a busy machine."""
_MARGIN = 5.0
"""Seconds beyond an announced silence."""

CONNECTING = 60.0
"""Seconds: resolving a name has the resolver's timeouts, and each of its addresses is tried."""
CREDENTIALS = 180.0
"""Seconds: the calls that fetch credentials have timeouts and retries of their own."""


class SignOfLife:
    """The time by which a loop, or one of its helper threads, has to show that it runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = clock() + PATIENCE
        self._helpers: dict[SignOfLife, None] = {}

    @property
    def due(self) -> float:
        """The time by which a sign is due. With helpers, the loop waits for them: theirs counts."""
        return min((helper.due for helper in list(self._helpers)), default=self._due)

    def give(self, silent_for: float = 0.0) -> None:
        """Show that the loop runs. ``seconds``: it may be silent for as long."""
        self._due = self._clock() + max(PATIENCE, silent_for + _MARGIN)

    def during(self, run: Callable[[], object]) -> None:
        """Run a loop whose `expect` gives this sign."""
        token = _mine.set(self)
        try:
            self.give()
            run()
        finally:
            _mine.reset(token)

    def begin_help(self) -> SignOfLife:
        helper = SignOfLife(self._clock)
        self._helpers[helper] = None
        return helper

    def end_help(self, helper: SignOfLife) -> None:
        self.give()
        self._helpers.pop(helper, None)


_mine: ContextVar[SignOfLife | None] = ContextVar("sparkinesis_sign_of_life", default=None)
"""The sign of the loop that this thread runs; None in all other threads."""


def expect(silent_for: float = 0.0) -> None:
    """Show, in a loop's thread, that the loop runs, and may be silent for some seconds.

    Does nothing in other threads.
    """
    sign = _mine.get()
    if sign is not None:
        sign.give(silent_for)


def waiting(wait: Callable[[float], _R]) -> Callable[[float], _R]:
    """Return a function that waits as ``wait`` does, and announces the silence."""

    def announced(seconds: float) -> _R:
        expect(seconds)
        result = wait(seconds)
        expect()
        return result

    return announced


def helping(run: Callable[[_T], _R]) -> Callable[[_T], _R]:
    """Return ``run`` for helper threads of this loop, which waits for them."""
    sign = _mine.get()
    if sign is None:
        return run
    loop = sign

    def help_with(item: _T) -> _R:
        helper = loop.begin_help()
        token = _mine.set(helper)
        try:
            return run(item)
        finally:
            _mine.reset(token)
            loop.end_help(helper)

    return help_with


def detach() -> None:
    """Have the present context give no loop's sign: work that the loop only starts."""
    _mine.set(None)


class QueueSign:
    """A sign of life of a queue: its work is taken, or there is none."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._taken: int | None = None
        self._since = clock()

    def due(self, taken: int | None) -> float:
        """Return the time by which the next piece of work must be taken.

        taken: the pieces taken so far, None if nothing waits.
        """
        now = self._clock()
        if taken is None or taken != self._taken:
            self._taken, self._since = taken, now
        return now + PATIENCE if taken is None else self._since + PATIENCE


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
