"""`sparkinesis restart`: has workers resume the shards that ``on_error`` has stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkinesis.cli.command_options import (
    AppName,
    DynamoDBEndpoint,
    Endpoint,
    LeasesAsJson,
    Profile,
    Region,
    errors_in_one_line,
    print_objects,
)
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.stream.address import CredentialSource
from sparkinesis.terminal.printing import counted, print_table


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
