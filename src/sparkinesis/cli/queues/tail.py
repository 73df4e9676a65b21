"""`sparkinesis queues tail`: prints records that a queue delivers, and releases them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sparkinesis.cli.command_options import (
    KinesisEndpoint,
    Profile,
    Region,
    errors_in_one_line,
)
from sparkinesis.cli.queues.options import (
    Queue,
    client_of,
    received_object,
    time_text,
)
from sparkinesis.cli.streams.record_objects import data_fields
from sparkinesis.errors import ServiceError, printable
from sparkinesis.terminal.printing import counted, say

if TYPE_CHECKING:
    from sparkinesis.queue.client import Received


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
                    for line in _lines(record, as_json=as_json):
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


def _lines(record: Received, *, as_json: bool) -> Iterator[bytes]:
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
