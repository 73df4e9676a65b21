"""`sparkinesis dead-letters`: lists dead letters, shows them, or puts them back into a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    stream_names,
)
from sparkinesis.cli.streams.dead_letter_streams import (
    Delivery,
    deliveries_of,
    names_of,
    only_from,
)
from sparkinesis.cli.streams.record_objects import data_fields
from sparkinesis.errors import DeadLetterError, OptionError, printable
from sparkinesis.monitor.chosen_streams import ChosenStreams
from sparkinesis.monitor.lease_report import checkpoint_object, instant_text
from sparkinesis.monitor.watched import short_checkpoint
from sparkinesis.stream.address import CredentialSource, stream_address
from sparkinesis.terminal.printing import counted, print_table

if TYPE_CHECKING:
    from sparkinesis.worker.dead_letters.stored import Contents, DeadLetters, Letter, PutBack

_SHORT_ERROR = 100
"""Characters of an error in the table."""


@errors_in_one_line("dead-letters")
def dead_letters(
    *,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="The path or URI of a DeadLetterDirectory, or of one of its files."
        ),
    ],
    show: Annotated[
        bool, typer.Option("--show", help="Show the records, their errors and tracebacks.")
    ] = False,
    put_back: Annotated[
        bool,
        typer.Option(
            "--put-back",
            help="Put the records into --stream, or each back into the stream it comes from.",
        ),
    ] = False,
    stream: Annotated[
        str | None,
        typer.Option(
            metavar="STREAM",
            autocompletion=stream_names,
            help="With --put-back: the name or ARN of the stream. Not needed for records of an "
            "application of several streams, whose files name their own.",
        ),
    ] = None,
    sources: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="STREAM",
            help="Only records from this stream: a name, an ARN or ACCOUNT:NAME:EPOCH; repeatable.",
        ),
    ] = None,
    delete: Annotated[
        bool,
        typer.Option(
            "--delete",
            help="With --put-back: delete the files afterwards. Default: move them to put-back/.",
        ),
    ] = False,
    region: Region = None,
    endpoint: KinesisEndpoint = None,
    profile: Profile = None,
    yes: Yes = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a JSON object for each file, with --show each record."),
    ] = False,
) -> None:
    """List the dead letters of record processors, show them, or put them back into a stream.

    A file is moved or deleted only after the stream has accepted all of its records.
    """
    from sparkinesis.worker.dead_letters.stored import DeadLetters  # noqa: PLC0415 - slow to import

    if put_back and show:
        raise OptionError("--show and --put-back exclude each other. Pass one of them.")
    if not put_back and (stream is not None or delete):
        given = "--delete" if delete else "--stream"
        raise OptionError(f"{given} needs --put-back. Nothing was done.")
    if stream is not None:
        stream_address(stream, region, endpoint)  # a name or an ARN, nothing else
    credentials = CredentialSource(profile)
    options = ChosenStreams.of([stream] if stream else [], region, endpoint, credentials)
    if stream is not None:
        require_confirmable(is_confirmed=yes)
    letters = DeadLetters.at(path)
    contents = only_from(letters.contents(), sources or (), letters.storage.name)
    unread: list[str] = []
    if put_back:
        deliveries, left = deliveries_of(contents.letters, options, is_chosen=bool(sources))
        require_confirmable(is_confirmed=yes)
        _put_back(letters, contents, deliveries, left=left, delete=delete, yes=yes, as_json=as_json)
    elif show:
        unread = _show(letters, contents, as_json=as_json)
    elif as_json:
        print_objects(map(_object, contents.letters))
    else:
        _list(contents, letters.storage.name)
    _fail_if_unreadable(contents, unread, letters.storage.name)


def _put_back(
    letters: DeadLetters,
    contents: Contents,
    deliveries: Sequence[Delivery],
    *,
    left: Mapping[str, str],
    delete: bool,
    yes: bool,
    as_json: bool,
) -> None:
    from sparkinesis.worker.dead_letters.stored import PutBack, put_back  # noqa: PLC0415 - slow to import

    if not contents.letters:
        if not as_json:
            _list(contents, letters.storage.name)
        return
    if not yes:
        _list(contents, letters.storage.name, to_stderr=as_json)
        typer.confirm(_question(contents, deliveries), abort=True, err=True)
    found = PutBack(left=dict(left))
    for one in deliveries:
        made = put_back(letters, one.letters, one.address, delete=delete, needs_keys=one.needs_keys)
        found.done += made.done
        found.left |= made.left
        found.error = found.error or made.error
        if not as_json:
            where = "deleted" if delete else f"now in {letters.storage.name.rstrip('/')}/put-back"
            typer.echo(f"Put {_count(made.done)} into the {one.address}. The files are {where}.")
    if as_json:
        print_objects(
            {
                **_object(letter),
                "put_back": letter in found.done,
                "why_not": found.left.get(letter.file),
            }
            for letter in contents.letters
        )
    _fail_if_left(found, as_json=as_json)


def _question(contents: Contents, deliveries: Sequence[Delivery]) -> str:
    names = names_of(contents.letters)
    streams = sorted(set(names.values()))
    source = f", of stream{'s' * (len(streams) > 1)} {printable(', '.join(streams))},"
    targets = [f"the {one.address}" for one in deliveries]
    if len(targets) > 1:
        targets = [f"{_count(one.letters)} into the {one.address}" for one in deliveries]
        return f"Put {_count(contents.letters)}{source} back: {', '.join(targets)}?"
    into = targets[0] if targets else "no stream"
    return f"Put {_count(contents.letters)}{source} into {into}?"


def _fail_if_left(found: PutBack, *, as_json: bool) -> None:
    if not found.left:
        return
    if not as_json:
        for file, why in found.left.items():
            typer.echo(f"{printable(file)} was not put back: {printable(why)}", err=True)
    files = counted(len(found.left), "file")
    because = f": {found.error}" if found.error is not None else "."
    raise DeadLetterError(f"{files} could not be put back. Run the command again{because}")


def _fail_if_unreadable(contents: Contents, unread: Sequence[str], name: str) -> None:
    for file, why in contents.unreadable.items():
        typer.echo(f"{printable(file)} was skipped: {printable(why)}", err=True)
    for why in unread:
        typer.echo(printable(why), err=True)
    count = len(contents.unreadable) + len(unread)
    if count:
        files = counted(count, "file")
        raise DeadLetterError(f"{files} in {name} cannot be read as dead letters.")


def _list(contents: Contents, name: str, *, to_stderr: bool = False) -> None:
    if not contents.letters:
        typer.echo(f"There are no dead letters in {name}.", err=to_stderr)
        return
    names = names_of(contents.letters)
    has_streams = len(set(names.values())) > 1
    rows = []
    for letter in contents.letters:
        about = letter.about
        places = dict.fromkeys(short_checkpoint(each) for each in (about.first, about.last))
        row = {"stream": printable(names[letter.file])} if has_streams else {}
        row |= {
            "shard": printable(about.shard_id),
            "records": str(about.records),
            "sequence numbers": " to ".join(places),
            "failed": instant_text(about.failed_at) or "-",
            "error": _brief(about.error or "-"),
            "file": printable(letter.file),
        }
        rows.append(row)
    print_table(rows, to_stderr=to_stderr)


def _show(letters: DeadLetters, contents: Contents, *, as_json: bool) -> list[str]:
    """Print the letters; return the errors of those that could not be read."""
    unread = []
    for number, letter in enumerate(contents.letters):
        try:
            rows = list(_rows(letters, letter))
        except DeadLetterError as error:
            unread.append(str(error))
            continue
        if as_json:
            why = {**_reason(letter), "traceback": letter.about.traceback}
            print_objects({"file": letter.file, **row, **why} for row in rows)
            continue
        typer.echo("\n" * bool(number), nl=False)
        for line in _letter_lines(letter, rows):
            typer.echo(line)
    if not contents.letters and not as_json:
        _list(contents, letters.storage.name)
    return unread


def _rows(letters: DeadLetters, letter: Letter) -> Iterator[dict[str, Any]]:
    for row in letters.rows(letter).to_pylist():
        arrival = row["approximateArrivalTimestamp"]
        yield {
            "stream": row["stream"],
            "shard": row["shardId"],
            "sequence_number": row["sequenceNumber"],
            "sub_sequence_number": row["subSequenceNumber"],
            "partition_key": row["partitionKey"],
            "explicit_hash_key": row["explicitHashKey"],
            "arrived_at": instant_text(arrival),
            **data_fields(row["data"]),
        }


def _letter_lines(letter: Letter, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    about = letter.about
    yield f"{printable(letter.file)}"
    yield f"  application  {printable(about.application or '-')}"
    if about.stream_id is not None:
        yield f"  stream       {printable(about.stream_id)}"
    yield f"  failed       {instant_text(about.failed_at) or 'not known'}"
    yield f"  error        {printable(about.error or 'not known')}"
    for line in (about.traceback or "").splitlines():
        yield f"    {printable(line)}"
    for row in rows:
        at = f"{row['sequence_number']}:{row['sub_sequence_number']}"
        yield f"  record {at} of {printable(row['shard'])}, stream {printable(row['stream'])}"
        for name in ("partition_key", "explicit_hash_key", "arrived_at", "data", "data_base64"):
            if row.get(name) is not None:
                # Lines of data stay lines; other control characters of a record are escaped.
                lines = str(row[name]).split("\n") if name == "data" else [str(row[name])]
                yield f"    {name.replace('_', ' ')}: {printable(lines[0])}"
                yield from (f"      {printable(line)}" for line in lines[1:])


def _object(letter: Letter) -> dict[str, Any]:
    about = letter.about
    return {
        "file": letter.file,
        "stream": about.stream,
        "identifier": about.stream_id,
        "shard": about.shard_id,
        "first": checkpoint_object(about.first, None),
        "last": checkpoint_object(about.last, None),
        "records": about.records,
        **_reason(letter),
    }


def _reason(letter: Letter) -> dict[str, Any]:
    about = letter.about
    return {
        "application": about.application,
        "failed_at": instant_text(about.failed_at),
        "error": about.error,
    }


def _count(letters: Sequence[Letter]) -> str:
    records = sum(letter.about.records for letter in letters)
    return f"{counted(records, 'record')} of {counted(len(letters), 'file')}"


def _brief(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _SHORT_ERROR else f"{shown[:_SHORT_ERROR]}..."
