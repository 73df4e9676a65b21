"""`sparkinesis tail`: prints the records of a stream as they come."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from sparkinesis.cli.options import (
    KinesisEndpoint,
    Profile,
    Region,
    StreamName,
    errors_in_one_line,
)
from sparkinesis.errors import OptionError
from sparkinesis.stream.address import stream_address
from sparkinesis.stream.credentials import CredentialSource
from sparkinesis.stream.position import AtTimestamp, InitialPosition, parse_initial_position
from sparkinesis.terminal.names import printable, short_shard

if TYPE_CHECKING:
    from sparkinesis.worker.batches.user_record import UserRecord

_AGE = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

Lines: TypeAlias = "Callable[[Sequence[UserRecord]], bytes]"


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
            "as 10m: a number of s, m, h or d.",
        ),
    ] = "latest",
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
    position = parse_start(start, time.time_ns() // 1_000_000)
    address = stream_address(stream, region, endpoint, CredentialSource(profile))
    # boto3 is slow to import, and not all commands need it.
    from sparkinesis.stream.calls.client import StreamClient  # noqa: PLC0415
    from sparkinesis.stream.kpl.objects import make_objects  # noqa: PLC0415
    from sparkinesis.stream.reading.following import follow  # noqa: PLC0415
    from sparkinesis.worker.batches.user_record import make_user_record  # noqa: PLC0415

    lines = _lines(address.name, as_json=as_json)
    keys = frozenset(key or ())
    left = count
    with closing(follow(StreamClient(address), position, ends=once)) as pages:
        for page in pages:
            records, _ = make_objects(page.records, make_user_record, page.shard_id)
            wanted = [one for one in records if not keys or one.partition_key in keys][:left]
            sys.stdout.buffer.write(lines(wanted))
            sys.stdout.buffer.flush()
            if left is not None:
                left -= len(wanted)
                if not left:
                    return


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
    """Return what makes the lines of records."""
    if as_json:
        import msgspec  # noqa: PLC0415

        from sparkinesis.cli.streams.record_objects import record_object  # noqa: PLC0415

        encode = msgspec.json.Encoder().encode
        return lambda records: b"".join(
            encode(record_object(one, stream)) + b"\n" for one in records
        )
    if sys.stdout.isatty():
        return lambda records: "".join(map(_shown, records)).encode()
    return lambda records: b"".join([one.data + b"\n" for one in records])


def _shown(record: UserRecord) -> str:
    """Return the line of a record on a terminal, which its data cannot control."""
    from sparkinesis.monitor.lease_report import instant_text  # noqa: PLC0415

    arrived = instant_text(record.approximate_arrival_timestamp) or "-"
    where = f"{arrived} {short_shard(record.shard_id)}"
    key = printable(record.partition_key or "-")
    data = printable(record.data.decode(errors="backslashreplace"))
    return f"{typer.style(where, dim=True)} {typer.style(key, fg='cyan')} {data}\n"
