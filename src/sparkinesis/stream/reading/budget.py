"""Call and byte budgets, which keep a reader within a shard's limits.

A shard accepts 5 GetRecords and 5 GetShardIterator calls a second and returns 2 MB/s, for all its
polling consumers together (Kinesis' quotas page). The planner and the readers of a query run in
different processes and alternate on a shard, so each side has its own budget, and the sum is within
the limit. A `BudgetState` holds the instant of the next call, for this process or for all readers
of a machine (`source/reading/shard_reader.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

LARGEST_PAGE = 10_000_000
"""The approximate most bytes that one GetRecords call returns."""

SLOWEST, FASTEST = 0.001, 10**12
"""The bounds of a pace that an option gives, in calls or bytes a second."""

_LATE = 60.0
"""Seconds beyond twice the largest cost of a call: a later instant is from before a reboot."""


class Pace(msgspec.Struct, frozen=True):
    """The limits of one side (planner or readers) on one shard; 0 means no limit."""

    calls_per_second: float = 5 / 3
    bytes_per_second: float = 2_000_000.0

    @property
    def is_limited(self) -> bool:
        """True if calls or bytes have a limit."""
        return bool(self.calls_per_second or self.bytes_per_second)

    @property
    def spacing(self) -> float:
        """Seconds between two calls of one kind."""
        return 1.0 / self.calls_per_second if self.calls_per_second else 0.0

    def cost(self, size: int) -> float:
        """Return the seconds of the byte budget that a page of ``size`` bytes uses."""
        return size / self.bytes_per_second if self.bytes_per_second else 0.0


class BudgetState(Protocol):
    """The earliest instant of the next call. Read and set it within `with`."""

    free_at: float
    """Seconds of `time.monotonic`."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...


class LocalBudgetState:
    """A budget's state in memory, which the threads of one process share."""

    def __init__(self) -> None:
        self.free_at = float("-inf")
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class CallBudget:
    """Spaces the calls of one operation on one shard. Thread-safe; make each call within `with`.

    A token bucket that holds a single call: a burst of saved calls would take what other consumers
    of the shard need. The spacing starts at a call's answer, because the delay of a request is
    unknown: so successive callers reach the service at that distance, regardless of their delays.
    Simultaneous callers, such as speculative tasks, keep the distance when they send.

    ``new_state`` is not called for a pace without limits.
    """

    def __init__(
        self,
        pace: Pace,
        new_state: Callable[[], BudgetState] = LocalBudgetState,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.pace = pace
        self._state = new_state() if pace.is_limited else None
        self._latest = 2 * max(pace.spacing, pace.cost(LARGEST_PAGE)) + _LATE
        self._clock = clock
        self._sleep = sleep

    def __enter__(self) -> None:
        """Wait until the next call may be made, and count the call."""
        if self._state is None:
            return
        while True:
            with self._state:
                now = self._clock()
                wait = self._state.free_at - now
                # An instant this late is from before a reboot, and means nothing.
                if wait <= 0 or wait > self._latest:
                    self._state.free_at = now + self.pace.spacing
                    return
            self._sleep(wait)

    def __exit__(self, *_: object) -> None:
        self._busy_for(self.pace.spacing)

    def spend(self, size: int) -> None:
        """Count ``size`` bytes: a 10 MB page delays the next call by five seconds."""
        self._busy_for(self.pace.cost(size))

    def idle_for(self) -> float:
        """Return the seconds since a call is permitted; negative: the seconds until then."""
        return float("inf") if self._state is None else self._clock() - self._state.free_at

    def due_in(self) -> float:
        """Return the seconds until the next call is permitted; 0 if it is now."""
        return max(0.0, -self.idle_for())

    def _busy_for(self, seconds: float) -> None:
        if self._state is None:
            return
        with self._state:
            self._state.free_at = max(self._state.free_at, self._clock() + seconds)


class ShardBudget:
    """The budgets of one side (planner or readers) on one shard, one for each operation.

    ``new_state`` returns the state for the calls of an operation.
    """

    def __init__(
        self,
        pace: Pace,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        new_state: Callable[[str], BudgetState] = lambda _: LocalBudgetState(),
    ) -> None:
        def budget(operation: str, pace: Pace) -> CallBudget:
            return CallBudget(pace, lambda: new_state(operation), clock, sleep)

        self.records = budget("GetRecords", pace)
        self.iterators = budget("GetShardIterator", Pace(pace.calls_per_second, 0.0))

    def set_pace(self, pace: Pace) -> None:
        """Space the calls after the next one by another pace, limited if this one is."""
        self.records.pace = pace
        self.iterators.pace = Pace(pace.calls_per_second, 0.0)
