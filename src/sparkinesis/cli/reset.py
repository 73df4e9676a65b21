"""`sparkinesis reset`: moves an application, running or not, to another position."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from sparkinesis.cli.options import (
    AppName,
    DynamoDBEndpoint,
    Endpoint,
    Profile,
    Region,
    checkpoint_object,
    errors_in_one_line,
    find_stream,
    find_table,
)
from sparkinesis.errors import OptionError, UnfinishedResetError
from sparkinesis.lease.extended_sequence_number import AT_TIMESTAMP, ExtendedSequenceNumber
from sparkinesis.monitor.watched import short_checkpoint
from sparkinesis.stream.position import AtTimestamp
from sparkinesis.terminal.table import print_table

if TYPE_CHECKING:
    from sparkinesis.lease.rules.reset import LeaseReset


def reset(
    *,
    app: AppName,
    to: Annotated[
        str,
        typer.Option(
            metavar="POSITION",
            help="latest, trim_horizon, an instant such as 2026-11-21T08:30:00Z, or "
            "SHARD=SEQUENCE_NUMBER[:SUB]: the last processed user record of one shard.",
        ),
    ],
    stream: Annotated[str, typer.Option(help="The stream to reset in: a name or an ARN.")],
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each lease at the end.")
    ] = False,
) -> None:
    """Move an application to another position in its stream.

    The application may run: workers lose their shards and take them again at the new position
    within seconds, without a restart. Records that were processed but not checkpointed before are
    processed again, or skipped, depending on the new position.
    """
    from sparkinesis.lease.application_reset import (  # noqa: PLC0415 - slow to import
        plan_application_reset,
        reset_application,
    )
    from sparkinesis.monitor.target import parse_target  # noqa: PLC0415
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415

    with errors_in_one_line("reset"):
        target = parse_target(to)
        if not yes and not sys.stdin.isatty():
            raise OptionError(
                "There is no terminal to ask for confirmation. Pass --yes to go ahead without it."
            )
        client = StreamClient(find_stream(stream, region, endpoint, profile))
        table = find_table(app, client.address.region, dynamodb_endpoint or endpoint, profile)
        if not yes:
            planned = plan_application_reset(client, table, target)
            _show(planned, to_stderr=as_json)
            question = f"Move {_leases(planned)} of {app}, which reads the {client.address}?"
            typer.confirm(question, abort=True, err=True)
        left: Sequence[LeaseReset] = ()
        failure: UnfinishedResetError | None = None
        try:
            written: Sequence[LeaseReset] = reset_application(client, table, target)
        except UnfinishedResetError as error:
            written, left, failure = error.written, error.left, error
        if as_json:
            for move in (*written, *left):
                typer.echo(json.dumps(_object(move, is_written=move not in left)))
        else:
            if yes:
                _show(written, to_stderr=False)
            typer.echo(f"Moved {_leases(written)} of {app}.")
        if failure is not None:
            raise failure


def _leases(moves: Sequence[LeaseReset]) -> str:
    return f"{len(moves)} lease{'s' * (len(moves) != 1)}"


def _show(moves: Sequence[LeaseReset], *, to_stderr: bool) -> None:
    rows = [
        {
            "shard": move.key,
            "from": "no lease"
            if move.lease is None
            else _checkpoint_text(move.lease.checkpoint, move.lease.timestamp_ms),
            "to": _checkpoint_text(move.at, move.timestamp_ms),
        }
        for move in moves
    ]
    console = print_table(rows, Console(stderr=to_stderr, highlight=False))
    for move in moves:
        if move.note:
            console.print(f"Note: {move.note}", style="yellow", soft_wrap=True, markup=False)


def _checkpoint_text(at: ExtendedSequenceNumber, timestamp_ms: int | None) -> str:
    """Return a checkpoint as text, with the instant that it represents or was found for."""
    if timestamp_ms is None:
        return short_checkpoint(at)
    text = (
        AtTimestamp(timestamp_ms).instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
    return text if at.sequence_number == AT_TIMESTAMP else f"{short_checkpoint(at)} as of {text}"


def _object(move: LeaseReset, *, is_written: bool) -> dict[str, Any]:
    before = move.lease and checkpoint_object(move.lease.checkpoint, move.lease.timestamp_ms)
    return {
        "shard": move.key,
        "from": before,
        "to": checkpoint_object(move.at, move.timestamp_ms),
        "written": is_written,
        "note": move.note or None,
    }
