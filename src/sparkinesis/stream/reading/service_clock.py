"""The stream's summary and the service's clock, for many threads that ask at the same moment."""

from __future__ import annotations

from collections.abc import Callable

from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.calls.shared_calls import SharedAnswer

_FRESH_FOR = 1.0
"""Seconds for which one summary is good enough."""


def shared_summary(client: StreamClient, clock: Callable[[], float]) -> SharedAnswer[StreamSummary]:
    """Return the stream's summary, asked for once a second at most, for all threads.

    A worker that acquires hundreds of shards at once needs the summary for each, and an account may
    call DescribeStreamSummary 20 times a second (the service's API reference). Raises the errors of
    `StreamClient`.
    """
    return SharedAnswer(client.describe, _FRESH_FOR, clock)


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
