"""`sparkinesis leases`: lists the shards of an application, their owners and checkpoints."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

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
from sparkinesis.monitor.application_view import top_view
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lease_report import (
    broken_lease_lines,
    checkpoint_object,
    lag_error_lines,
    lease_object,
    lease_rows,
)
from sparkinesis.monitor.streams import replaced_streams, stream_lines, unread_streams
from sparkinesis.monitor.watched import WatchedTable, lease_states, unread_for
from sparkinesis.terminal.table import print_table
from sparkinesis.terminal.view import figures

if TYPE_CHECKING:
    from sparkinesis.lease.table.rows import TableScan
    from sparkinesis.monitor.lag_streams import LagStreams
    from sparkinesis.monitor.lags import Lag


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
    ] = 5.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each lease.")
    ] = False,
) -> None:
    """List the leases of an application. Writes nothing."""
    from sparkinesis.monitor.lags import watch_table  # noqa: PLC0415 - slow to import

    with errors_in_one_line("leases"):
        streams = ChosenStreams.of(stream, region, endpoint, profile)
        table = streams.table(app, dynamodb_endpoint)
        lag_streams: LagStreams | None = None

        def check(first: TableScan) -> None:
            # A misspelled stream fails before the wait, not after.
            nonlocal lag_streams
            streams.of_table(first.leases, str(table))
            lag_streams = streams.lag_streams(first.leases)

        with _progress(f"Watching {app} for {watch_for:g} s ..."):
            whole = watch_table(table, watch_for, check=check)
        watched = whole.of(streams.wanted(whole.streams))
        assert lag_streams is not None
        with _progress(f"Reading the lag of {app} ..."):
            found = _lags(lag_streams, watched)
        notes = stream_lines(watched.streams, unread_streams(whole) & watched.streams)
        if as_json:
            _print_objects(watched, found, whole)
        else:
            _show(watched, found)
            _print_to_stderr(notes)
        _print_to_stderr(broken_lease_lines(watched))


def _lags(streams: LagStreams, watched: WatchedTable) -> dict[str, Lag]:
    from sparkinesis.monitor.lags import Lag, lags  # noqa: PLC0415 - slow to import

    streams.find(watched.leases)
    found = {lease.key: streams.of(lease) for lease in watched.leases}
    read = lags(
        (lease, client)
        for lease in watched.leases
        if (client := found[lease.key]) is not None and not isinstance(client, Lag)
    )
    return {**read, **{key: lag for key, lag in found.items() if isinstance(lag, Lag)}}


def _progress(what: str) -> Any:
    console = Console(stderr=True)
    return console.status(what) if sys.stderr.isatty() else nullcontext()


def _print_objects(watched: WatchedTable, found: Mapping[str, Lag], whole: WatchedTable) -> None:
    states, unread = lease_states(watched.leases), unread_for(watched)
    unread_names, replaced = unread_streams(whole), replaced_streams(whole.streams)
    for lease in watched.leases:
        seconds = unread.get(lease.key)
        newer = replaced.get(lease.stream) if lease.stream else None
        said = {
            **lease_object(lease, states[lease.key], watched, found.get(lease.key), seconds),
            "pending_checkpoint": lease.pending and checkpoint_object(lease.pending.at, None),
            "watched_seconds": round(watched.seconds, 1),
            "counter": lease.counter,
            "owner_switches_since_checkpoint": lease.owner_switches,
            "parents": list(lease.parent_ids),
            "children": list(lease.child_ids),
        }
        if lease.stream is not None:
            said["stream_is_read"] = lease.stream not in unread_names
            said["made_anew_as"] = str(newer) if newer else None
        typer.echo(json.dumps(said))


def _show(watched: WatchedTable, found: Mapping[str, Lag]) -> None:
    if not watched.leases:
        typer.echo("The lease table has no leases.")
        return
    console = print_table(lease_rows(watched, found), Console(highlight=False))
    if watched.streams:
        view = top_view("", "", watched, found)
        totals = f"{len(watched.streams)} stream{'s' * (len(watched.streams) != 1)}"
        console.print(f"\n{totals}, {', '.join(figures(view))}", soft_wrap=True, markup=False)
    _print_to_stderr(lag_error_lines(found))


def _print_to_stderr(lines: Sequence[str]) -> None:
    console = Console(stderr=True, highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)
