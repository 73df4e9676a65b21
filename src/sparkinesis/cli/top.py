"""`sparkinesis top`: a live view of an application's shards, their owners and their lag."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sparkinesis.cli.lease_report import lease_rows
from sparkinesis.cli.options import (
    AppName,
    DynamoDBEndpoint,
    Endpoint,
    Profile,
    Region,
    Streams,
    errors_in_one_line,
)
from sparkinesis.cli.streams import CommandStreams
from sparkinesis.cli.top_view import top_object, top_view
from sparkinesis.errors import LeaseTableUnavailableError
from sparkinesis.monitor.streams import unread_streams
from sparkinesis.monitor.watched import QUIET, WatchedTable
from sparkinesis.terminal.names import printable
from sparkinesis.terminal.table import print_table
from sparkinesis.terminal.view import View

if TYPE_CHECKING:
    from sparkinesis.lease.table.table import LeaseTable
    from sparkinesis.monitor.lag_watch import LagWatch
    from sparkinesis.monitor.lags import Lag
    from sparkinesis.stream.address import StreamIdentifier

_LINES = 10.0
"""Seconds between two lines if the output is no terminal."""
_FIRST_LAGS = 2.0
"""Seconds that the first view waits for the lags at most."""


def top(
    *,
    app: AppName,
    stream: Streams = None,
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    interval: Annotated[
        float, typer.Option(min=0.5, metavar="SECONDS", help="Seconds between two scans.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the state once and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each scan.")
    ] = False,
) -> None:
    """Watch an application: its shards, their owners, and their lag."""
    try:
        with errors_in_one_line("top"), ExitStack() as stack:
            from sparkinesis.monitor.lag_watch import LagWatch  # noqa: PLC0415 - slow to import

            streams = CommandStreams.of(stream, region, endpoint, profile)
            table = streams.table(app, dynamodb_endpoint)
            first = table.scan(consistent=False)
            streams.of_table(first.leases, str(table))
            # A failed call is repeated at the next turn. --once has only one, so it retries.
            lag_streams = streams.lag_streams(first.leases, 20.0 if once else 1.0)
            lags = stack.enter_context(LagWatch(lag_streams))
            monitor = LeaseMonitor(table, streams, lags, interval)
            if once:
                monitor.refresh(timeout=None)
                _print_once(monitor, as_json=as_json)
            else:
                _run(monitor, interval, as_json=as_json)
    except KeyboardInterrupt:
        pass


class LeaseMonitor:
    """Scans a lease table and asks for the lags of its leases at an interval. For one thread."""

    def __init__(
        self,
        table: LeaseTable,
        streams: CommandStreams,
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
        self._lag_watch.ask_for(self._shown.leases)
        return True

    @property
    def _shown(self) -> WatchedTable:
        """The leases of the streams that the operator wants to see."""
        return self._watched.of(self._streams.wanted(self._watched.streams))

    @property
    def _unread(self) -> frozenset[StreamIdentifier]:
        return unread_streams(self._watched, self._quiet) & self._shown.streams

    @property
    def _only_stream(self) -> str | None:
        """The stream that the operator names for a table whose leases name none."""
        selectors = self._streams.selectors
        return selectors[0].name if len(selectors) == 1 and not self._watched.streams else None

    @property
    def view(self) -> View:
        shown = self._shown
        count = len(shown.streams)
        what = f"stream {self._only_stream}" if self._only_stream else ""
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
        return lease_rows(self._shown, self._lags, self._quiet)

    @property
    def json(self) -> str:
        found = top_object(
            self._table.name,
            self._only_stream,
            self._shown,
            self._lags,
            unread_streams=self._unread,
            quiet=self._quiet,
        )
        return json.dumps(found)

    @property
    def _quiet(self) -> float:
        return max(QUIET, 3 * self._pause)


def _print_once(monitor: LeaseMonitor, *, as_json: bool) -> None:
    if as_json:
        typer.echo(monitor.json)
        return
    from sparkinesis.terminal.view import behind, figures, rate_text  # noqa: PLC0415

    view = monitor.view
    console = Console(highlight=False)
    heading = f"{view.title}: {', '.join(figures(view))}"
    console.print(printable(heading), soft_wrap=True, markup=False)
    owners = [
        {
            "owner": row.owner,
            "shards": str(row.shards),
            "behind": behind(row.millis_behind),
            view.rate_unit: rate_text(row.rate),
        }
        for row in view.owners
    ]
    streams = [
        {
            "stream": row.stream,
            "shards": str(row.shards),
            "behind": behind(row.millis_behind),
            view.rate_unit: rate_text(row.rate),
            **({"": row.note} if any(one.note for one in view.streams) else {}),
        }
        for row in view.streams
    ]
    for rows in (owners, streams, monitor.rows):
        if rows:
            console.print()
            print_table(rows, console)
    for message in view.messages:
        console.print(printable(message), soft_wrap=True, markup=False)


def _run(monitor: LeaseMonitor, interval: float, *, as_json: bool) -> None:
    """Update the view until Ctrl-C."""
    from sparkinesis.terminal.live import LiveView, can_update, print_line  # noqa: PLC0415

    console = Console(highlight=False)
    line_at: float | None = None
    with ExitStack() as stack:
        live = None
        timeout = _FIRST_LAGS
        while True:
            began = time.monotonic()
            looked = monitor.refresh(timeout)
            timeout = 0.0
            if as_json:
                if looked:
                    typer.echo(monitor.json)
            elif can_update(console):
                live = live or stack.enter_context(LiveView(console))
                live.show(monitor.view)
            elif line_at is None or began - line_at >= _LINES:
                line_at = began
                print_line(monitor.view, console)
            time.sleep(max(0.0, began + interval - time.monotonic()))
