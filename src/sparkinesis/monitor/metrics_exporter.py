"""The exporter: gauges by an application's lease table and streams, which need no live worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.metrics.catalogue import (
    SHARD_CHECKPOINT_AGE,
    SHARD_LAG,
    SHARD_OWNER,
    SHARD_UNREAD,
    TABLE_LOOK_AGE,
)
from sparkinesis.metrics.health.liveness import Liveness, Part, SignOfLife, expect
from sparkinesis.metrics.health.pages import ServedTally, pages
from sparkinesis.metrics.metrics import Sample
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lease_monitor import LeaseMonitor, watching
from sparkinesis.monitor.watched import counted_lag

Checkpoints = Mapping[str, tuple[object, float]]
"""By lease key: a checkpoint, and since when it stands still with records behind it."""


def checkpoints_after(before: Checkpoints, snapshot: ApplicationSnapshot) -> Checkpoints:
    """Return the checkpoints after another scan; times are those of the watcher's clock."""
    found: dict[str, tuple[object, float]] = {}
    for one in snapshot.leases:
        at, key = one.lease.checkpoint, one.lease.key
        is_done = one.lag is not None and one.lag.millis_behind_latest == 0
        if key not in before or before[key][0] != at or is_done:
            found[key] = at, snapshot.watched.at
        else:
            found[key] = before[key]
    return found


def shard_gauges(
    snapshot: ApplicationSnapshot, checkpoints: Checkpoints, only_stream: str
) -> Iterator[Sample]:
    """Yield the gauges of each unfinished shard. ``only_stream``: that of leases that name none."""
    for one in snapshot.leases:
        lease = one.lease
        if lease.is_finished:
            continue
        labels = one.stream or only_stream, lease.shard_id
        measured = None if one.lag is None else one.lag.millis_behind_latest
        behind = counted_lag(measured, one.unread_for)
        if behind is not None:
            yield Sample(SHARD_LAG, labels, behind / 1000)
        if lease.actual_owner is not None:
            yield Sample(SHARD_OWNER, (*labels, lease.actual_owner), 1.0)
        yield Sample(SHARD_UNREAD, labels, one.unread_for or 0.0)
        if lease.key in checkpoints:
            yield Sample(
                SHARD_CHECKPOINT_AGE, labels, snapshot.watched.at - checkpoints[lease.key][1]
            )


_log = logging.getLogger(__name__)

_LAG_EVERY = 10.0
"""Seconds between two reads of a shard's lag: its consumers need the calls."""
_BEGIN = 300.0
"""Seconds that the first calls, with their retries, may take."""


class Exporter:
    """Scans an application's table at an interval, and goes on after errors."""

    def __init__(
        self,
        app: str,
        table: LeaseTable,
        streams: ChosenStreams,
        served: ServedTally,
        *,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._streams = streams
        self._interval = interval
        self._clock = clock
        self._checkpoints: Checkpoints = {}
        self._shards: tuple[Sample, ...] = ()
        self._status: Any = {"application": app}
        self._began = clock()
        self._scanned_at: float | None = None
        self._problem: str | None = "the lease table was not scanned yet"
        self._sign = SignOfLife(clock)
        live = Liveness(
            lambda: [Part("the thread that scans the lease table", self._sign.due)], clock
        )
        served.watch(self._gauges)
        labels = {"application": app}
        served.server.serve(
            pages(
                live=live.problems,
                ready=lambda: [why] if (why := self._problem) else [],
                status=lambda: {**self._status, "problem": self._problem},
                groups=lambda: [(labels, served.series())],
            ),
            live.check,
        )

    def run(self, wait: Callable[[float], bool]) -> None:
        """Scan until ``wait``, which waits for some seconds, returns True.

        Raises `OptionError` if the arguments do not fit the table.
        """
        self._sign.during(lambda: self._run(wait))

    def _run(self, wait: Callable[[float], bool]) -> None:
        while True:
            try:
                if self._watch(wait):
                    return
            except SparkinesisError as error:
                if isinstance(error, OptionError) and self._scanned_at is None:
                    raise
                if self._problem != str(error):
                    _log.warning("%s", error)
                self._problem = str(error)
            expect(self._interval)
            if wait(self._interval):
                return

    def _watch(self, wait: Callable[[float], bool]) -> bool:
        """Scan until an error; return True at the end."""
        expect(_BEGIN)
        with watching(self._table, self._streams, self._interval, lag_every=_LAG_EVERY) as monitor:
            while True:
                expect(_BEGIN)
                if monitor.refresh(timeout=min(self._interval, 2.0)):
                    self._publish(monitor)
                elif monitor.trouble is not None:
                    self._problem = monitor.trouble
                expect(self._interval)
                if wait(self._interval):
                    return True

    def _publish(self, monitor: LeaseMonitor) -> None:
        snapshot = monitor.snapshot
        self._checkpoints = checkpoints_after(self._checkpoints, snapshot)
        self._shards = tuple(shard_gauges(snapshot, self._checkpoints, monitor.only_stream or ""))
        self._status = monitor.object
        self._scanned_at = snapshot.watched.at
        self._problem = None

    def _gauges(self) -> Iterable[Sample]:
        since = self._began if self._scanned_at is None else self._scanned_at
        yield Sample(TABLE_LOOK_AGE, (), self._clock() - since)
        yield from self._shards
