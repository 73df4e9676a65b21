"""`sparkinesis leases`: lists the shards of an application, their owners and checkpoints."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sparkinesis.cli.lease_report import (
    broken_lease_lines,
    lag_error_lines,
    lease_object,
    lease_rows,
)
from sparkinesis.cli.options import (
    AppName,
    DynamoDBEndpoint,
    Endpoint,
    LagStream,
    Profile,
    Region,
    checkpoint_object,
    errors_in_one_line,
    find_stream_and_table,
)
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.watched import LeaseState, WatchedTable, lease_states, unread_for
from sparkinesis.terminal.table import print_table

if TYPE_CHECKING:
    from sparkinesis.monitor.lags import Lag


def leases(
    *,
    app: AppName,
    stream: LagStream = None,
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    watch_for: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="Seconds to watch for renewals."),
    ] = 5.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each lease.")
    ] = False,
) -> None:
    """List the leases of an application. Writes nothing."""
    from sparkinesis.monitor.lags import lag_client, lags, watch_table  # noqa: PLC0415 - slow to import

    with errors_in_one_line("leases"):
        address, table = find_stream_and_table(
            stream,
            app,
            region=region,
            endpoint=endpoint,
            dynamodb_endpoint=dynamodb_endpoint,
            profile=profile,
        )
        client = None
        if address is not None:
            client = lag_client(address)
            client.describe()  # A misspelled stream fails before the wait, not after.
        with _progress(f"Watching {app} for {watch_for:g} s ..."):
            watched = watch_table(table, watch_for)
        found: dict[str, Lag] = {}
        if client is not None:
            with _progress(f"Reading the lag of {app} ..."):
                found = lags(client, watched.leases)
        if as_json:
            states, unread = lease_states(watched.leases), unread_for(watched)
            for lease in watched.leases:
                lag = found.get(lease.key)
                seconds = unread.get(lease.key)
                typer.echo(json.dumps(_object(lease, states[lease.key], watched, lag, seconds)))
        else:
            _show(watched, found)
        _print_to_stderr(broken_lease_lines(watched))


def _progress(what: str) -> Any:
    console = Console(stderr=True)
    return console.status(what) if sys.stderr.isatty() else nullcontext()


def _object(
    lease: Lease,
    state: LeaseState,
    watched: WatchedTable,
    lag: Lag | None,
    unread: float | None,
) -> dict[str, Any]:
    return {
        **lease_object(lease, state, watched, lag, unread),
        "pending_checkpoint": lease.pending and checkpoint_object(lease.pending.at, None),
        "watched_seconds": round(watched.seconds, 1),
        "counter": lease.counter,
        "owner_switches_since_checkpoint": lease.owner_switches,
        "parents": list(lease.parent_ids),
        "children": list(lease.child_ids),
    }


def _show(watched: WatchedTable, found: Mapping[str, Lag]) -> None:
    if not watched.leases:
        typer.echo("The lease table has no leases.")
        return
    print_table(lease_rows(watched, found), Console(highlight=False))
    _print_to_stderr(lag_error_lines(found))


def _print_to_stderr(lines: Sequence[str]) -> None:
    console = Console(stderr=True, highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
