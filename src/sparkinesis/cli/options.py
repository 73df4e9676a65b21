"""The options and the error handling that the commands share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from sparkinesis.errors import OptionError, SparkinesisError
from sparkinesis.stream.address import (
    StreamAddress,
    stream_address,
)
from sparkinesis.stream.credentials import CredentialSource

AppName: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="APP", help="The application name, which is also the name of its lease table."
    ),
]
Region: TypeAlias = Annotated[
    str | None,
    typer.Option(help="AWS region. Default: the environment's region."),
]
Endpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="URL", help="URL of Kinesis and DynamoDB, if not AWS's."),
]
DynamoDBEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dynamodb-endpoint", metavar="URL", help="DynamoDB URL, if it differs from --endpoint."
    ),
]
Streams: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        metavar="STREAM",
        help="The stream that the application reads, to show its lag: a name or an ARN. Of an "
        "application of several: shows only this stream; repeatable; a name, an ARN or "
        "ACCOUNT:NAME:EPOCH. Default: all streams that the leases name.",
    ),
]
Profile: TypeAlias = Annotated[str | None, typer.Option(help="The AWS profile, from ~/.aws.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
LeasesAsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object for each lease at the end.")
]


def find_stream(
    stream: str, region: str | None, endpoint: str | None, profile: str | None
) -> StreamAddress:
    """Return the address of the stream with this name or ARN. Raises `OptionError`."""
    return stream_address(stream, region, endpoint, CredentialSource(profile))


def require_confirmable(*, is_confirmed: bool) -> None:
    """Raise `OptionError` if the user has to be asked for confirmation, and cannot be."""
    if not (is_confirmed or sys.stdin.isatty()):
        raise OptionError(
            "There is no terminal to ask for confirmation. Pass --yes to go ahead without it."
        )


@contextmanager
def errors_in_one_line(command: str) -> Iterator[None]:
    """Turn an error into its text on stderr and exit code 1."""
    try:
        yield
    except SparkinesisError as error:
        typer.echo(f"sparkinesis {command}: {error}", err=True)
        raise typer.Exit(1) from None
