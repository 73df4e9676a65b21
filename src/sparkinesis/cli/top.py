"""`sparkinesis top`: a live view of an application's shards, their owners and their lag."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Annotated

import typer
from rich.console import Console

from sparkinesis.cli.options import (
    AppName,
    DynamoDBEndpoint,
    Endpoint,
    Profile,
    Region,
    Streams,
    errors_in_one_line,
)
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lease_monitor import LeaseMonitor
from sparkinesis.terminal.names import printable
from sparkinesis.terminal.table import print_table

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

            streams = ChosenStreams.of(stream, region, endpoint, profile)
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
