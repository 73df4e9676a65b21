"""`sparkinesis leases`: lists the shards of an application, their owners and checkpoints."""

from __future__ import annotations

import sys
from contextlib import nullcontext
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
from sparkinesis.terminal.view import figures

if TYPE_CHECKING:
    from sparkinesis.lease.table.rows import TableScan
    from sparkinesis.monitor.lags import LagStreams


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
    from sparkinesis.monitor.lag_watch import LagWatch  # noqa: PLC0415 - slow to import
    from sparkinesis.monitor.lags import watch_table  # noqa: PLC0415

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
