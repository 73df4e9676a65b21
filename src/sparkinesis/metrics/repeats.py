"""Which of many failures are logged: the first of each kind, and its repeats ever more rarely."""

from __future__ import annotations

from collections.abc import Callable

FIRST_REPEAT = 60.0
"""Seconds until the same failure is logged again; then twice as many, and so on."""


class Repeats:
    """Counts failures, such as those of a scan each second. For one thread.

    Two are the same if their texts are the same up to the words of the service, which may hold the
    id of the request.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: dict[str, tuple[float, float]] = {}
        """When each failure was logged last, and the seconds until it is logged again."""
        self._untold: dict[str, int] = {}

    def note(self, text: str) -> int:
        """Return how often a failure has occurred since it was logged last; 0: do not log now."""
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
        """Note a success: the next failure is logged at once."""
        self._told.clear()
        self._untold.clear()
