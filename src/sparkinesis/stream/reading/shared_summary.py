"""DescribeStreamSummary for many who ask at the same moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from sparkinesis.stream.calls.client import StreamClient, StreamSummary

_FRESH = 1.0
"""Seconds that one answer is enough for."""


class SharedSummary:
    """A stream's summary, told to all who ask within a second by one call. For any thread.

    A worker that takes up hundreds of shards at once needs the summary for each, and
    DescribeStreamSummary may be called 20 times a second by all of an account (the service's API
    reference).
    """

    def __init__(self, client: StreamClient, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: monotonic, in seconds."""
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._told: tuple[float, StreamSummary] | None = None
        self._failed: tuple[float, Exception] | None = None

    def __call__(self) -> StreamSummary:
        """The summary. Raises the errors of `StreamClient`, to all who waited for the answer."""
        return self.with_age()[0]

    def with_age(self) -> tuple[StreamSummary, float]:
        """The summary, and the seconds that have passed since it was told. Raises likewise."""
        began = self._clock()
        with self._lock:
            if self._failed is not None and began <= self._failed[0]:
                raise self._failed[1]
            if self._told is None or self._clock() - self._told[0] >= _FRESH:
                try:
                    summary = self._client.describe()
                except Exception as error:
                    self._failed = self._clock(), error
                    raise
                self._told = self._clock(), summary
            at, summary = self._told
            return summary, self._clock() - at
