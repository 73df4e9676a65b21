"""`sparkinesis queues`: lists, describes, makes, changes and deletes queues, prints records."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from sparkinesis.cli.command_options import (
    SETTINGS,
    KinesisEndpoint,
    PlainCommand,
    PlainGroup,
    Profile,
    Region,
    Yes,
    errors_in_one_line,
    print_objects,
    require_confirmable,
    stream_names,
)
from sparkinesis.cli.queues.dead_letters import dead_letters
from sparkinesis.cli.queues.options import (
    Queue,
    client_of,
    queues_at,
    received_object,
    time_text,
)
from sparkinesis.cli.streams.record_objects import data_fields
from sparkinesis.errors import OptionError, ServiceError, printable
from sparkinesis.stream.address import shown
from sparkinesis.terminal.printing import counted, print_table, say

if TYPE_CHECKING:
    from sparkinesis.queue.client import QueueDescription, QueueSummary, Received


queues = typer.Typer(
    cls=PlainGroup,
    help="List, describe, make, change and delete queues; their records and dead letters.",
    context_settings=SETTINGS,
    no_args_is_help=True,
    rich_markup_mode=None,
)

Visibility: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="SECONDS",
        help="Seconds for which a received record is hidden from other receives, 0 to 43200. A new "
        "queue has 30.",
    ),
]
MaxReceives: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Receives without an acknowledgement after which a record is a dead letter; none: it "
        "is received again until it is acknowledged or expires. A new queue has 6.",
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print a JSON object for each queue.")
]


@queues.command("list", cls=PlainCommand)
@errors_in_one_line("queues list")
def list_queues(
    *,
    as_json: AsJson = False,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
) -> None:
    """List the queues of an account and region."""
    found = sorted(queues_at(region, endpoint, profile).all(), key=lambda one: one.name)
    objects = [_object(one) for one in found]
    if as_json:
        print_objects(objects)
        return
    print_table([{**one, "stream": one["stream"].rpartition("/")[2]} for one in objects])
    say(counted(len(objects), "queue"))


@queues.command(cls=PlainCommand)
@errors_in_one_line("queues describe")
def describe(
    *,
    queue: Queue,
    as_json: AsJson = False,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
) -> None:
    """Show a queue: its state, its stream and its attributes."""
    _print(client_of(queue, region, endpoint, profile).describe(), as_json=as_json)


@queues.command(cls=PlainCommand)
@errors_in_one_line("queues create")
def create(
    *,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The name of the queue.")],
    stream: Annotated[
        str,
        typer.Option(
            metavar="STREAM",
            autocompletion=stream_names,
            help="The stream, which has to be on-demand: a name or an ARN.",
        ),
    ],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="The position at which the queue starts, for good: latest, trim_horizon or an "
            "instant with a time zone.",
        ),
    ] = "latest",
    visibility_timeout: Visibility = None,
    max_receive_count: MaxReceives = None,
    as_json: AsJson = False,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
) -> None:
    """Make a queue of a stream, and wait until it is ACTIVE.

    A queue of this name and stream that is there already stays as it is.
    """
    from sparkinesis.queue.finding import NewQueue  # noqa: PLC0415 - slow to import

    timeout = 30 if visibility_timeout is None else visibility_timeout
    new = NewQueue(stream, start, timeout, _count(max_receive_count or "6"))
    _, found = queues_at(region, endpoint, profile).find(queue, new)
    _print(found, as_json=as_json)


@queues.command(cls=PlainCommand)
@errors_in_one_line("queues update")
def update(
    *,
    queue: Queue,
    visibility_timeout: Visibility = None,
    max_receive_count: MaxReceives = None,
    as_json: AsJson = False,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
) -> None:
    """Change attributes of a queue, for later receives. What is not given stays."""
    from msgspec import UNSET  # noqa: PLC0415 - slow to import

    from sparkinesis.queue.address import LONGEST_VISIBILITY, check_whole  # noqa: PLC0415

    if visibility_timeout is None and max_receive_count is None:
        raise OptionError("Nothing would change. Pass --visibility-timeout or --max-receive-count.")
    check_whole("--visibility-timeout", visibility_timeout or 0, 0, LONGEST_VISIBILITY)
    count = UNSET if max_receive_count is None else _count(max_receive_count)
    client = client_of(queue, region, endpoint, profile)
    _print(client.update(visibility_timeout, count), as_json=as_json)


@queues.command(cls=PlainCommand)
@errors_in_one_line("queues delete")
def delete(
    *,
    queue: Queue,
    yes: Yes = False,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
) -> None:
    """Delete a queue, with its dead letters and its place in the stream.

    The records of the stream stay. Those that are in work are not delivered again.
    """
    require_confirmable(is_confirmed=yes)
    client = client_of(queue, region, endpoint, profile)
    found = client.describe()
    if not yes:
        _print(found, as_json=False, to_stderr=True)
        question = (
            f"Delete {client.address}? Its dead letters, and which records were acknowledged, are "
            "lost."
        )
        typer.confirm(question, abort=True, err=True)
    client.delete()
    typer.echo(f"Deleted the queue {found.name}.")


@queues.command(cls=PlainCommand)
@errors_in_one_line("queues tail", ends_by_ctrl_c=True)
def tail(
    *,
    queue: Queue,
    count: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="End after N records.")
    ] = 10,
    once: Annotated[
        bool, typer.Option("--once", help="End once a receive of 5 s brings nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each user record.")
    ] = False,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
) -> None:
    """Print records that a queue delivers, until Ctrl-C, and release them.

    This costs: each record that is printed was received once more, and at its MaxReceiveCount it is
    a dead letter. Until the end of the command no other receiver gets it. To look without a cost,
    read the stream: `sparkinesis tail STREAM`.

    Aggregated records are unpacked. A pipe or a file gets the data of each user record and a line's
    end, nothing else. A terminal shows the time of arrival, the receives and the partition key
    before it.
    """
    client = client_of(queue, region, endpoint, profile)
    most = client.describe().max_receive_count
    dies = "" if most is None else f", and after {counted(most, 'receive')} it is a dead letter"
    say(
        f"Receiving {counted(count, 'record')} at most from {client.address}. Each has one receive "
        f"more then{dies}. Until this command ends, no other receiver gets them.",
        to_stderr=True,
    )
    from sparkinesis.cli.queues.holding import holding  # noqa: PLC0415 - slow to import
    from sparkinesis.queue.client import MOST_ENTRIES  # noqa: PLC0415

    seen: set[str] = set()
    left, dead = count, 0
    with holding(client) as holds:
        while left and not holds.is_stopping:
            taken = holds.receive(min(MOST_ENTRIES, left))
            if not taken and once:
                break
            left -= len(taken)
            for record, _ in taken:
                dead += most is not None and record.receive_count >= most
                if record.record_id not in seen:  # one whose hold was lost comes again
                    seen.add(record.record_id)
                    for line in _user_lines(record, as_json=as_json):
                        sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    if dead:
        say(
            f"{counted(dead, 'record')} had the last receive, and will be dead letters, which "
            f"sparkinesis queues dead-letters {queue} --restore makes records again.",
            to_stderr=True,
        )
    if problems := list(holds.problems()):
        raise ServiceError(" ".join(problems))


def _user_lines(record: Received, *, as_json: bool) -> Iterator[bytes]:
    """Yield the line of each user record."""
    from sparkinesis.queue.record import stored  # noqa: PLC0415 - slow to import
    from sparkinesis.stream.kpl.objects import make_objects  # noqa: PLC0415
    from sparkinesis.worker.batches.user_record import make_user_record  # noqa: PLC0415

    found, _ = make_objects([stored(record)], make_user_record, "")
    for one in found:
        if as_json:
            about = {
                **received_object(record),
                "sub_sequence_number": one.sub_sequence_number,
                "partition_key": one.partition_key,
                "explicit_hash_key": one.explicit_hash_key,
                **data_fields(one.data),
            }
            yield json.dumps(about).encode() + b"\n"
        elif sys.stdout.isatty():
            where = f"{time_text(record.arrived_at) or '-'} {record.receive_count}"
            key = printable(one.partition_key or "-")
            data = printable(one.data.decode(errors="backslashreplace"))
            line = f"{typer.style(where, dim=True)} {typer.style(key, fg='cyan')} {data}\n"
            yield line.encode()
        else:
            yield one.data + b"\n"


queues.command("dead-letters", cls=PlainCommand)(dead_letters)


def _count(text: str) -> int | None:
    if text == "none":
        return None
    if text.isdecimal() and 1 <= int(text) <= 1000:
        return int(text)
    raise OptionError(f"--max-receive-count is {shown(text)}; it takes 1 to 1000, or none.")


def _print(found: QueueDescription, *, as_json: bool, to_stderr: bool = False) -> None:
    position = found.streams[0].starting_position
    shown = {
        **_object(found),
        "from": position.get("Type"),
        "from_instant": time_text(position.get("Timestamp")),
        "visibility_timeout": found.visibility_timeout,
        "max_receive_count": found.max_receive_count,
    }
    if as_json:
        print_objects([shown])
        return
    for name, value in shown.items():
        say(f"{name.replace('_', ' '):20}{'-' if value is None else value}", to_stderr=to_stderr)


def _object(one: QueueSummary) -> dict[str, Any]:
    return {
        "queue": one.name,
        "status": one.status,
        "stream": one.streams[0].stream_arn if one.streams else "",
        "created": time_text(one.created_at),
        "arn": one.arn,
    }
