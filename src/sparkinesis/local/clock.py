"""Clocks for the local Kinesis, and the alarms of responses that wait for an instant or an event.

A clock is a function that returns milliseconds since the epoch, as an int.

Arrival times, retention, iterator expiry and every limit read one clock, so a test that passes a
`ManualClock` decides when a second has passed.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

Clock = Callable[[], int]


def system_clock() -> int:
    """Return the machine's time."""
    return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when `advance` is called. Safe to share between threads.

    A thread cannot wait for this clock with a timeout; it registers a listener with `on_advance`.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now = start_ms
        self._lock = threading.Lock()
        self._listeners: list[Callable[[int], None]] = []

    def __call__(self) -> int:
        with self._lock:
            return self._now

    def advance(self, ms: int) -> int:
        """Move `ms` milliseconds forward and return the new time."""
        if ms < 0:
            raise ValueError(f"cannot advance the clock by {ms} ms: it only moves forward")
        with self._lock:
            self._now += ms
            now = self._now
        for listener in self._listeners:
            listener(now)
        return now

    def on_advance(self, listener: Callable[[int], None]) -> None:
        """Call `listener(now)` after every `advance`, in the thread that called `advance`."""
        self._listeners.append(listener)


@dataclasses.dataclass(frozen=True)
class IdleUntil:
    """Nothing to send until `wake` is called or the clock reaches `until_ms`."""

    until_ms: int


class Alarm:
    """Wakes the sender of a response: by an event, or once an `IdleUntil` is over.

    wake: called, from any thread. Set by the sender.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], object] = _ignore
        self._at_ms: int | None = None

    def set(self, until_ms: int) -> IdleUntil:
        """Return an `IdleUntil`, after which `tick` wakes the sender."""
        self._at_ms = until_ms
        return IdleUntil(until_ms)

    def tick(self, now: int) -> None:
        """Wake the sender if the clock has reached the time of its `IdleUntil`."""
        if self._at_ms is not None and now >= self._at_ms:
            self.ring()

    def stop(self) -> None:
        """Do not wake the sender by `tick`."""
        self._at_ms = None

    def silence(self) -> None:
        """Wake the sender no more: it has gone."""
        self.wake = _ignore

    def ring(self) -> None:
        self.wake()


def _ignore() -> None:
    pass
