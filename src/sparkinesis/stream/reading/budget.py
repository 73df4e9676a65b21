"""Call and byte budgets: what keeps a reader within a shard's limits before the service has to.

A shard takes 5 GetRecords and 5 GetShardIterator calls a second and gives 2 MB/s, for all its
polling consumers together (Kinesis' quotas page). Planner and readers run in different processes
and take turns on a shard, so each side has a budget of its own, and together they hold the limit.
When the next call may be made is in a slot: of this process, or of all readers of a machine
(`sparkinesis.stream.reading.machine_budget`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

MAX_RECORDS_PER_CALL = 10_000
"""The most records that one GetRecords call returns, beside 10 MB."""

LARGEST_PAGE = 10_000_000
"""Bytes that one GetRecords call returns at most, nearly."""

_LATE = 60.0
"""Seconds beyond twice what any call costs: no reader of this boot wrote an instant that late."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What one side, planner or reader, allows itself on one shard; 0 means without limit."""

    calls_per_second: float = 5 / 3
    bytes_per_second: float = 2_000_000.0

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to wait for."""
        return bool(self.calls_per_second or self.bytes_per_second)

    @property
    def spacing(self) -> float:
        """Seconds between two calls of one kind."""
        return 1.0 / self.calls_per_second if self.calls_per_second else 0.0

    def cost(self, size: int) -> float:
        """Seconds of the byte budget that a page of ``size`` bytes uses up."""
        return size / self.bytes_per_second if self.bytes_per_second else 0.0


class BudgetState(Protocol):
    """Where the instant is kept from which on a call may be made; read and set it within `with`."""

    free_at: float
    """Seconds of `time.monotonic`."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class LocalBudgetState:
    """A slot of whoever made it: shared by threads only."""

    def __init__(self) -> None:
        self.free_at = float("-inf")
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()


class CallBudget:
    """Spaces the calls of one kind on one shard. Thread-safe; each call is made within `with`.

    A bucket that holds a single call: a burst of saved-up calls would take what other consumers
    of the shard need. The spacing runs from a call's answer, since nobody knows how long the call
    was on its way: callers that take turns reach the service that far apart, whatever delays them.
    Callers at the same time, as with speculative tasks, are apart when they send.

    ``new_state`` is not called for a pace without limits.
    """

    def __init__(
        self,
        pace: Pace,
        new_state: Callable[[], BudgetState] = LocalBudgetState,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pace = pace
        self._state = new_state() if pace.is_limited else None
        self._latest = 2 * max(pace.spacing, pace.cost(LARGEST_PAGE)) + _LATE
        self._clock = clock
        self._sleep = sleep

    def __enter__(self) -> None:
        """Return when the next call may be made, and count it as made."""
        if self._state is None:
            return
        while True:
            with self._state:
                now = self._clock()
                wait = self._state.free_at - now
                # Before a reboot the clock was ahead: such an instant says nothing.
                if wait <= 0 or wait > self._latest:
                    self._state.free_at = now + self._pace.spacing
                    return
            self._sleep(wait)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._busy_for(self._pace.spacing)

    def spend(self, size: int) -> None:
        """Count ``size`` bytes read: a 10 MB page keeps the shard busy for five seconds."""
        self._busy_for(self._pace.cost(size))

    def idle_for(self) -> float:
        """Seconds since when a call may be made; less than 0: until then."""
        return float("inf") if self._state is None else self._clock() - self._state.free_at

    def _busy_for(self, seconds: float) -> None:
        if self._state is None:
            return
        with self._state:
            self._state.free_at = max(self._state.free_at, self._clock() + seconds)


class ShardBudget:
    """What one side may call on one shard: each operation has a limit of its own.

    ``new_state`` gives the slot for the calls of an operation.
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
