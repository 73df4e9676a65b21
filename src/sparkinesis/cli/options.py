"""What `sparkinesis leases`, `top` and `reset` have in common: options, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.address import (
    StreamAddress,
    check_place,
    check_table_name,
    stream_address,
)
from sparkinesis.stream.credentials import CredentialSource

if TYPE_CHECKING:
    from sparkinesis.lease.table.table import LeaseTable

AppName: TypeAlias = Annotated[
    str, typer.Argument(metavar="APP", help="The application's name, which its lease table has.")
]
Region: TypeAlias = Annotated[
    str | None, typer.Option(help="Of stream and table; by default that of the environment.")
]
Endpoint: TypeAlias = Annotated[
    str | None, typer.Option(metavar="URL", help="Another Kinesis than AWS's, and DynamoDB.")
]
DynamoDBEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option("--dynamodb-endpoint", metavar="URL", help="If DynamoDB is elsewhere again."),
]
LagStream: TypeAlias = Annotated[
    str | None, typer.Option(help="The stream that it reads, to tell how far it is behind.")
]
Profile: TypeAlias = Annotated[str | None, typer.Option(help="A profile of ~/.aws.")]


def find_stream(
    stream: str, region: str | None, endpoint: str | None, profile: str | None
) -> StreamAddress:
    """The stream of a name or an ARN. Raises `OptionError`."""
    return stream_address(stream, region, endpoint, CredentialSource(profile))


def find_table(
    name: str, region: str | None, endpoint: str | None, profile: str | None
) -> LeaseTable:
    """The lease table of an application; nothing is called. Raises `OptionError`."""
    check_table_name("APP", name)
    check_place(region, endpoint)
    # boto3 is slow to import, and other commands do without.
    from sparkinesis.lease.table.table import LeaseTable  # noqa: PLC0415

    return LeaseTable(name, region, endpoint, CredentialSource(profile))


def find_stream_and_table(
    stream: str | None,
    name: str,
    *,
    region: str | None,
    endpoint: str | None,
    dynamodb_endpoint: str | None,
    profile: str | None,
) -> tuple[StreamAddress | None, LeaseTable]:
    """The stream, if one is given, and the application's lease table, in the stream's region.

    Raises `OptionError`; nothing is called.
    """
    address = None if stream is None else find_stream(stream, region, endpoint, profile)
    where = address.region if address else region
    return address, find_table(name, where, dynamodb_endpoint or endpoint, profile)


@contextmanager
def errors_in_one_line(command: str) -> Iterator[None]:
    """Exit with 1 and the error's text on stderr."""
    try:
        yield
    except SparkinesisError as error:
        typer.echo(f"sparkinesis {command}: {error}", err=True)
        raise typer.Exit(1) from None


def checkpoint_object(at: ExtendedSequenceNumber, timestamp_ms: int | None) -> dict[str, Any]:
    """A checkpoint in JSON; the time (epoch ms) of LATEST and AT_TIMESTAMP, if it is known."""
    found = {
        "sequence_number": at.sequence_number,
        "sub_sequence_number": at.sub_sequence_number,
    }
    return found if timestamp_ms is None else {**found, "timestamp_ms": timestamp_ms}
