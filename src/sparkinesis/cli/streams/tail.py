"""`sparkinesis tail`: prints the records of a stream as they come."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from sparkinesis.cli.command_options import (
    KinesisEndpoint,
    Profile,
    Region,
    StreamName,
    errors_in_one_line,
)
from sparkinesis.errors import OptionError, check_all, printable
from sparkinesis.stream.address import CredentialSource, stream_address
from sparkinesis.stream.position import (
    AfterRecord,
    AtTimestamp,
    InitialPosition,
    parse_initial_position,
)
from sparkinesis.terminal.printing import say, short_shard

if TYPE_CHECKING:
    from sparkinesis.worker.batches.user_record import UserRecord

CHECKING = "Checking the order"
"""The panel of the options that look for breaks of order."""

_AGE = re.compile(r"([0-9]{1,9})([smhd])")
_RECORD = re.compile(r"([0-9]{1,128})(?::([0-9]{1,18}))?")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Place: TypeAlias = tuple[float, float]
"""The sequence number and the sub-sequence number of a user record."""
Lines: TypeAlias = "Callable[[Sequence[UserRecord], Sequence[str]], bytes]"
"""Makes the lines of a shard's records; takes the shard's parents, too."""


@errors_in_one_line("tail", ends_by_ctrl_c=True)
def tail(
    *,
    stream: StreamName,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="POSITION",
            help="latest, trim_horizon, an instant such as 2026-11-21T08:30:00Z, or an age such "
            "as 10m: a number of s, m, h or d. With one --shard also SEQUENCE_NUMBER[:SUB], the "
            "first user record.",
        ),
    ] = "latest",
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="SEQUENCE_NUMBER[:SUB]",
            help="With one --shard: end after this user record; without SUB, after the last one "
            "of the record.",
        ),
    ] = None,
    shard: Annotated[
        list[str] | None,
        typer.Option(
            "--shard",
            metavar="SHARD",
            help="Only records of this shard, by its id, and not of those that a split or a merge "
            "makes of it; repeatable.",
        ),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key", metavar="KEY", help="Only records of this partition key; repeatable."
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after N records.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="End after the records that are there now.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each record.")
    ] = False,
    check_order: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            rich_help_panel=CHECKING,
            help="Print the records alone that break the order of their key: those where FIELD of "
            "the data, which is JSON, is less than before, and those that come again. FIELD is a "
            "number, an instant or another text; a.b is b in an object a. The exit code is 1 if "
            "there are any.",
        ),
    ] = None,
    gaps: Annotated[
        bool,
        typer.Option(
            "--gaps",
            rich_help_panel=CHECKING,
            help="FIELD counts the records of a key by one: print where numbers are missing, too.",
        ),
    ] = False,
    per: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            rich_help_panel=CHECKING,
            help="The field of the data by which records have an order, for producers that change "
            "keys. Default: the partition key.",
        ),
    ] = None,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
) -> None:
    """Print the records of a stream as they come, until Ctrl-C.

    Aggregated records are unpacked. Each shard is printed in order, and before the shards that a
    split or a merge makes of it. Nothing is written, and no lease is taken.

    A pipe or a file gets the data of each record and a line's end, nothing else. A terminal shows
    the time of arrival, the shard and the partition key before it.
    """
    if check_order is None and (gaps or per is not None):
        raise OptionError(f"{'--gaps' if gaps else '--per'} needs --check-order FIELD.")
    read = partial(parse_range, start, to, shard or (), time.time_ns() // 1_000_000)
    find = partial(stream_address, stream, region, endpoint, CredentialSource(profile))
    check_all([((), read), ((), find)])
    wanted, address = read(), find()
    # boto3 is slow to import, and not all commands need it.
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415
    from sparkinesis.stream.kpl.objects import make_objects  # noqa: PLC0415
    from sparkinesis.stream.reading.following import follow  # noqa: PLC0415
    from sparkinesis.worker.batches.user_record import make_user_record  # noqa: PLC0415

    keys = frozenset(key or ())
    left = count
    pages = follow(StreamClient(address), wanted.position, only=wanted.shards, ends=once)
    output = (
        nullcontext(_lines(address.name, as_json=as_json))
        if check_order is None
        else _breaks(address.name, check_order, gaps=gaps, per=per, as_json=as_json)
    )
    with closing(pages), output as lines:
        for page in pages:
            if wanted.first is not None and page.records[0].sequence_number != str(wanted.first[0]):
                say(
                    f"Note: {page.shard_id} has no record {wanted.first[0]} any more, or never had "
                    f"it. The first one behind is {page.records[0].sequence_number}.",
                    to_stderr=True,
                )
            records, _ = make_objects(page.records, make_user_record, page.shard_id)
            found = [one for one in wanted.of(records) if not keys or one.partition_key in keys][
                :left
            ]
            sys.stdout.buffer.write(lines(found, page.parents))
            sys.stdout.buffer.flush()
            if left is not None:
                left -= len(found)
            if left == 0 or wanted.ends_by(page.records[-1].sequence_number):
                return
            wanted = replace(wanted, first=None)


@dataclass(frozen=True)
class Range:
    """The records to read: from a position in shards, or from ``first`` to ``last``."""

    position: InitialPosition | AfterRecord
    shards: Collection[str] = ()
    """Empty: all."""
    first: Place | None = None
    last: Place | None = None

    def of(self, records: Sequence[UserRecord]) -> Sequence[UserRecord]:
        """Return the user records within the range."""
        if self.first is None and self.last is None:
            return records
        first, last = self.first or (0, 0), self.last or (math.inf, 0)
        return [
            one
            for one in records
            if first <= (int(one.sequence_number), one.sub_sequence_number) <= last
        ]

    def ends_by(self, sequence_number: str) -> bool:
        """Return True if no record behind this one is within the range."""
        return self.last is not None and int(sequence_number) >= self.last[0]


def parse_range(start: str, to: str | None, shards: Sequence[str], now_ms: int) -> Range:
    """Read the options ``--from``, ``--to`` and ``--shard``. Raises `OptionError`.

    ``now_ms``: the present in epoch ms.
    """
    first, last = _parse_record(start, 0), None
    if to is not None and (last := _parse_record(to, math.inf)) is None:
        raise OptionError(
            f"--to is {to[:100]!r}; it takes the sequence number of a record, or "
            "SEQUENCE_NUMBER:SUB of a user record."
        )
    if (first or last) and len({*shards}) != 1:
        raise OptionError(
            f"{'--from' if first else '--to'} is a sequence number, which is a record of one "
            "shard. Name the shard by --shard."
        )
    if first and last and first > last:
        raise OptionError("--to is before --from: there is no record between them.")
    position = AfterRecord(str(first[0])) if first else parse_start(start, now_ms)
    return Range(position, shards, first, last)


def _parse_record(text: str, sub: float) -> Place | None:
    """Read ``SEQUENCE_NUMBER[:SUB]``; None for any other text. ``sub``: the default."""
    found = _RECORD.fullmatch(text.strip())
    return found and (int(found[1]), int(found[2]) if found[2] else sub)


def parse_start(text: str, now_ms: int) -> InitialPosition:
    """Read ``latest``, ``trim_horizon``, an instant, or an age such as ``10m``.

    ``now_ms``: the present in epoch ms. Raises `OptionError`.
    """
    if found := _AGE.fullmatch(text.strip()):
        return AtTimestamp(max(0, now_ms - int(found[1]) * _SECONDS[found[2]] * 1000))
    try:
        position = parse_initial_position(text, ", or an age such as 10m")
    except ValueError as error:
        raise OptionError(f"--from is {text[:100]!r}, {error}.") from None
    if isinstance(position, AtTimestamp) and position.ms > now_ms:
        raise OptionError(f"--from is {text!r}, an instant that is yet to come.")
    return position


def _lines(stream: str, *, as_json: bool) -> Lines:
    """Return the function that makes the lines of records."""
    if as_json:
        import msgspec  # noqa: PLC0415

        from sparkinesis.cli.streams.record_objects import record_object  # noqa: PLC0415

        encode = msgspec.json.Encoder().encode
        return lambda records, _: b"".join(
            encode(record_object(one, stream)) + b"\n" for one in records
        )
    if sys.stdout.isatty():
        return lambda records, _: "".join(map(_shown, records)).encode()
    return lambda records, _: b"".join([one.data + b"\n" for one in records])


@contextmanager
def _breaks(
    stream: str, name: str, *, gaps: bool, per: str | None, as_json: bool
) -> Iterator[Lines]:
    """Give the function that makes lines of what breaks an order, and say at the end what was read.

    Ends with exit code 1 if anything does.
    """
    import msgspec  # noqa: PLC0415

    from sparkinesis.cli.streams.order_check import OrderCheck  # noqa: PLC0415

    check = OrderCheck(name, gaps=gaps, per=per)
    encode = msgspec.json.Encoder().encode

    def lines(records: Sequence[UserRecord], parents: Sequence[str]) -> bytes:
        found = check.breaks(records, parents)
        if as_json:
            return b"".join([encode(one.as_object(stream)) + b"\n" for one in found])
        return "".join([f"{one.line(name)}\n" for one in found]).encode()

    with suppress(KeyboardInterrupt):
        yield lines
    if as_json:
        sys.stdout.buffer.write(encode(check.summary.as_object(stream)) + b"\n")
        sys.stdout.buffer.flush()
    else:
        say(check.summary.text(name), to_stderr=True)
    if not check.summary.is_well:
        raise typer.Exit(1)


def _shown(record: UserRecord) -> str:
    """Return the line of a record on a terminal, which its data cannot control."""
    from sparkinesis.monitor.lease_report import instant_text  # noqa: PLC0415

    arrived = instant_text(record.approximate_arrival_timestamp) or "-"
    where = f"{arrived} {short_shard(record.shard_id)}"
    key = printable(record.partition_key or "-")
    data = printable(record.data.decode(errors="backslashreplace"))
    return f"{typer.style(where, dim=True)} {typer.style(key, fg='cyan')} {data}\n"
