"""Looks at an application again and again: its lease table, and the lags of its leases."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sparkinesis.errors import LeaseTableUnavailableError
from sparkinesis.monitor.application_view import top_object, top_view
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lease_report import lease_rows
from sparkinesis.monitor.streams import unread_streams
from sparkinesis.monitor.watched import QUIET, WatchedTable, unread_for
from sparkinesis.terminal.view import View

if TYPE_CHECKING:
    from sparkinesis.lease.table.table import LeaseTable
    from sparkinesis.monitor.lag_watch import LagWatch
    from sparkinesis.monitor.lags import Lag
    from sparkinesis.stream.address import StreamIdentifier


class LeaseMonitor:
    """Scans a lease table and asks for the lags of its leases at an interval. For one thread."""

    def __init__(
        self,
        table: LeaseTable,
        streams: ChosenStreams,
        lags: LagWatch,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._streams = streams
        self._lag_watch = lags
        self._interval = interval
        self._clock = clock
        self._watched = WatchedTable()
        self._lags: Mapping[str, Lag] = {}
        self._due = clock()
        self._pause = interval
        self._trouble: str | None = None

    def refresh(self, timeout: float | None = 0.0) -> bool:
        """Scan the table if it is due, and read the lags; return True if a scan succeeded.

        ``timeout``: seconds to wait for lags that are not known yet; None: without limit.
        Raises what `LagWatch.known` raises, and at the first scan what `LeaseTable.scan` raises.
        """
        # The nearest turn counts, which may come a moment too early.
        is_due = self._clock() >= self._due - self._interval / 2
        looked = is_due and self._scan_table()
        self._lags = self._lag_watch.known(timeout)
        return looked

    def _scan_table(self) -> bool:
        began = self._clock()
        try:
            scan = self._table.scan(consistent=False)
        except LeaseTableUnavailableError as error:
            if self._watched.began is None:
                raise
            self._trouble = str(error)
            return False
        finally:
            # A large table is scanned less often.
            self._pause = max(self._interval, 5 * (self._clock() - began))
            self._due = began + self._pause
        self._trouble = None
        self._watched = self._watched.after_scan(scan.leases, began, scan.broken)
        self._lag_watch.ask_for(self.shown.leases)
        return True

    @property
    def shown(self) -> WatchedTable:
        """The leases of the streams that the operator wants to see."""
        return self._watched.of(self._streams.wanted(self._watched.streams))

    @property
    def lags(self) -> Mapping[str, Lag]:
        """The lags that are known, by lease key."""
        return self._lags

    @property
    def unread_for(self) -> Mapping[str, float]:
        """For how many seconds no live worker has read a shard, by lease key."""
        return unread_for(self.shown, self._quiet)

    @property
    def trouble(self) -> str | None:
        """The error of the last scan, if it failed."""
        return self._trouble

    @property
    def _unread(self) -> frozenset[StreamIdentifier]:
        return unread_streams(self._watched, self._quiet) & self.shown.streams

    @property
    def only_stream(self) -> str | None:
        """The stream that the operator names for a table whose leases name none."""
        selectors = self._streams.selectors
        return selectors[0].name if len(selectors) == 1 and not self._watched.streams else None

    @property
    def view(self) -> View:
        shown = self.shown
        count = len(shown.streams)
        what = f"stream {self.only_stream}" if self.only_stream else ""
        if count:
            what = f"{count} stream{'s' * (count != 1)}"
        title = self._table.name + (f", {what}" if what else "")
        summary = f"updated every {self._pause:.3g} s"
        if self._trouble is not None:
            summary = f"last updated {self._clock() - self._watched.at:.0f} s ago"
        return top_view(
            title,
            summary,
            shown,
            self._lags,
            messages=[self._trouble] if self._trouble else [],
            unread_streams=self._unread,
            quiet=self._quiet,
        )

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows that `sparkinesis leases` shows, too."""
        return lease_rows(self.shown, self._lags, self._quiet)

    @property
    def json(self) -> str:
        found = top_object(
            self._table.name,
            self.only_stream,
            self.shown,
            self._lags,
            unread_streams=self._unread,
            quiet=self._quiet,
        )
        return json.dumps(found)

    @property
    def _quiet(self) -> float:
        return max(QUIET, 3 * self._pause)
