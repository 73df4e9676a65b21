"""`sparkinesis doctor`: checks what an application needs, and says what to mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from sparkinesis.cli.command_options import (
    DynamoDBEndpoint,
    Endpoint,
    Profile,
    Region,
    application_names,
    errors_in_one_line,
    print_objects,
    stream_names,
)
from sparkinesis.errors import OptionError, listed
from sparkinesis.stream.address import (
    CredentialSource,
    check_place,
    check_table_name,
    stream_address,
)
from sparkinesis.terminal.printing import print_table, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkinesis.monitor.doctor.judge import Finding
    from sparkinesis.stream.address import StreamAddress


@errors_in_one_line("doctor")
def doctor(
    *,
    app: Annotated[
        str | None,
        typer.Argument(
            metavar="APP",
            help="The application name, which is also the name of its lease table.",
            autocompletion=application_names,
        ),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            metavar="STREAM",
            autocompletion=stream_names,
            help="A stream that the application reads: a name or an ARN; repeatable. With --queue: "
            "the stream that the queue has to be of.",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="QUEUE",
            help="In place of APP: check what an application needs that consumes this queue, a "
            "name or an ARN.",
        ),
    ] = None,
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
    records: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1_000_000,
            metavar="N",
            help="Also read up to N records of each stream, of the last hour, and say what their "
            "producers lose or change. Takes from what its shards may be read.",
        ),
    ] = None,
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="The application has not run yet: no table is expected, and no queue if it makes "
            "one of --stream.",
        ),
    ] = False,
    receive: Annotated[
        bool,
        typer.Option(
            "--receive",
            help="With --queue: also receive a record and up to ten dead letters, and release them "
            "at once. Each receive counts as a delivery.",
        ),
    ] = False,
    handler_time: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="With --queue: how long the slowest call of a handler takes.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each finding.")
    ] = False,
) -> None:
    """Check what an application needs, and say what to mend.

    Writes nothing, and receives no record of a queue without --receive.
    """
    credentials = CredentialSource(profile)
    streams = [stream_address(one, region, endpoint, credentials) for one in stream or ()]
    of_leases: dict[str, object] = {
        "APP": app,
        "--dynamodb-endpoint": dynamodb_endpoint,
        "--efo": efo,
        "--consumer": consumer,
        "--writes": writes,
        "--worker": worker,
        "--records": records,
    }
    of_queues: dict[str, object] = {"--receive": receive, "--handler-time": handler_time}
    if queue is not None:
        _refuse(of_leases, "an application with leases, and --queue is of one without")
        found = _of_queue(
            queue,
            (region, endpoint, credentials),
            streams,
            handler_time=handler_time,
            receives=receive,
            is_new=new,
        )
    else:
        _refuse(of_queues, "an application that consumes a queue: give --queue")
        if app is None or not streams:
            raise OptionError(
                "Give APP and its --stream, or --queue for an application that consumes a queue."
            )
        check_table_name("APP", app)
        place = region or streams[0].region, dynamodb_endpoint or endpoint
        check_place(*place)
        from sparkinesis.lease.table.table import LeaseTable  # noqa: PLC0415 - imports boto3
        from sparkinesis.monitor.doctor.examination import Patient, examine  # noqa: PLC0415

        table = LeaseTable(app, *place, credentials)
        patient = Patient(
            streams,
            table,
            consumer or app,
            efo=efo,
            writes=writes,
            is_new=new,
            workers=worker or (),
            records=records or 0,
        )
        found = examine(patient)
    from sparkinesis.monitor.doctor.judge import is_well  # noqa: PLC0415 - imports boto3

    findings = []
    for finding in found:
        findings.append(finding)
        if as_json:
            print_objects([{**msgspec.structs.asdict(finding), "state": finding.state.value}])
    if not as_json:
        _show(findings)
    if not is_well(findings):
        raise typer.Exit(1)


def _refuse(options: dict[str, object], whose: str) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise OptionError(f"{listed(given)} {'is' if len(given) == 1 else 'are'} of {whose}.")


def _of_queue(
    queue: str,
    place: tuple[str | None, str | None, CredentialSource],
    streams: Sequence[StreamAddress],
    *,
    handler_time: float | None,
    receives: bool,
    is_new: bool,
) -> Iterator[Finding]:
    from sparkinesis.monitor.doctor.queue_checks import QueuePatient, examine_queue  # noqa: PLC0415 - imports boto3
    from sparkinesis.queue.address import check_queue_name  # noqa: PLC0415

    if len(streams) > 1:
        raise OptionError("A queue is of one stream: give --stream once.")
    if is_new and (not streams or queue.startswith("arn:")):
        raise OptionError("--new needs the queue's name, and the --stream that it is made of.")
    if not queue.startswith("arn:"):
        check_queue_name(queue)
    check_place(*place[:2])
    stream = streams[0] if streams else None
    return examine_queue(QueuePatient(queue, *place, stream, handler_time, receives, is_new))


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
