"""The options, the errors and the JSON objects of commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

import typer

from sparkinesis.cli.line import application_names, profile_names, stream_names
from sparkinesis.errors import OptionError, SparkinesisError, printable

WHERE = "Where"
"""The panel of the options that say where streams and tables are."""

AppName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="APP",
        help="The application name, which is also the name of its lease table.",
        autocompletion=application_names,
    ),
]
StreamName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="STREAM", help="The stream: a name or an ARN.", autocompletion=stream_names
    ),
]
Region: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="REGION",
        rich_help_panel=WHERE,
        help="The AWS region. Default: the environment's region.",
    ),
]
Endpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="URL", rich_help_panel=WHERE, help="URL of Kinesis and DynamoDB, if not AWS's."
    ),
]
KinesisEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--endpoint",
        metavar="URL",
        rich_help_panel=WHERE,
        help="URL of Kinesis, if it is not AWS's.",
    ),
]
DynamoDBEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dynamodb-endpoint",
        metavar="URL",
        rich_help_panel=WHERE,
        help="URL of DynamoDB, if it differs from --endpoint.",
    ),
]
Streams: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        metavar="STREAM",
        autocompletion=stream_names,
        help="The stream that the application reads, to show its lag: a name or an ARN. Of an "
        "application of several: shows only this stream; repeatable; a name, an ARN or "
        "ACCOUNT:NAME:EPOCH. Default: all streams that the leases name.",
    ),
]
Profile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=WHERE,
        help="The AWS profile, from ~/.aws.",
        autocompletion=profile_names,
    ),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
LeasesAsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object for each lease at the end.")
]


def require_confirmable(*, is_confirmed: bool) -> None:
    """Raise `OptionError` if the user has to be asked for confirmation, and cannot be."""
    if not (is_confirmed or sys.stdin.isatty()):
        raise OptionError(
            "There is no terminal to ask for confirmation. Pass --yes to go ahead without it."
        )


@contextmanager
def errors_in_one_line(command: str, *, ends_by_ctrl_c: bool = False) -> Iterator[None]:
    """Turn an error into its text on stderr and exit code 1; a decorator of commands.

    A command ends with code 0 if its output is no longer read.
    ``ends_by_ctrl_c``: the command runs until Ctrl-C, which is no error.
    """
    try:
        yield
    except SparkinesisError as error:
        typer.echo(f"sparkinesis {command}: {printable(str(error), lines=True)}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        if not ends_by_ctrl_c:
            raise
    except BrokenPipeError:
        # The reader of the output has enough, as `head` has. Python would print an error later.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_objects(objects: Iterable[Mapping[str, Any]]) -> None:
    """Print each object as a line of JSON."""
    for one in objects:
        typer.echo(json.dumps(one))
