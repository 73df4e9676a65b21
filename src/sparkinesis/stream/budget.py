"""Call and byte budgets: what keeps a reader within a shard's limits before the service has to.

A shard takes 5 GetRecords and 5 GetShardIterator calls a second and gives 2 MB/s, for all its
polling consumers together (Kinesis' quotas page). Planner and readers run in different processes
and take turns on a shard, so each side has a budget of its own, and together they hold the limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

MAX_RECORDS_PER_CALL = 10_000
"""The most records that one GetRecords call returns, beside 10 MB."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What one side, planner or reader, allows itself on one shard; 0 means without limit."""

    calls_per_second: float = 5 / 3
    bytes_per_second: float = 2_000_000.0

    @property
    def spacing(self) -> float:
        """Seconds between two calls of one kind."""
        return 1.0 / self.calls_per_second if self.calls_per_second else 0.0

    def cost(self, size: int) -> float:
        """Seconds of the byte budget that a page of ``size`` bytes uses up."""
        return size / self.bytes_per_second if self.bytes_per_second else 0.0


class ShardBudget:
    """Spaces the calls of one kind on one shard. Thread-safe: callers reserve, then wait.

    A bucket that holds a single call: a burst of saved-up calls would take what other consumers
    of the shard need.
    """

    def __init__(
        self,
        pace: Pace,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pace = pace
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = float("-inf")

    def wait(self) -> None:
        """Return when the next call may be made, and count it as made."""
        with self._lock:
            now = self._clock()
            start = max(now, self._free_at)
            self._free_at = start + self._pace.spacing
        if start > now:
            self._sleep(start - now)

    def spend(self, size: int) -> None:
        """Count ``size`` bytes read: a 10 MB page keeps the shard busy for five seconds."""
        cost = self._pace.cost(size)
        with self._lock:
            self._free_at = max(self._free_at, self._clock() + cost)
