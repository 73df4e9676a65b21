"""Looks at an application in a thread of its own, for all browsers that show it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from sparkinesis.errors import SparkinesisError
from sparkinesis.monitor.lease_monitor import LeaseMonitor
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import Shard
from sparkinesis.terminal.view import View, total
from sparkinesis.ui.look import ChartPoint, PageSnapshot, with_point
from sparkinesis.ui.reported import Reported

_log = logging.getLogger(__name__)

_LIST_EVERY = 5.0
"""Seconds between two listings of a stream whose map is shown."""
_LIST_SOON = 1.0
"""The same, if a lease is of a shard that is not listed yet."""
_SHOWN_FOR = 30.0
"""Seconds for which a stream is listed after a page has asked for its map."""


class Watcher:
    """Looks at an application at an interval; a context manager.

    Any thread may read `look` and call `show_map_of`. ``report``: asks the workers.
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
        self.look = PageSnapshot(0, wall_clock(), View("", "", "KB/s"))
        """The latest."""

    def __enter__(self) -> Watcher:
        """Take the first look. Raises the errors of `LeaseMonitor.refresh`."""
        self._look(first=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(10.0)

    def show_map_of(self, stream: StreamIdentifier | None) -> None:
        """List the stream's shards for a while; a page calls this as long as it shows the map."""
        self._shown_at[stream] = self._clock()

    def _run(self) -> None:
        while not self._is_over.wait(self._interval):
            try:
                self._look()
            except Exception:  # noqa: BLE001 - a page that stands still would be worse
                _log.exception("The page could not look at the application. It tries again.")

    def _look(self, *, first: bool = False) -> None:
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
        self.look = PageSnapshot(
            self.look.number + 1,
            now,
            view,
            self._monitor.seen.watched,
            dict(self._listed),
            reported,
            with_point(self.look.history, point),
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
        leases = self._monitor.seen.watched.leases
        return any(one.stream == stream and one.shard_id > newest for one in leases)
