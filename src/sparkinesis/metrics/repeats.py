"""Which of many failures of one kind are told: the first, each other one, then ever fewer."""

from __future__ import annotations

from collections.abc import Callable

FIRST_REPEAT = 60.0
"""Seconds until the same failure is told again; then twice as many, and so on."""


class Repeats:
    """Counts the failures of one kind, such as of a look at a table each second. For one thread.

    Two are the same if their texts are, but for what the service said: that may hold an id of the
    request.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, tuple[float, float]] = {}
        """When each failure was told last, and the seconds until it is told again."""
        self._untold: dict[str, int] = {}

    def note(self, text: str) -> int:
        """Return how often a failure has occurred since it was told last; 0: say nothing now."""
        key, now = text.partition(" The service said: ")[0], self._clock()
        untold = self._untold.get(key, 0) + 1
        at, pause = self._told.get(key, (now, 0.0))
        if now < at + pause:
            self._untold[key] = untold
            return 0
        self._told[key] = now, max(FIRST_REPEAT, 2 * pause)
        self._untold[key] = 0
        return untold

    def end(self) -> None:
        """Note a success: the next failure is told at once."""
        self._told.clear()
        self._untold.clear()
