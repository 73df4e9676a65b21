"""The progress of a worker: a report a minute, and one at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparkinesis.events import Listener, WorkerEnded, WorkerReport

REPORT_EVERY = 60.0
"""Seconds between two reports."""


class WorkerProgress:
    """Reports a worker's progress. For one thread."""

    def __init__(
        self,
        worker_id: str,
        clock: Callable[[], float],
        tell: Listener,
        records_total: Callable[[], int],
    ) -> None:
        self._worker_id = worker_id
        self._clock = clock
        self._tell = tell
        self._records_total = records_total
        """Returns the number of user records processed since the worker's start."""
        self._began = self._reported_at = clock()
        self._reported = 0
        """The number of records at the last report."""

    def step(self, lags_now: Callable[[], Mapping[str, int | None]]) -> None:
        """Report if a minute has passed. ``lags_now``: returns the lag of each shard."""
        now = self._clock()
        if now - self._reported_at < REPORT_EVERY:
            return
        lags = lags_now()
        records = self._records_total()
        known = {shard_id: lag for shard_id, lag in sorted(lags.items()) if lag is not None}
        furthest = max(known, key=known.__getitem__, default=None)
        self._tell(
            WorkerReport(
                now - self._reported_at,
                len(lags),
                records - self._reported,
                None if furthest is None else known[furthest],
                furthest,
            )
        )
        self._reported_at, self._reported = now, records

    def tell_end(self, *, was_forced: bool, error: str | None) -> None:
        """Report the end of the worker."""
        seconds = self._clock() - self._began
        self._tell(WorkerEnded(self._worker_id, seconds, self._records_total(), was_forced, error))
