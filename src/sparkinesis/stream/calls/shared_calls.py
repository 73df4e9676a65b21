"""The calls of many threads: one for all that ask at the same moment, or one after the other.

The service's clock is one of the answers that they share.
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Generic, TypeVar

from sparkinesis.metrics.health.liveness import expect
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.shard import Shard

_T = TypeVar("_T")


class SharedAnswer(Generic[_T]):
    """Makes a call, and gives its answer to every thread that asks while the answer is fresh.

    Threads that ask while the call is running wait for it, and share its answer or its error.

    call: makes the call. fresh_for: seconds. clock: monotonic, in seconds.
    """

    def __init__(
        self, call: Callable[[], _T], fresh_for: float, clock: Callable[[], float]
    ) -> None:
        self._call = call
        self._fresh_for = fresh_for
        self._clock = clock
        self._lock = threading.Lock()
        self._answered: tuple[float, float, _T] | None = None
        """When the call began and when it ended, and its answer."""
        self._failed: tuple[float, Exception] | None = None

    def __call__(self, *, since: float = -math.inf) -> _T:
        """Return the answer. Raises the call's error in every thread that waited for the call.

        since: the call began at this instant or later. For a thread that has just seen a sign that
        the last answer holds no more.
        """
        return self.with_age(since)[0]

    def with_age(self, since: float = -math.inf) -> tuple[_T, float]:
        """Return the answer and its age in seconds. Raises the same errors."""
        began = self._clock()
        with self._lock:
            if self._failed is not None and began <= self._failed[0]:
                raise self._failed[1]
            last = self._answered
            if last is None or last[0] < since or self._clock() - last[1] >= self._fresh_for:
                asked_at = self._clock()
                try:
                    answer = self._call()
                except Exception as error:
                    self._failed = self._clock(), error
                    raise
                last = self._answered = asked_at, self._clock(), answer
            return last[2], self._clock() - last[1]


_SUMMARY_IS_FRESH_FOR = 1.0
"""Seconds for which one summary is good enough."""


def shared_summary(client: StreamClient, clock: Callable[[], float]) -> SharedAnswer[StreamSummary]:
    """Return the stream's summary, asked for once a second at most, for all threads.

    A worker that acquires hundreds of shards at once needs the summary for each, and an account may
    call DescribeStreamSummary 20 times a second (the service's API reference). Raises the errors of
    `StreamClient`.
    """
    return SharedAnswer(client.describe, _SUMMARY_IS_FRESH_FOR, clock)


def anchored_clock(
    service_time_ms: int, at: float, clock: Callable[[], float]
) -> Callable[[], int]:
    """Return the service's time (epoch ms): that of one answer, plus its age. Calls nothing.

    Where a machine was suspended, the age is too short: the time is too early, and so no record is
    skipped. ``at``: the time of the answer by ``clock``, which is monotonic, in seconds.
    """
    return lambda: service_time_ms + round((clock() - at) * 1000)


def service_clock(summary: SharedAnswer[StreamSummary]) -> Callable[[], int]:
    """Return the service's time (epoch ms): that of the last summary, plus its age.

    For any thread. The result raises the errors of `StreamClient`.
    """

    def now_ms() -> int:
        answer, age = summary.with_age()
        return answer.service_time_ms + round(age * 1000)

    return now_ms


MIN_INTERVAL = 1.0
"""Seconds between two calls: a reshard may end all shards of a stream in a few seconds."""


class ShardListing:
    """The shards of a stream, listed by one call for all threads that share this object.

    clock: monotonic, in seconds; the instants of the methods are instants of this clock.
    """

    def __init__(self, client: StreamClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._shards: Sequence[Shard] = ()
        self._listed_at = float("-inf")
        self._asked_at = float("-inf")

    def listed_since(self, instant: float) -> Sequence[Shard] | None:
        """Return all shards, as listed at ``instant`` or later; None if it is too soon for a call.

        Raises the errors of `StreamClient`.
        """
        with self._lock:
            if self._listed_at >= instant:
                return self._shards
            now = self._clock()
            if now - self._asked_at < MIN_INTERVAL:
                return None
            self._asked_at = now
            self._shards, _ = self._client.list_shards()
            self._listed_at = now
            return self._shards


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
