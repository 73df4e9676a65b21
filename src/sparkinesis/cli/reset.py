"""The commands that move an application, running or not: `sparkinesis reset` and `restart`.

`reset` moves it to another position, `restart` has workers resume the shards that ``on_error`` has
stopped. Each asks and reports; `lease/moving` plans and writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkinesis.cli.command_options import (
    AppName,
    DynamoDBEndpoint,
    Endpoint,
    LeasesAsJson,
    Profile,
    Region,
    Yes,
    errors_in_one_line,
    print_objects,
    require_confirmable,
    stream_names,
)
from sparkinesis.errors import UnfinishedResetError
from sparkinesis.monitor.chosen_streams import ChosenStreams, shown_names
from sparkinesis.monitor.lease_report import checkpoint_object, reset_texts
from sparkinesis.stream.address import CredentialSource
from sparkinesis.terminal.printing import counted, print_table, say

if TYPE_CHECKING:
    from sparkinesis.lease.rules.reset_plan import LeaseReset


@errors_in_one_line("reset")
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
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="STREAM",
            autocompletion=stream_names,
            help="The stream to reset in: a name or an ARN. Not needed for an application of "
            "several streams: it is reset in all of them. There, --stream is repeatable, and may "
            "be ACCOUNT:NAME:EPOCH.",
        ),
    ] = None,
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    yes: Yes = False,
    as_json: LeasesAsJson = False,
) -> None:
    """Move an application to another position in its stream or streams.

    The application may run: workers lose their shards and take them again at the new position
    within seconds, without a restart. Records that were processed but not checkpointed before are
    processed again, or skipped, depending on the new position.
    """
    from sparkinesis.lease.moving.application_reset import (  # noqa: PLC0415 - slow to import
        apply_resets,
        plan_resets,
    )
    from sparkinesis.monitor.reset_arguments import find_streams, parse_target  # noqa: PLC0415

    target = parse_target(to)
    require_confirmable(is_confirmed=yes)
    options = ChosenStreams.of(stream, region, endpoint, CredentialSource(profile))
    table = options.table(app, dynamodb_endpoint)
    found = find_streams(options, table)
    for note in found.notes:
        say(f"Note: {note}", to_stderr=as_json, style="yellow")
    planned: Sequence[LeaseReset] = plan_resets(found.streams, table, target)
    if not yes:
        _show(planned, to_stderr=as_json)
        question = f"Move {counted(len(planned), 'lease')} of {app}, which reads {found.told}?"
        typer.confirm(question, abort=True, err=True)
        planned = plan_resets(found.streams, table, target)  # the answer may take a while
    written, left = planned, ()
    failure: UnfinishedResetError | None = None
    try:
        apply_resets(table, planned)
    except UnfinishedResetError as error:
        written, left, failure = error.written, error.left, error
    if as_json:
        moves = (*written, *left)
        print_objects(_moved_object(move, is_written=move not in left) for move in moves)
    else:
        if yes:
            _show(written, to_stderr=False)
        typer.echo(f"Moved {counted(len(written), 'lease')} of {app}.")
    if failure is not None:
        raise failure


def _show(moves: Sequence[LeaseReset], *, to_stderr: bool) -> None:
    names = shown_names(move.row.stream for move in moves if move.row.stream is not None)
    rows = [
        {
            **({"stream": names[move.row.stream]} if move.row.stream else {}),
            "shard": move.row.shard_id,
            **dict(zip(("from", "to"), reset_texts(move), strict=True)),
        }
        for move in moves
    ]
    print_table(rows, to_stderr=to_stderr)
    for move in moves:
        if move.note:
            where = f"{names[move.row.stream]}: " if move.row.stream else ""
            say(f"Note: {where}{move.note}", to_stderr=to_stderr, style="yellow")


def _moved_object(move: LeaseReset, *, is_written: bool) -> dict[str, Any]:
    before = move.lease and checkpoint_object(move.lease.checkpoint, move.lease.timestamp_ms)
    row = move.row
    return {
        "lease": move.key,
        "stream": row.stream.name if row.stream else None,
        "identifier": str(row.stream) if row.stream else None,
        "shard": row.shard_id,
        "from": before,
        "to": checkpoint_object(move.at, move.timestamp_ms),
        "written": is_written,
        "note": move.note or None,
    }


@errors_in_one_line("restart")
def restart(
    *,
    app: AppName,
    shard: Annotated[
        list[str] | None,
        typer.Option(
            "--shard",
            metavar="SHARD",
            help="A shard to restart: its id, or the key of its lease; repeatable. Default: all "
            "that are stopped.",
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="STREAM",
            help="Of an application of several streams: restarts only shards of this stream; "
            "repeatable; a name, an ARN or ACCOUNT:NAME:EPOCH.",
        ),
    ] = None,
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    as_json: LeasesAsJson = False,
) -> None:
    """Restart the shards that Stop has stopped, from their checkpoints.

    Running workers take them within seconds. A record that fails again stops its shard again.
    """
    from sparkinesis.lease.moving.stopped_shards import (  # noqa: PLC0415 - slow to import
        apply_restarts,
        to_restart,
    )

    chosen = ChosenStreams.of(stream, region, endpoint, CredentialSource(profile))
    table = chosen.table(app, dynamodb_endpoint)
    leases = table.sound(table.scan(consistent=True))
    if streams := chosen.of_table(leases, table):
        leases = [lease for lease in leases if lease.stream in streams]
    stopped = to_restart(leases, shard or (), str(table))
    apply_restarts(table, stopped)
    if as_json:
        print_objects(
            {
                "lease": lease.key,
                "stream": lease.stream.name if lease.stream else None,
                "shard": lease.shard_id,
                "stopped_by": list(lease.stopped_by),
                "checkpoint": str(lease.checkpoint),
            }
            for lease in stopped
        )
        return
    print_table(
        [
            {
                "shard": lease.key,
                "stopped by": ", ".join(lease.stopped_by),
                "checkpoint": str(lease.checkpoint),
            }
            for lease in stopped
        ]
    )
    typer.echo(f"Restarted {counted(len(stopped), 'shard')} of {app}.")
