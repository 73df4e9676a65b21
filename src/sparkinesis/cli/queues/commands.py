"""`sparkinesis queues`: lists, describes, makes, changes and deletes queues, and their records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from sparkinesis.cli.command_options import (
    KinesisEndpoint,
    Profile,
    Region,
    Yes,
    errors_in_one_line,
    print_objects,
    require_confirmable,
)
from sparkinesis.cli.line import SETTINGS, PlainCommand, PlainGroup, stream_names
from sparkinesis.cli.queues.dead_letters import dead_letters
from sparkinesis.cli.queues.options import Queue, client_of, queues_at, time_text
from sparkinesis.cli.queues.tail import tail
from sparkinesis.errors import OptionError
from sparkinesis.stream.address import shown
from sparkinesis.terminal.printing import counted, print_table, say

if TYPE_CHECKING:
    from sparkinesis.queue.client import QueueDescription, QueueSummary

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


queues.command("tail", cls=PlainCommand)(tail)
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
