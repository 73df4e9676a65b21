"""`sparkinesis convert-leases`: rows of one stream become rows of several, and the reverse."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import Enum
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
from sparkinesis.errors import OptionError, SparkinesisError, listed
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lease_report import checkpoint_object
from sparkinesis.monitor.watched import short_checkpoint
from sparkinesis.stream.address import CredentialSource, StreamAddress, StreamIdentifier
from sparkinesis.terminal.printing import counted, print_table

if TYPE_CHECKING:
    from sparkinesis.lease.moving.conversion import Conversion
    from sparkinesis.lease.table.rows import TableScan
    from sparkinesis.lease.table.table import LeaseTable


class TableKind(str, Enum):
    """The kinds of lease tables."""

    SEVERAL = "several"
    SINGLE = "single"


@errors_in_one_line("convert-leases")
def convert_leases(
    *,
    app: AppName,
    to: Annotated[
        TableKind,
        typer.Option(
            metavar="several|single",
            help="several: the rows of Application(stream=...) become rows of "
            "Application(streams=[...]). single: the reverse.",
        ),
    ],
    stream: Annotated[
        str | None,
        typer.Option(
            metavar="STREAM",
            autocompletion=stream_names,
            help="The stream of the leases: a name or an ARN. To single: needed only if the table "
            "has leases of several streams; may be ACCOUNT:NAME:EPOCH.",
        ),
    ] = None,
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    failover_time: Annotated[
        float,
        typer.Option(
            min=0.1,
            metavar="SECONDS",
            help="Seconds to watch for renewals: the failover time of the workers, or longer.",
        ),
    ] = 10.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, show the rows, write nothing.")
    ] = False,
    yes: Yes = False,
    as_json: LeasesAsJson = False,
) -> None:
    """Give the leases of a stopped application the keys of the other kind of application.

    Application(stream=...) and Application(streams=[...]) have rows of different keys in the lease
    table. Checkpoints and all else stay as they are. All workers have to be stopped. A run that was
    cut short is completed by another one with the same options.
    """
    from sparkinesis.lease.moving.conversion import (  # noqa: PLC0415 - slow to import
        convert,
        require_no_conflict,
        require_stopped,
    )

    require_confirmable(is_confirmed=yes or dry_run)
    credentials = CredentialSource(profile)
    options = ChosenStreams.of([stream] if stream else [], region, endpoint, credentials)
    table = options.table(app, dynamodb_endpoint)
    scan = table.scan()
    find = _to_several if to is TableKind.SEVERAL else _to_single
    plan = find(options, table, scan)
    if plan is None:
        typer.echo(f"The {table} has no leases to convert to {to.value}.", err=as_json)
        return
    require_no_conflict(table, plan)
    require_stopped(table, scan.leases, failover_time, time.sleep)
    if dry_run or not yes:
        _show(plan, to_stderr=as_json)
    if not (dry_run or yes):
        question = f"Give {_leases(plan)} of {app} these keys? No worker may run."
        typer.confirm(question, abort=True, err=True)
    if not dry_run:
        convert(table, plan)
    _report(plan, app, is_written=not dry_run, as_json=as_json, is_shown=dry_run or not yes)


def _to_several(options: ChosenStreams, table: LeaseTable, scan: TableScan) -> Conversion | None:
    rows = table.sound(scan.single_stream)
    if not rows and not scan.is_converting:
        return None
    address = options.only()
    if address is None:
        raise OptionError(
            "The leases name no stream, and the new rows do: name it by --stream. Nothing was "
            "written."
        )
    return _planned(address, rows, None)


def _to_single(options: ChosenStreams, table: LeaseTable, scan: TableScan) -> Conversion | None:
    several = scan.several_streams
    if not several.leases and not scan.is_converting:
        table.sound(several)
        return None
    found = options.of_table(several.leases, table)
    if len(found) > 1:
        raise OptionError(
            f"The {table} has leases of {len(found)} streams: {listed(map(str, found))}. An "
            "application of a single stream has those of one: name it by --stream. Nothing was "
            "written."
        )
    if not found:  # all rows were converted, and some are left marked
        address = options.only()
        if address is None:
            raise OptionError("Name the stream by --stream. Nothing was written.")
        return _planned(address, [], None, to_several=False)
    (stream,) = found
    return _planned(
        options.address_of(stream), table.sound(scan.of(stream)), stream, to_several=False
    )


def _planned(
    address: StreamAddress,
    rows: Sequence[Lease],
    expected: StreamIdentifier | None,
    *,
    to_several: bool = True,
) -> Conversion:
    """Ask the service for the stream, and plan. Raises `OptionError` and service errors."""
    from sparkinesis.lease.moving.conversion import plan_conversion  # noqa: PLC0415 - slow to import
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415
    from sparkinesis.stream.calls.stream_identity import identify  # noqa: PLC0415

    client = StreamClient(address)
    summary = client.describe()
    ((_, identity),) = identify([address], lambda _: client, time.monotonic, time.sleep)
    if isinstance(identity, SparkinesisError):
        raise identity
    stream = identity.identifier
    if expected is not None and stream != expected:
        raise OptionError(
            f"The leases of {expected} are those of a deleted stream, which was made anew as "
            f"{stream}: an application of a single stream could not tell them apart. Nothing was "
            "written."
        )
    shards, _ = client.list_shards()
    return plan_conversion(rows, stream, shards, summary.created_ms, to_several=to_several)


def _leases(plan: Conversion) -> str:
    return counted(len(plan.leases), "lease")


def _show(plan: Conversion, *, to_stderr: bool) -> None:
    rows = [
        {
            "lease": lease.key,
            "becomes": plan.new_key(lease),
            "checkpoint": short_checkpoint(lease.checkpoint),
            **(
                {"pending": short_checkpoint(lease.pending.at) if lease.pending else "-"}
                if any(one.pending for one in plan.leases)
                else {}
            ),
        }
        for lease in plan.leases
    ]
    print_table(rows, to_stderr=to_stderr)


def _report(plan: Conversion, app: str, *, is_written: bool, as_json: bool, is_shown: bool) -> None:
    if as_json:
        print_objects(_object(plan, lease, is_written=is_written) for lease in plan.leases)
        return
    if not is_shown:
        _show(plan, to_stderr=False)
    if is_written:
        name = repr(plan.stream.name)
        given = f"streams=[{name}, ...]" if plan.to_several else f"stream={name}"
        typer.echo(f"Converted {_leases(plan)} of {app}: start it with {given} now.")
    else:
        typer.echo(f"{_leases(plan)} of {app} would be converted. Nothing was written.")


def _object(plan: Conversion, lease: Lease, *, is_written: bool) -> dict[str, Any]:
    return {
        "lease": lease.key,
        "becomes": plan.new_key(lease),
        "stream": plan.stream.name,
        "identifier": str(plan.stream),
        "shard": lease.shard_id,
        "checkpoint": checkpoint_object(lease.checkpoint, lease.timestamp_ms),
        "pending_checkpoint": lease.pending and checkpoint_object(lease.pending.at, None),
        "written": is_written,
    }
