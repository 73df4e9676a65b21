"""The service's clock, for many who ask at the same moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sparkinesis.stream.client import StreamClient

_FRESH = 1.0
"""Seconds that one answer is enough for."""


class ServiceClock:
    """Tells the service's time. For any thread.

    A worker that takes up hundreds of shards at once needs it for each, and DescribeStreamSummary
    may be called 20 times a second by all of an account (the service's API reference): those who
    ask within a second share an answer, and add what has passed since.
    """

    def __init__(self, client: StreamClient, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: monotonic, in seconds."""
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        self._told_ms = 0
        self._failed: tuple[float, Exception] | None = None

    def __call__(self) -> int:
        """Epoch ms. Raises the errors of `StreamClient`, to all who waited for the answer."""
        began = self._clock()
        with self._lock:
            if self._failed is not None and began <= self._failed[0]:
                raise self._failed[1]
            if self._clock() - self._asked_at >= _FRESH:
                try:
                    self._told_ms = self._client.describe().service_time_ms
                except Exception as error:
                    self._failed = self._clock(), error
                    raise
                self._asked_at = self._clock()
            return self._told_ms + round((self._clock() - self._asked_at) * 1000)
