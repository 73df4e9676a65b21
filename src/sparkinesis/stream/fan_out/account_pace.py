"""The pace of calls that an account may make only a few times a second, for all of its streams."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from types import MappingProxyType

from sparkinesis.metrics.health.signs import expect

BETWEEN = MappingProxyType(
    {
        "DescribeStreamConsumer": 0.1,
        "DescribeStreamSummary": 0.1,
        "RegisterStreamConsumer": 0.25,
    }
)
"""Seconds between two calls of one process. An account may make 20, 20 and 5 a second (API
reference); other processes need some of them, too."""


def at_once(operation: str) -> None:
    """Do not wait: the pace of a process that reads one stream."""


class AccountPace:
    """Puts the calls of many threads one after the other, some time apart. For any thread.

    clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._next: dict[str, float] = defaultdict(lambda: float("-inf"))

    def __call__(self, operation: str) -> None:
        """Wait for this thread's turn to make a call of ``operation``."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next[operation])
            self._next[operation] = turn + BETWEEN[operation]
        if turn > now:
            expect(turn - now)
            self._sleep(turn - now)
