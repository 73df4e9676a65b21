"""`sparkinesis put`: puts the lines of stdin into a stream.

Lines come in batches, as the input may pause; each becomes a record, or is refused by its number.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from sparkinesis.cli.command_options import (
    KinesisEndpoint,
    Profile,
    Region,
    StreamName,
    errors_in_one_line,
)
from sparkinesis.cli.streams.record_objects import RecordKeys, parse_object, parse_record
from sparkinesis.errors import OptionError
from sparkinesis.stream.address import CredentialSource, StreamAddress, stream_address
from sparkinesis.stream.put_entry import random_key, why_refused
from sparkinesis.terminal.printing import counted

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
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415

    StreamClient(
        address
    ).describe_created()  # a misspelled stream fails before the first line is typed
    parse = (
        parse_record if as_json else with_key(key) if key_field is None else with_key_of(key_field)
    )
    if sys.stdin.isatty():
        typer.echo("Each line becomes a record. Ctrl-D ends the input.", err=True)
    _put(address, OutgoingLines(parse, max_size), aggregate=aggregate)


def _put(address: StreamAddress, outgoing: OutgoingLines, *, aggregate: bool) -> None:
    from sparkinesis.stream.kpl.pack import DEFAULT_MAX_SIZE, OutgoingRecord  # noqa: PLC0415
    from sparkinesis.stream.putting import Putter  # noqa: PLC0415

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


Parse: TypeAlias = Callable[[bytes], tuple[RecordKeys, bytes]]
"""Returns the keys and the data of a line; raises `OptionError` that continues a sentence."""


class BadLineError(OptionError):
    """A line of the input cannot be put."""


def with_key(key: str | None) -> Parse:
    """Return a function that gives each line this partition key; None: a random one."""
    return lambda line: (RecordKeys(key), line)


def with_key_of(field: str) -> Parse:
    """Return a function that takes the partition key from a field of a line of JSON."""

    def parse(line: bytes) -> tuple[RecordKeys, bytes]:
        value = parse_object(line).get(field)
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise OptionError(f'it has no text or whole number "{field}"')
        return RecordKeys(str(value)), line

    return parse


@dataclass
class OutgoingLines:
    """Makes records of the lines of one input, and counts the lines."""

    parse: Parse
    most_bytes: int
    """The most bytes of data and partition key together."""
    number: int = 0
    """The number of the last line, from 1."""

    @property
    def longest_line(self) -> int:
        """The bytes of a line beyond which its record is too large, in whatever form it is."""
        return 2 * self.most_bytes + 10_000

    def records(
        self, lines: Sequence[bytes]
    ) -> tuple[list[tuple[str, str | None, bytes]], BadLineError | None]:
        """Return the records of the next lines: of those before the first that cannot be put."""
        made = []
        for line in lines:
            self.number += 1
            try:
                made.append(self._record(line))
            except OptionError as error:
                return made, BadLineError(
                    f"Line {self.number} cannot be put: {error}. All lines before it are put, and "
                    "none after it."
                )
        return made, None

    def _record(self, line: bytes) -> tuple[str, str | None, bytes]:
        if len(line) > self.longest_line:
            raise OptionError(f"it has more than {self.most_bytes:,} bytes, the most of a record")
        keys, data = self.parse(line)
        key = keys.partition_key if keys.partition_key is not None else random_key()
        if why := why_refused(key, keys.explicit_hash_key):
            raise OptionError(why)
        size = len(data) + len(key.encode())
        if size > self.most_bytes:
            raise OptionError(
                f"data and partition key have {size:,} bytes, and a record of the stream has "
                f"{self.most_bytes:,} at most"
            )
        return key, keys.explicit_hash_key, data


_CHUNKS_AHEAD = 16
"""The most chunks that are read before the lines of earlier ones are used."""
IDLE = 0.05
"""Seconds without input after which the lines so far go."""
LONGEST_WAIT = 0.5
"""Seconds after which they go even if more input comes all the time."""


def line_batches(
    read: Callable[[], bytes], longest: int, clock: Callable[[], float] = time.monotonic
) -> Iterator[Sequence[bytes]]:
    """Yield lines, without their ends; an empty batch where the ones so far should not wait longer.

    read: returns some bytes, and none at the end of the input; an own thread calls it. longest:
    a longer line is yielded in parts, so that an input without line ends is not kept in memory.
    Raises the error of ``read``.
    """
    chunks: queue.Queue[bytes | OSError] = queue.Queue(_CHUNKS_AHEAD)
    threading.Thread(target=_gather, args=(read, chunks), name="lines", daemon=True).start()
    rest = b""
    waits_since: float | None = None
    while True:
        if waits_since is not None and clock() - waits_since >= LONGEST_WAIT:
            waits_since = None
            yield []
        try:
            chunk = chunks.get(timeout=None if waits_since is None else IDLE)
        except queue.Empty:
            waits_since = None
            yield []
            continue
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            break
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > longest:
            lines.append(rest)
            rest = b""
        if lines:
            waits_since = clock() if waits_since is None else waits_since
            yield lines
    if rest:
        yield [rest]


def _gather(read: Callable[[], bytes], chunks: queue.Queue[bytes | OSError]) -> None:
    try:
        while chunk := read():
            chunks.put(chunk)
        chunks.put(b"")
    except OSError as error:
        chunks.put(error)
