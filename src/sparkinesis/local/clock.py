"""Where the local Kinesis takes its time from: milliseconds since the epoch, as an int.

Arrival times, retention, iterator expiry and every limit read this one clock, so a test that holds
a `ManualClock` decides when a second has passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

Clock = Callable[[], int]


def system_clock() -> int:
    return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that stands still until it is told to move. Safe to share between threads.

    Nobody can wait for it with a timeout; who has to know how it goes on asks to be told.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now = start_ms
        self._lock = threading.Lock()
        self._listeners: list[Callable[[int], None]] = []

    def __call__(self) -> int:
        with self._lock:
            return self._now

    def advance(self, ms: int) -> int:
        """Moves `ms` milliseconds forward; returns the new time."""
        if ms < 0:
            raise ValueError(f"a clock does not go back ({ms} ms)")
        with self._lock:
            self._now += ms
            now = self._now
        for listener in self._listeners:
            listener(now)
        return now

    def on_advance(self, listener: Callable[[int], None]) -> None:
        """Has `listener(now)` called after every move, in the thread that moved the clock."""
        self._listeners.append(listener)
