"""`sparkinesis leases`: who reads which shard of an application, and how far it has come."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

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
from sparkinesis.monitor.watched import (
    SHORT_REASONS,
    LeaseState,
    WatchedTable,
    lease_states,
    short_checkpoint,
)
from sparkinesis.terminal.table import print_table
from sparkinesis.terminal.view import behind

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
        float, typer.Option(min=0, metavar="SECONDS", help="How long to look for renewals.")
    ] = 5.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each lease.")
    ] = False,
) -> None:
    """Show the leases of an application. Nothing is written."""
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
            client.describe()  # A typing error is told before the wait, not after.
        with _progress(f"Watching {app} for {watch_for:g} s ..."):
            watched = watch_table(table, watch_for)
        found: dict[str, Lag] = {}
        if client is not None:
            with _progress(f"Asking how far {app} is behind ..."):
                found = lags(client, watched.leases)
        states = lease_states(watched.leases)
        if as_json:
            for lease in watched.leases:
                lag = found.get(lease.key)
                typer.echo(json.dumps(_object(lease, states[lease.key], watched, lag)))
        else:
            _show(watched, states, found)
        for row in watched.broken:
            say = Console(stderr=True, highlight=False)
            say.print(f"The lease {row} cannot be read.", soft_wrap=True, markup=False)


def _progress(what: str) -> Any:
    console = Console(stderr=True)
    return console.status(what) if sys.stderr.isatty() else nullcontext()


def _object(
    lease: Lease, state: LeaseState, watched: WatchedTable, lag: Lag | None
) -> dict[str, Any]:
    ago = watched.renewed_ago(lease.key)
    return {
        "lease": lease.key,
        "shard": lease.shard_id,
        "state": state.value,
        "owner": lease.actual_owner,
        "handed_over_to": lease.owner if lease.checkpoint_owner else None,
        "checkpoint": checkpoint_object(lease.checkpoint, lease.timestamp_ms),
        "pending_checkpoint": lease.pending and checkpoint_object(lease.pending.at, None),
        "millis_behind_latest": lag and lag.millis_behind_latest,
        "lag_unknown_because": (lag and lag.why) or None,
        "renewed_seconds_ago": None if ago is None else round(ago, 1),
        "watched_seconds": round(watched.seconds, 1),
        "counter": lease.counter,
        "owner_switches_since_checkpoint": lease.owner_switches,
        "parents": list(lease.parent_ids),
        "children": list(lease.child_ids),
    }


def _show(
    watched: WatchedTable, states: Mapping[str, LeaseState], found: Mapping[str, Lag]
) -> None:
    if not watched.leases:
        typer.echo("The lease table has no leases.")
        return
    has_switches = any(lease.owner_switches for lease in watched.leases)
    has_pending = any(lease.pending for lease in watched.leases)
    console = Console(highlight=False)
    rows = []
    for lease in watched.leases:
        state = states[lease.key]
        lag = found.get(lease.key)
        row = {
            "shard": lease.key,
            "owner": lease.actual_owner or "-",
            "state": f"handed over to {lease.owner}"
            if state is LeaseState.HANDED_OVER
            else state.value,
            "checkpoint": short_checkpoint(lease.checkpoint),
            "behind": _behind(lag),
            "renewed": _renewed(lease, watched),
        }
        if has_switches:
            row["switches"] = str(lease.owner_switches or "-")
        if has_pending:
            row["pending"] = short_checkpoint(lease.pending.at) if lease.pending else "-"
        rows.append(row)
    print_table(rows, console)
    # The same trouble mostly meets all shards.
    for why in sorted({lag.why for lag in found.values()} - {"", *SHORT_REASONS}):
        Console(stderr=True, highlight=False).print(why, soft_wrap=True, markup=False)


def _behind(lag: Lag | None) -> str:
    if lag is None or (lag.millis_behind_latest is None and not lag.why):
        return "-"
    if lag.millis_behind_latest is None:
        return lag.why if lag.why in SHORT_REASONS else "unknown"
    return behind(lag.millis_behind_latest)


def _renewed(lease: Lease, watched: WatchedTable) -> str:
    ago = watched.renewed_ago(lease.key)
    if ago is not None:
        return f"{ago:.1f} s ago"
    if lease.actual_owner is None or lease.is_finished:
        return "-"
    return f"none in {watched.seconds:.0f} s" if watched.seconds else "not watched"
