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
    LagStream,
    Profile,
    Region,
    errors_in_one_line,
    find_stream_and_table,
)
from sparkinesis.cli.top_view import top_object, top_view
from sparkinesis.errors import LeaseTableUnavailableError
from sparkinesis.monitor.watched import QUIET, WatchedTable
from sparkinesis.terminal.names import printable
from sparkinesis.terminal.table import print_table
from sparkinesis.terminal.view import View

if TYPE_CHECKING:
    from sparkinesis.lease.table.table import LeaseTable
    from sparkinesis.monitor.lag_watch import LagWatch
    from sparkinesis.monitor.lags import Lag

_LINES = 10.0
"""Seconds between two lines if the output is no terminal."""
_FIRST_LAGS = 2.0
"""Seconds that the first view waits for the lags at most."""


def top(
    *,
    app: AppName,
    stream: LagStream = None,
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
            from sparkinesis.monitor.lags import lag_client  # noqa: PLC0415

            address, table = find_stream_and_table(
                stream,
                app,
                region=region,
                endpoint=endpoint,
                dynamodb_endpoint=dynamodb_endpoint,
                profile=profile,
            )
            lags = None
            if address is not None:
                # A failed call is repeated at the next turn. --once has only one, so it retries.
                client = lag_client(address) if once else lag_client(address, give_up_after=1.0)
                client.describe()
                lags = stack.enter_context(LagWatch(client))
            monitor = LeaseMonitor(table, address.name if address else None, lags, interval)
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
        stream: str | None,
        lags: LagWatch | None,
        interval: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._table = table
        self._stream = stream
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
        if self._lag_watch is not None:
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
        if self._lag_watch is not None:
            self._lag_watch.ask_for(self._watched.leases)
        return True

    @property
    def view(self) -> View:
        title = self._table.name + (f", stream {self._stream}" if self._stream else "")
        summary = f"updated every {self._pause:.3g} s"
        if self._trouble is not None:
            summary = f"last updated {self._clock() - self._watched.at:.0f} s ago"
        return top_view(
            title,
            summary,
            self._watched,
            self._lags,
            messages=[self._trouble] if self._trouble else [],
            quiet=self._quiet,
        )

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows that `sparkinesis leases` shows, too."""
        return lease_rows(self._watched, self._lags, self._quiet)

    @property
    def json(self) -> str:
        return json.dumps(
            top_object(self._table.name, self._stream, self._watched, self._lags, quiet=self._quiet)
        )

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
    for rows in (owners, monitor.rows):
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
