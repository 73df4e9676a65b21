"""The progress of a worker: a report a minute, and one at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkinesis.events import Listener, WorkerEnded, WorkerReport
from sparkinesis.status import ShardStatus

REPORT_EVERY = 60.0
"""Seconds between two reports."""


class WorkerProgress:
    """Reports a worker's progress. For one thread."""

    def __init__(
        self,
        worker_id: str,
        clock: Callable[[], float],
        publish: Listener,
        records_total: Callable[[], int],
        standing_after: float = REPORT_EVERY,
    ) -> None:
        """``standing_after``: seconds after which a report names a shard that stands still."""
        self._worker_id = worker_id
        self._clock = clock
        self._publish = publish
        self._records_total = records_total
        """Returns the number of user records processed since the worker's start."""
        self._standing_after = standing_after
        self._began = self._reported_at = clock()
        self._reported = 0
        """The number of records at the last report."""

    def step(self, status: Callable[[], Sequence[ShardStatus]]) -> None:
        """Report if a minute has passed. ``status``: returns the state of each shard."""
        now = self._clock()
        if now - self._reported_at < REPORT_EVERY:
            return
        shards = sorted(status(), key=lambda one: one.lease)
        records = self._records_total()
        known = {one.lease: lag for one in shards if (lag := one.millis_behind_latest) is not None}
        furthest = max(known, key=known.__getitem__, default=None)
        standing = [
            (one.lease, one.standing_for)
            for one in shards
            if one.standing_for is not None and one.standing_for >= self._standing_after
        ]
        self._publish(
            WorkerReport(
                now - self._reported_at,
                len(shards),
                records - self._reported,
                None if furthest is None else known[furthest],
                furthest,
                tuple(sorted(standing, key=lambda one: -one[1])),
            )
        )
        self._reported_at, self._reported = now, records

    def report_end(self, *, was_forced: bool, error: str | None) -> None:
        """Report the end of the worker."""
        seconds = self._clock() - self._began
        self._publish(
            WorkerEnded(self._worker_id, seconds, self._records_total(), was_forced, error)
        )
