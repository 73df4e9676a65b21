"""`sparkinesis put`: puts the lines of stdin into a stream."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from sparkinesis.cli.options import (
    KinesisEndpoint,
    Profile,
    Region,
    StreamName,
    errors_in_one_line,
)
from sparkinesis.errors import OptionError
from sparkinesis.stream.address import StreamAddress, stream_address
from sparkinesis.stream.credentials import CredentialSource
from sparkinesis.terminal.names import counted

if TYPE_CHECKING:
    from sparkinesis.cli.streams.outgoing_lines import OutgoingLines

_CHUNK = 65_536
"""The most bytes of a read from stdin."""


@errors_in_one_line("put")
def put(
    *,
    stream: StreamName,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="The partition key of all lines: they go into one shard, one after the other. "
            "Default: a random key for each line.",
        ),
    ] = None,
    key_field: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The lines are JSON objects; the partition key of each is in this field.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="The lines are objects as `tail --json` prints them: with data or data_base64, "
            "and perhaps partition_key and explicit_hash_key.",
        ),
    ] = False,
    aggregate: Annotated[
        bool,
        typer.Option(
            "--aggregate",
            help="Pack lines into aggregated records, as the KPL does: far fewer records, which "
            "all readers have to unpack.",
        ),
    ] = False,
    max_size: Annotated[
        int,
        typer.Option(
            min=1,
            max=10_485_760,
            metavar="BYTES",
            help="The most bytes of a record, its key included, that the stream accepts.",
        ),
    ] = 1_048_576,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
) -> None:
    """Put the lines of stdin into a stream, each as a record.

    A line is put within about a second, also if no other follows. The lines of a partition key keep
    their order. What the service refuses for the moment is put again, so a line may be there twice
    if an answer is lost. The number of records is printed to stderr at the end.

    A line that cannot be put ends the command with exit code 1, after the lines before it.
    """
    given = [
        name
        for name, is_given in (
            ("--key", key is not None),
            ("--key-field", key_field is not None),
            ("--json", as_json),
        )
        if is_given
    ]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} exclude each other. Pass one of them.")
    if sys.stdin is None:  # the process was started without one
        raise OptionError("There is no stdin to read lines from. Pipe them into the command.")
    address = stream_address(stream, region, endpoint, CredentialSource(profile))
    # boto3 is slow to import, and not all commands need it.
    from sparkinesis.cli.streams.outgoing_lines import (  # noqa: PLC0415
        OutgoingLines,
        with_all_of,
        with_key,
        with_key_of,
    )
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415

    StreamClient(address).describe_created()  # a misspelled stream fails before anybody types
    parse = (
        with_all_of if as_json else with_key(key) if key_field is None else with_key_of(key_field)
    )
    if sys.stdin.isatty():
        typer.echo("Each line becomes a record. Ctrl-D ends the input.", err=True)
    _put(address, OutgoingLines(parse, max_size), aggregate=aggregate)


def _put(address: StreamAddress, outgoing: OutgoingLines, *, aggregate: bool) -> None:
    from sparkinesis.cli.streams.line_batches import line_batches  # noqa: PLC0415 - slow to import
    from sparkinesis.stream.kpl.pack import DEFAULT_MAX_SIZE, OutgoingRecord  # noqa: PLC0415
    from sparkinesis.stream.putting.putter import Putter  # noqa: PLC0415

    began = time.monotonic()
    handed = stored = 0

    def count(records: Sequence[OutgoingRecord]) -> None:
        nonlocal stored
        stored += len(records)

    stdin = sys.stdin.fileno()
    size = DEFAULT_MAX_SIZE if aggregate else None
    on_stored = (lambda _: None) if aggregate else count
    try:
        with Putter(address, on_stored=on_stored, ordered=True, aggregate_size=size) as putter:
            for lines in line_batches(lambda: os.read(stdin, _CHUNK), outgoing.longest_line):
                records, error = outgoing.records(lines)
                putter.put(records)
                handed += len(records)
                if error is not None or not lines:
                    putter.flush()
                    stored = handed
                if error is not None:
                    raise error
        stored = handed
    finally:
        seconds = time.monotonic() - began
        typer.echo(
            f"Put {counted(stored, 'record')} into the {address} in {seconds:.1f} s.", err=True
        )
