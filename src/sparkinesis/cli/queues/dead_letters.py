"""`sparkinesis queues dead-letters`: lists those of a queue, restores, discards or exports them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from sparkinesis.cli.queues.options import Queue, client_of, received_object, time_text
from sparkinesis.cli.streams.record_objects import data_fields
from sparkinesis.errors import DeadLetterError, OptionError
from sparkinesis.stream.address import shown
from sparkinesis.terminal.printing import counted, print_table, say

if TYPE_CHECKING:
    from sparkinesis.cli.queues.holding import DeadLetterFilter, Holding
    from sparkinesis.queue.client import QueueClient, Received
    from sparkinesis.queue.record import Held

_ASKED_ABOUT = 20
"""The dead letters that are shown before a question."""
_SHORT_DATA = 60
"""Bytes of data in the table."""
_DONE = {"restore": "Restored", "discard": "Discarded"}


@errors_in_one_line("queues dead-letters")
def dead_letters(
    *,
    queue: Queue,
    restore: Annotated[
        bool,
        typer.Option(
            "--restore", help="Make them records again, which are received with a count from 0."
        ),
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard", help="Acknowledge them: they are gone for good.")
    ] = False,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a JSON object for each, with its data, into this new file: with --restore "
            "and --discard before anything is done. `put --json` puts them into a stream.",
        ),
    ] = None,
    record_id: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Only the one of this record id; repeatable."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Only those of this partition key; repeatable."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="INSTANT",
            help="Only what arrived in the stream then or later: an instant such as "
            "2026-11-21T08:30:00Z, or an age such as 10m: a number of s, m, h or d.",
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="INSTANT", help="Only what arrived before that."),
    ] = None,
    least_receives: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Only those received at least N times."),
    ] = None,
    most_receives: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Only those received at most N times."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="N of them at most.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each, with its data.")
    ] = False,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
    yes: Yes = False,
) -> None:
    """List the dead letters of a queue; restore, discard or export them.

    No call of Kinesis only looks: they are received, and those that stay are released at the end.
    Until then no other receive gets them. Whether that is one of their receives is not documented.
    A dead letter stays one until it is restored, discarded, or the stream's retention ends.

    Before --restore and --discard, all that are chosen are held and shown, and a question is asked.
    With --yes, each is done as it is received. Ctrl-C stops, and says what was done.
    """
    if restore and discard:
        raise OptionError("--restore and --discard exclude each other. Pass one of them.")
    from sparkinesis.cli.queues.holding import (  # noqa: PLC0415 - slow to import
        EVERY,
        DeadLetterFilter,
        parse_arrival,
    )
    from sparkinesis.queue.client import DEAD_LETTERS, RESTORED  # noqa: PLC0415

    receives = (
        EVERY[0] if least_receives is None else least_receives,
        EVERY[1] if most_receives is None else most_receives + 1,
    )
    if receives[0] >= receives[1]:
        raise OptionError("--least-receives is above --most-receives: no dead letter has both.")
    arrived = parse_arrival(start, end, time.time_ns() // 1_000_000)
    wanted = DeadLetterFilter(
        frozenset(record_id or ()), frozenset(key or ()), arrived, receives, count
    )
    doing = "restore" if restore else "discard" if discard else ""
    require_confirmable(is_confirmed=yes or not doing)
    calls = RESTORED if restore else DEAD_LETTERS
    client = client_of(queue, region, endpoint, profile, calls)
    with ExitStack() as stack:
        file = None if export is None else stack.enter_context(ExportFile(export))
        say(
            f"Receiving the dead letters of {client.address}: until this command ends, no other "
            "receive gets them.",
            to_stderr=True,
        )
        _work(client, wanted, doing, file, yes=yes, as_json=as_json)


def _work(
    client: QueueClient,
    wanted: DeadLetterFilter,
    doing: str,
    file: ExportFile | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    from sparkinesis.cli.queues.holding import holding  # noqa: PLC0415 - slow to import

    rows: list[dict[str, str]] = []
    chosen: list[Held] = []
    number = 0

    def say_what_was_done(error: object, *_: object) -> None:
        if error is not None and not number:
            return
        said = counted(number, "dead letter")
        if doing:
            said = f"{_DONE[doing]} {holds.settled:,} of {said}."
        else:
            print_table(rows)
        if file is not None:
            said += f" {number:,} exported to {file.path}."
        say(said, to_stderr=as_json)

    with ExitStack() as stack:
        stack.push(say_what_was_done)
        holds = stack.enter_context(holding(client))
        for taken in holds.matching(wanted):
            records = [one.record for one in taken]
            if file is not None:
                file.write(records)
            number += len(records)
            if as_json:
                print_objects(map(dead_letter_object, records))
            elif not doing or len(rows) < _ASKED_ABOUT:
                rows += map(_row, records)
            if yes and doing:
                holds.settle(one.held for one in taken)
            elif doing:
                chosen += [one.held for one in taken]
        if chosen and not holds.is_stopping:
            said = f"{doing.capitalize()} {counted(number, 'dead letter')} of {client.address}?"
            _ask(said, rows, number - len(rows))
            holds.settle(chosen)
    _fail_if_left(holds)


def _fail_if_left(holds: Holding) -> None:
    problems = list(holds.problems())
    if holds.is_stopping:
        problems.insert(0, "The command was stopped, and has released what is left.")
    if problems:
        raise DeadLetterError(" ".join((*problems, "Run it again for the rest.")))


def _ask(question: str, rows: Sequence[Mapping[str, str]], more: int) -> None:
    """Ask about dead letters, of which some are shown, and more are not. A no is typer's Abort.

    Ctrl-C and SIGTERM are a no, too.
    """
    from sparkinesis.worker.lifecycle.signals import SIGNALS, handling  # noqa: PLC0415

    print_table(rows, to_stderr=True)
    if more:
        say(f"and {more:,} more", to_stderr=True)
    with handling(SIGNALS, signal.default_int_handler):
        typer.confirm(question, abort=True, err=True)


class ExportFile:
    """The new file of a command's dead letters. One without any is deleted at the end."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._file = Path(path).open("xb")  # noqa: SIM115 - closed at the end of the block
        except FileExistsError:
            raise OptionError(
                f"--export is {shown(path)}, which is there already. Name a new file: that one may "
                "have what an earlier command has discarded."
            ) from None
        except OSError as error:
            raise OptionError(
                f"--export is {shown(path)}, which cannot be written: {error.strerror}."
            ) from None

    def __enter__(self) -> ExportFile:
        return self

    def write(self, records: Iterable[Received]) -> None:
        """Write a line for each; they survive a power failure. Raises `DeadLetterError`."""
        try:
            for one in records:
                self._file.write(json.dumps(dead_letter_object(one)).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise DeadLetterError(
                f"Dead letters cannot be written to {self.path}: {error.strerror}. Those that are "
                "not in it are released."
            ) from None

    def __exit__(self, *_: object) -> None:
        is_empty = not self._file.tell()
        with suppress(OSError):  # told before
            self._file.close()
        if is_empty:
            Path(self.path).unlink(missing_ok=True)


def dead_letter_object(one: Received) -> dict[str, Any]:
    """Return the object of a dead letter, as `put --json` reads it: an aggregate as it is."""
    return {**received_object(one), "partition_key": one.partition_key, **data_fields(one.data)}


def _row(one: Received) -> dict[str, str]:
    data = one.data[:_SHORT_DATA].decode(errors="backslashreplace")
    return {
        "record id": one.record_id,
        "receives": str(one.receive_count),
        "key": "-" if one.partition_key is None else one.partition_key,
        "arrived": time_text(one.arrived_at) or "-",
        "bytes": f"{len(one.data):,}",
        "data": data if len(one.data) <= _SHORT_DATA else f"{data}...",
    }
