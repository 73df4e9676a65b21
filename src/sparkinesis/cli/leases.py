"""The commands that show an application in the terminal: `sparkinesis leases` and `top`.

`leases` lists its shards, their owners and checkpoints; `top` is a live view of them and their lag.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sparkinesis.cli.command_options import (
    AppName,
    DynamoDBEndpoint,
    Endpoint,
    Profile,
    Region,
    Streams,
    errors_in_one_line,
    print_objects,
)
from sparkinesis.monitor.application_snapshot import ApplicationSnapshot, LeaseSnapshot
from sparkinesis.monitor.chosen_streams import ChosenStreams, stream_lines
from sparkinesis.monitor.lease_report import (
    broken_lease_lines,
    checkpoint_object,
    lag_error_lines,
    lease_object,
    lease_rows,
    top_view,
)
from sparkinesis.stream.address import CredentialSource
from sparkinesis.terminal.printing import counted, print_table, say
from sparkinesis.terminal.view import GroupRow, behind, figures, rate_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkinesis.lease.table.rows import TableScan
    from sparkinesis.monitor.lags import LagStreams
    from sparkinesis.monitor.lease_monitor import LeaseMonitor


@errors_in_one_line("leases")
def leases(
    *,
    app: AppName,
    stream: Streams = None,
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    watch_for: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Seconds to watch for renewals."),
    ] = 8.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each lease.")
    ] = False,
) -> None:
    """List the leases of an application. Writes nothing."""
    from sparkinesis.monitor.lags import watch_table  # noqa: PLC0415
    from sparkinesis.monitor.lease_monitor import LagWatch  # noqa: PLC0415 - slow to import

    streams = ChosenStreams.of(stream, region, endpoint, CredentialSource(profile))
    table = streams.table(app, dynamodb_endpoint)
    lag_streams: LagStreams | None = None

    def check(first: TableScan) -> None:
        # A misspelled stream fails before the wait, not after.
        nonlocal lag_streams
        lag_streams = streams.lag_streams(first.leases, table)

    with _progress(f"Watching {app} for {watch_for:g} s ..."):
        whole = watch_table(table, watch_for, check=check)
    wanted = streams.wanted(whole.streams)
    assert lag_streams is not None
    with _progress(f"Reading the lag of {app} ..."), LagWatch(lag_streams) as lags:
        lags.ask_for(whole.of(wanted).leases)
        snapshot = ApplicationSnapshot.of(whole, lags.known(None), wanted)
    if as_json:
        print_objects(_object(one, snapshot) for one in snapshot.leases)
    else:
        _show(snapshot)
    for line in broken_lease_lines(snapshot.watched):
        say(line, to_stderr=True)


def _progress(what: str) -> Any:
    console = Console(stderr=True)
    return console.status(what) if sys.stderr.isatty() else nullcontext()


def _object(one: LeaseSnapshot, snapshot: ApplicationSnapshot) -> dict[str, Any]:
    lease = one.lease
    found = {
        **lease_object(one, snapshot.watched),
        "pending_checkpoint": lease.pending and checkpoint_object(lease.pending.at, None),
        "watched_seconds": round(snapshot.watched.seconds, 1),
        "counter": lease.counter,
        "owner_switches_since_checkpoint": lease.owner_switches,
        "parents": list(lease.parent_ids),
        "children": list(lease.child_ids),
    }
    if lease.stream is not None:
        newer = snapshot.replaced.get(lease.stream)
        found["stream_is_read"] = lease.stream not in snapshot.unread_streams
        found["made_anew_as"] = str(newer) if newer else None
    return found


def _show(snapshot: ApplicationSnapshot) -> None:
    if not snapshot.leases:
        say("The lease table has no leases.")
    else:
        print_table(lease_rows(snapshot))
        if snapshot.names:
            totals = figures(top_view("", "", snapshot))
            say()
            say(", ".join([counted(len(snapshot.names), "stream"), *totals]))
    notes = stream_lines(snapshot.names, snapshot.replaced, snapshot.unread_streams)
    for line in (*lag_error_lines(snapshot.lags), *notes):
        say(line, to_stderr=True)


_LINES = 10.0
"""Seconds between two lines if the output is no terminal."""
_FIRST_LAGS = 2.0
"""Seconds that the first view waits for the lags at most."""


@errors_in_one_line("top", ends_by_ctrl_c=True)
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
    from sparkinesis.monitor.lease_monitor import watching  # noqa: PLC0415 - slow to import

    streams = ChosenStreams.of(stream, region, endpoint, CredentialSource(profile))
    table = streams.table(app, dynamodb_endpoint)
    # --once has only one turn, so it retries.
    with watching(table, streams, interval, give_up_after=20.0 if once else 1.0) as monitor:
        if once:
            monitor.refresh(timeout=None)
            _print_once(monitor, as_json=as_json)
        else:
            _run(monitor, interval, as_json=as_json)


def _print_once(monitor: LeaseMonitor, *, as_json: bool) -> None:
    if as_json:
        print_objects([monitor.object])
        return
    view = monitor.view
    say(f"{view.title}: {', '.join(figures(view))}")
    for rows in (
        _rows("owner", view.owners),
        _rows("stream", view.streams),
        lease_rows(monitor.snapshot),
    ):
        if rows:
            say()
            print_table(rows)
    for message in view.messages:
        say(message)


def _rows(what: str, groups: Sequence[GroupRow]) -> list[dict[str, str]]:
    return [
        {
            what: row.name,
            "shards": str(row.shards),
            "behind": behind(row.millis_behind),
            "KB/s": rate_text(row.rate),
            **({"": row.note} if what == "stream" and any(one.note for one in groups) else {}),
        }
        for row in groups
    ]


def _run(monitor: LeaseMonitor, interval: float, *, as_json: bool) -> None:
    """Update the view until Ctrl-C."""
    from sparkinesis.terminal.live import can_update, live_view, print_line  # noqa: PLC0415

    console = Console(highlight=False)
    line_at: float | None = None
    with ExitStack() as stack:
        show = None
        timeout = _FIRST_LAGS
        while True:
            began = time.monotonic()
            has_scanned = monitor.refresh(timeout)
            timeout = 0.0
            if as_json:
                if has_scanned:
                    print_objects([monitor.object])
            elif can_update(console):
                show = show or stack.enter_context(live_view(console))
                show(monitor.view)
            elif line_at is None or began - line_at >= _LINES:
                line_at = began
                print_line(monitor.view, console)
            time.sleep(max(0.0, began + interval - time.monotonic()))
