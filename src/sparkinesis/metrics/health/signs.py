"""Signs of life: how a loop shows that it runs, also while it waits or makes a call.

A loop says for how long it may now be silent: for its pause, or for the timeouts of a call. One
that is silent for longer stands still. So a table that does not answer is no loop that stands
still, but a call that outlasts its own timeouts is one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

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
