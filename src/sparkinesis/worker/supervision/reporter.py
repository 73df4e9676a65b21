"""`Reporter`: makes the reports on a worker, each with what is news to its supervisor."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from sparkinesis.metrics.tally import Series, Tally
from sparkinesis.status import Failure, StreamStatus
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.supervision.messages import Report

_SERIES_EVERY = 5.0
"""Seconds between two reports with metrics: shorter than Prometheus' usual intervals."""

MOST = 200
"""The most unread shards that one report lists."""


def longest(unread: Mapping[str, float] | None) -> dict[str, float] | None:
    """Return the shards that have been unread for longest, at most `MOST`, by lease key.

    None for None.
    """
    if unread is None:
        return None
    return dict(sorted(unread.items(), key=lambda each: (-each[1], each[0]))[:MOST])


class Reporter:
    """What was reported on this connection. Reports on earlier connections may be lost.

    tally: has the worker's metrics; None: they and its health are not reported.
    """

    def __init__(self, tally: Tally | None) -> None:
        self._tally = tally
        self._series_due = -math.inf
        """The time from which on a report has the worker's metrics."""
        self._connection = 0
        self._counts: dict[str, int] = {}
        """The reported count of each failure, by fingerprint."""
        self._streams: list[tuple[str, str | None, str | None]] | None = []
        """The streams as reported; None: they were not."""

    def report(self, worker: Worker, connection: int, *, is_last: bool = False) -> Report:
        """Return the next report. ``connection``: the number of connections so far."""
        if connection != self._connection:
            if self._connection:
                self._counts, self._streams = {}, None
            self._connection = connection
        worker.look_at_health()
        is_watched = self._tally is not None
        return Report(
            tuple(worker.status()),
            worker.records_total(),
            True,
            self._new_failures(worker),
            worker.problem,
            longest(worker.unread_shards()),
            self._new_streams(worker),
            worker.why_not_live() if is_watched else (),
            worker.why_not_ready() if is_watched else (),
            self._series(is_last),
        )

    def _series(self, is_last: bool) -> tuple[Series, ...] | None:
        now = time.monotonic()
        if self._tally is None or (now < self._series_due and not is_last):
            return None
        self._series_due = now + _SERIES_EVERY
        return tuple(self._tally.series())

    def _new_failures(self, worker: Worker) -> tuple[Failure, ...]:
        found = tuple(
            failure
            for failure in worker.failures()
            if failure.count != self._counts.get(failure.fingerprint)
        )
        self._counts.update((failure.fingerprint, failure.count) for failure in found)
        return found

    def _new_streams(self, worker: Worker) -> tuple[StreamStatus, ...] | None:
        streams = worker.streams()
        # The seconds of a failure go on by themselves.
        told = [(one.stream, one.identifier, one.problem) for one in streams]
        if told == self._streams:
            return None
        self._streams = told
        return streams
