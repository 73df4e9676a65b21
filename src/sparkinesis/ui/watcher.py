"""Takes snapshots of an application in a thread of its own, for all browsers that show it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sparkinesis.errors import SparkinesisError
from sparkinesis.monitor.chosen_streams import shown_names
from sparkinesis.monitor.lease_monitor import LeaseMonitor
from sparkinesis.monitor.watched import WatchedTable
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import Shard
from sparkinesis.terminal.view import View, total
from sparkinesis.ui.reported import NOTHING_REPORTED, Reported

_KEPT_FOR = 3600.0
"""Seconds for which points are kept."""
_MOST_POINTS = 7200
"""The most points that are kept, whatever the interval."""


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A point of the charts: the application at one moment."""

    at: float
    """Seconds since the epoch."""
    lag_ms: int | None
    """The largest lag; None if no lag is known."""
    kilobytes_per_second: float | None
    """By the lease table; None if no owner stores its rate."""
    records_per_second: float | None
    """By the workers; None if none of them is asked."""


def with_point(before: Sequence[ChartPoint], point: ChartPoint) -> tuple[ChartPoint, ...]:
    """Return the points of the last hour with another one."""
    # If the clock was set back, the points before are at no known time.
    is_back = bool(before) and point.at < before[-1].at
    kept = [] if is_back else [one for one in before if one.at >= point.at - _KEPT_FOR]
    return (*kept, point)[-_MOST_POINTS:]


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """An application at one moment, by its table, its streams and its workers."""

    number: int
    """Greater than those of earlier snapshots."""
    at: float
    """Seconds since the epoch."""
    view: View
    """As `sparkinesis top` shows it."""
    table: WatchedTable = field(default_factory=WatchedTable)
    listed: Mapping[StreamIdentifier | None, tuple[Shard, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The shards that the service lists, of the streams whose maps are shown."""
    reported: Reported = NOTHING_REPORTED
    history: tuple[ChartPoint, ...] = ()

    @property
    def stream_names(self) -> dict[str, StreamIdentifier | None]:
        """The streams by their names for people; ``""`` is the only one of an application."""
        names = shown_names(self.table.streams)
        return {name: one for one, name in names.items()} or {"": None}


_log = logging.getLogger(__name__)

_LIST_EVERY = 5.0
"""Seconds between two listings of a stream whose map is shown."""
_LIST_SOON = 1.0
"""The same, if a lease is of a shard that is not listed yet."""
_SHOWN_FOR = 30.0
"""Seconds for which a stream is listed after a page has asked for its map."""


class Watcher:
    """Takes snapshots of an application at an interval; a context manager.

    Any thread may read `snapshot` and call `show_map_of`. ``report``: asks the workers.
    """

    def __init__(
        self,
        monitor: LeaseMonitor,
        report: Callable[[], Reported],
        interval: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._monitor = monitor
        self._report = report
        self._interval = interval
        self._clock = clock
        self._wall_clock = wall_clock
        self._shown_at: dict[StreamIdentifier | None, float] = {}
        self._listed: dict[StreamIdentifier | None, tuple[Shard, ...]] = {}
        self._listed_at: dict[StreamIdentifier | None, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ui-watcher", daemon=True)
        self.snapshot = PageSnapshot(0, wall_clock(), View("", "", "KB/s"))
        """The latest one."""

    def __enter__(self) -> Watcher:
        """Take the first snapshot. Raises the errors of `LeaseMonitor.refresh`."""
        self._take_snapshot(first=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(10.0)

    def show_map_of(self, stream: StreamIdentifier | None) -> None:
        """List the stream's shards for a while; pages that show the map keep calling."""
        self._shown_at[stream] = self._clock()

    def _run(self) -> None:
        while not self._is_over.wait(self._interval):
            try:
                self._take_snapshot()
            except Exception:  # noqa: BLE001 - a page that stands still would be worse
                _log.exception("The page could not look at the application. It tries again.")

    def _take_snapshot(self, *, first: bool = False) -> None:
        problems: tuple[str, ...] = ()
        try:
            self._monitor.refresh()
        except SparkinesisError as error:
            if first:
                raise
            problems = (str(error),)
        problems += self._list_shards()
        reported = self._report()
        view, now = self._monitor.view, self._wall_clock()
        if problems:
            view = replace(view, messages=(*problems, *view.messages))
        point = ChartPoint(
            now, view.millis_behind, view.rate, total(reported.worker_rates.values())
        )
        self.snapshot = PageSnapshot(
            self.snapshot.number + 1,
            now,
            view,
            self._monitor.snapshot.watched,
            dict(self._listed),
            reported,
            with_point(self.snapshot.history, point),
        )

    def _list_shards(self) -> tuple[str, ...]:
        """List the streams whose maps are shown and that are due; return what went wrong."""
        now = self._clock()
        for one, at in list(self._shown_at.items()):
            if now - at > _SHOWN_FOR:
                self._shown_at.pop(one)
                self._listed.pop(one, None)
                self._listed_at.pop(one, None)
        problems = []
        for stream in list(self._shown_at):
            pause = _LIST_SOON if self._has_unlisted(stream) else _LIST_EVERY
            if now - self._listed_at.get(stream, -math.inf) < pause:
                continue
            client = self._monitor.client_of(stream)
            if client is None:
                continue
            self._listed_at[stream] = now
            try:
                shards, _ = client.list_shards()
            except SparkinesisError as error:
                problems.append(f"The shards could not be listed: {error}")
            else:
                self._listed[stream] = tuple(shards)
        return tuple(problems)

    def _has_unlisted(self, stream: StreamIdentifier | None) -> bool:
        """Return True if a lease is of a shard that was made after the listing."""
        listed = {one.id for one in self._listed.get(stream, ())}
        newest = max(listed, default="")
        leases = self._monitor.snapshot.watched.leases
        return any(one.stream == stream and one.shard_id > newest for one in leases)
