"""Scans an application's lease table repeatedly, and reads the lags of its leases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sparkinesis.errors import LeaseTableUnavailableError
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lag_watch import LAG_EVERY, LagWatch
from sparkinesis.monitor.lags import Lag
from sparkinesis.monitor.lease_report import top_object, top_view
from sparkinesis.monitor.watched import QUIET, WatchedTable
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.terminal.printing import counted
from sparkinesis.terminal.view import View


@contextmanager
def watching(
    table: LeaseTable,
    streams: ChosenStreams,
    interval: float,
    *,
    give_up_after: float = 1.0,
    lag_every: float = LAG_EVERY,
) -> Iterator[LeaseMonitor]:
    """Yield a monitor, with the threads that read the lags.

    ``give_up_after``: seconds after which the call for a lag is no longer retried: a failed one is
    repeated at the next turn. ``lag_every``: the least seconds between two reads of a shard's lag.
    Raises what `LeaseTable.scan` and `ChosenStreams.lag_streams` raise.
    """
    leases = table.scan(consistent=False).leases
    lag_streams = streams.lag_streams(leases, table, give_up_after)
    with LagWatch(lag_streams, every=lag_every) as lags:
        yield LeaseMonitor(table, streams, lags, interval)


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
        self.snapshot = ApplicationSnapshot.of(WatchedTable(), {})
        """The application as of the last scan; empty before it."""
        self.trouble: str | None = None
        """The error of the last scan, if it failed."""
        self._table = table
        self._streams = streams
        self._lag_watch = lags
        self._interval = interval
        self._clock = clock
        self._watched = WatchedTable()
        self._lags: Mapping[str, Lag] = {}
        self._due = clock()
        self._pause = interval

    def refresh(self, timeout: float | None = 0.0) -> bool:
        """Scan the table if it is due, and read the lags; return True if a scan succeeded.

        ``timeout``: seconds to wait for lags that are not known yet; None: without limit.
        Raises what `LagWatch.known` raises, and at the first scan what `LeaseTable.scan` raises.
        """
        # The nearest turn counts, which may come a moment too early.
        is_due = self._clock() >= self._due - self._interval / 2
        has_scanned = is_due and self._scan_table()
        try:
            self._lags = self._lag_watch.known(timeout)
        finally:
            quiet = max(QUIET, 3 * self._pause)
            wanted = self._streams.wanted(self._watched.streams)
            self.snapshot = ApplicationSnapshot.of(self._watched, self._lags, wanted, quiet)
        return has_scanned

    def _scan_table(self) -> bool:
        began = self._clock()
        try:
            scan = self._table.scan(consistent=False)
        except LeaseTableUnavailableError as error:
            if self._watched.began is None:
                raise
            self.trouble = str(error)
            return False
        finally:
            # A large table is scanned less often.
            self._pause = max(self._interval, 5 * (self._clock() - began))
            self._due = began + self._pause
        self.trouble = None
        self._watched = self._watched.after_scan(scan.leases, began, scan.broken)
        wanted = self._streams.wanted(self._watched.streams)
        self._lag_watch.ask_for(self._watched.of(wanted).leases)
        return True

    @property
    def only_stream(self) -> str | None:
        """The stream that the operator names for a table whose leases name none."""
        selectors = self._streams.selectors
        return selectors[0].name if len(selectors) == 1 and not self._watched.streams else None

    def client_of(self, stream: StreamIdentifier | None) -> StreamClient | None:
        """Return the client of a stream with leases; None if there is none, or not yet."""
        its = (one for one in self.snapshot.watched.leases if one.stream == stream)
        found = next(map(self._lag_watch.streams.of, its), None)
        return found if isinstance(found, StreamClient) else None

    @property
    def view(self) -> View:
        """The application as `sparkinesis top` shows it."""
        what = f"stream {self.only_stream}" if self.only_stream else ""
        if self.snapshot.names:
            what = counted(len(self.snapshot.names), "stream")
        summary = f"updated every {self._pause:.3g} s"
        if self.trouble is not None:
            summary = f"last updated {self._clock() - self._watched.at:.0f} s ago"
        messages = [self.trouble] if self.trouble else []
        return top_view(
            ", ".join(filter(None, (self._table.name, what))), summary, self.snapshot, messages
        )

    @property
    def object(self) -> dict[str, Any]:
        """The same for JSON."""
        return top_object(self._table.name, self.only_stream, self.snapshot)
