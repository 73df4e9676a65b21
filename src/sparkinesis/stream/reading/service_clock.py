"""The stream's summary and the service's clock, for many threads that ask at the same moment."""

from __future__ import annotations

from collections.abc import Callable

from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.calls.shared_answer import SharedAnswer

_FRESH_FOR = 1.0
"""Seconds for which one summary is good enough."""


def shared_summary(client: StreamClient, clock: Callable[[], float]) -> SharedAnswer[StreamSummary]:
    """Return the stream's summary, asked for once a second at most, for all threads.

    A worker that acquires hundreds of shards at once needs the summary for each, and an account may
    call DescribeStreamSummary 20 times a second (the service's API reference). Raises the errors of
    `StreamClient`.
    """
    return SharedAnswer(client.describe, _FRESH_FOR, clock)


class AnchoredClock:
    """The service's time: that of one answer, plus the answer's age. Calls nothing.

    Where a machine was suspended, the age is too short: the time is too early, and so no record is
    skipped.
    """

    def __init__(self, service_time_ms: int, at: float, clock: Callable[[], float]) -> None:
        """``at``: the time of the answer by ``clock``, which is monotonic, in seconds."""
        self._service_time_ms = service_time_ms
        self._at = at
        self._clock = clock

    def __call__(self) -> int:
        """Return epoch ms."""
        return self._service_time_ms + round((self._clock() - self._at) * 1000)


class ServiceClock:
    """The service's time: that of the last summary, plus the summary's age. For any thread."""

    def __init__(self, summary: SharedAnswer[StreamSummary]) -> None:
        self._summary = summary

    def __call__(self) -> int:
        """Return epoch ms. Raises the errors of `StreamClient`."""
        summary, age = self._summary.with_age()
        return summary.service_time_ms + round(age * 1000)
