"""`sparkinesis doctor`: checks what an application needs, and says what to mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sparkinesis.cli.command_options import (
    AppName,
    DynamoDBEndpoint,
    Endpoint,
    Profile,
    Region,
    errors_in_one_line,
    print_objects,
)
from sparkinesis.cli.line import stream_names
from sparkinesis.stream.address import (
    CredentialSource,
    check_place,
    check_table_name,
    stream_address,
)
from sparkinesis.terminal.printing import print_table, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkinesis.monitor.doctor.judge import Finding


@errors_in_one_line("doctor")
def doctor(
    *,
    app: AppName,
    stream: Annotated[
        list[str],
        typer.Option(
            "--stream",
            metavar="STREAM",
            autocompletion=stream_names,
            help="A stream that the application reads: a name or an ARN; repeatable.",
        ),
    ],
    region: Region = None,
    endpoint: Endpoint = None,
    dynamodb_endpoint: DynamoDBEndpoint = None,
    profile: Profile = None,
    efo: Annotated[
        bool, typer.Option("--efo", help="The application reads by enhanced fan-out.")
    ] = False,
    consumer: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The registered consumer. Default: APP."),
    ] = None,
    writes: Annotated[
        bool, typer.Option("--writes", help="Also check that records may be put; puts none.")
    ] = False,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            "--worker",
            metavar="URL",
            help="Also ask a worker for its state: the address of its option http; repeatable.",
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="The application has not run yet: no table is expected.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each finding.")
    ] = False,
) -> None:
    """Check what an application needs, and say what to mend. Writes nothing."""
    credentials = CredentialSource(profile)
    streams = [stream_address(one, region, endpoint, credentials) for one in stream]
    check_table_name("APP", app)
    place = region or streams[0].region, dynamodb_endpoint or endpoint
    check_place(*place)
    # boto3 is slow to import, and not all commands need it.
    from sparkinesis.lease.table.table import LeaseTable  # noqa: PLC0415
    from sparkinesis.monitor.doctor.examination import Patient, examine  # noqa: PLC0415
    from sparkinesis.monitor.doctor.judge import is_well  # noqa: PLC0415

    table = LeaseTable(app, *place, credentials)
    patient = Patient(
        streams,
        table,
        consumer or app,
        efo=efo,
        writes=writes,
        is_new=new,
        workers=worker or (),
    )
    findings = []
    for finding in examine(patient):
        findings.append(finding)
        if as_json:
            print_objects([{**msgspec.structs.asdict(finding), "state": finding.state.value}])
    if not as_json:
        _show(findings)
    if not is_well(findings):
        raise typer.Exit(1)


def _show(findings: Sequence[Finding]) -> None:
    print_table(
        [{"check": one.check, "state": one.state.value, "finding": one.what} for one in findings]
    )
    to_mend = [one for one in findings if one.mend]
    if to_mend:
        say()
        say("To mend:")
    for one in to_mend:
        say(f"- {one.check}: {one.mend}")
