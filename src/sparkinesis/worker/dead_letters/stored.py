"""The Parquet files of dead letters: made, listed in a directory, and put back into a stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import PurePosixPath

import pyarrow as pa
from pyarrow import fs

from sparkinesis.errors import DeadLetterError, SparkinesisError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.kpl.pack import OutgoingRecord
from sparkinesis.stream.put_entry import random_key, why_refused
from sparkinesis.stream.putting import RETRY, Putter
from sparkinesis.stream.reading.arrow import USER_RECORD_SCHEMA
from sparkinesis.worker.reporting.failures import describe, traceback_of
from sparkinesis.worker.sink.storage import Storage, open_storage

MAX_ERROR = 8_000
"""The most characters of an error's message: readers of Parquet refuse a long footer."""
SUMMARY_COLUMNS = ("stream", "shardId", "sequenceNumber", "subSequenceNumber")
"""Columns that `summary` needs."""


class NotADeadLetterError(ValueError):
    """Raised for a Parquet file that is not a dead letter. The message says what it lacks."""


@dataclass(frozen=True, slots=True)
class DeadLetterFile:
    """The summary of a file's records, without their data."""

    stream: str
    shard_id: str
    first: ExtendedSequenceNumber
    last: ExtendedSequenceNumber
    records: int
    application: str | None
    error: str | None
    traceback: str | None
    failed_at: datetime | None
    """The time in UTC, by the clock of the worker's machine; None in older files."""
    stream_id: str | None = None
    """``<account>:<stream>:<creation epoch>``, where the application reads several streams."""


def to_table(
    records: pa.RecordBatch,
    error: BaseException,
    application: str,
    failed_at: datetime,
    stream_id: str | None = None,
) -> pa.Table:
    """Return the rows and metadata of a file. Texts that no file can hold are escaped, or cut.

    ``stream_id``: the identifier of one of several streams of the application.
    """
    metadata = {
        "error": describe(error, MAX_ERROR),
        "traceback": traceback_of(error),
        "application": application,
        "failed_at": failed_at.isoformat(timespec="milliseconds"),
        **({} if stream_id is None else {"stream_id": stream_id}),
    }
    return pa.Table.from_batches([records]).replace_schema_metadata(metadata)


def summary(table: pa.Table) -> DeadLetterFile:
    """Return the summary of a file's rows and metadata. Raises `NotADeadLetterError`."""
    check_columns(table, SUMMARY_COLUMNS)
    if not table.num_rows:
        raise NotADeadLetterError("it has no rows")
    rows = [{name: table.column(name)[at].as_py() for name in SUMMARY_COLUMNS} for at in (0, -1)]
    places = [
        ExtendedSequenceNumber(str(row["sequenceNumber"]), row["subSequenceNumber"] or 0)
        for row in rows
    ]
    if not all(place.sequence_number.isdecimal() for place in places):
        raise NotADeadLetterError(f"{places[0]} is not the position of a record")
    known: Mapping[bytes, bytes] = table.schema.metadata or {}
    return DeadLetterFile(
        str(rows[0]["stream"]),
        str(rows[0]["shardId"]),
        places[0],
        places[1],
        table.num_rows,
        _text(known, "application"),
        _text(known, "error"),
        _text(known, "traceback"),
        _instant(_text(known, "failed_at")),
        _text(known, "stream_id"),
    )


def check_columns(table: pa.Table, names: tuple[str, ...]) -> None:
    """Raise `NotADeadLetterError` unless the table has these columns, with their types."""
    for name in names:
        expected = USER_RECORD_SCHEMA.field(name).type
        if name not in table.schema.names:
            raise NotADeadLetterError(f"it has no column {name!r}")
        if table.schema.field(name).type != expected:
            raise NotADeadLetterError(f"its column {name!r} is not of type {expected}")


def _text(metadata: Mapping[bytes, bytes], key: str) -> str | None:
    found = metadata.get(key.encode())
    return None if found is None else found.decode(errors="replace")


def _instant(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text).astimezone(timezone.utc)
    except ValueError:
        return None


PUT_BACK = "put-back"
"""The folder, beside the files, for files whose records were put back into a stream."""
_READERS = 8
"""The number of files that are read at a time: each takes an object store a while."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A file of dead letters, and its summary."""

    file: str
    about: DeadLetterFile

    @property
    def order(self) -> tuple[str, str, int, int]:
        """The sort key: stream, then the order in which the records were put.

        A parent shard's records come before its children's: sequence numbers grow with time, over
        all shards of a stream.
        """
        first = self.about.first
        stream = self.about.stream, self.about.stream_id or ""
        return *stream, int(first.sequence_number), first.sub_sequence_number


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a dead-letter directory."""

    letters: Sequence[Letter] = ()
    """The letters, in the order in which their records were put."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """The reason for each file that is not a dead letter, or cannot be read."""


@dataclass(frozen=True)
class DeadLetters:
    """The directory that a `DeadLetterDirectory` writes to, or one of its files."""

    storage: Storage
    only: str | None = None
    """The only file to read; None: all files of the directory."""

    @classmethod
    def at(cls, path: str) -> DeadLetters:
        """Open a directory or a file, by a path as `DeadLetterDirectory` takes it.

        Raises `OptionError` for a path that cannot be used, `SinkUnavailableError` if the storage
        cannot be reached, and `DeadLetterError` if there is nothing at the path.
        """
        storage = open_storage(path)
        with _storage_errors(storage.name):
            found = storage.filesystem.get_file_info(storage.root)
        if found.type is fs.FileType.NotFound:
            raise DeadLetterError(
                f"There is no directory or file {storage.name}. A dead-letter directory is created "
                "with its first file: either no record was given up yet, or the path differs from "
                "that of DeadLetterDirectory."
            )
        if not found.is_file:
            return cls(storage)
        root = PurePosixPath(storage.root)
        name = storage.name.rpartition("/")[0] or "."
        return cls(replace(storage, root=str(root.parent), name=name), root.name)

    def contents(self) -> Contents:
        """Read the summaries of all files, without their data. Raises `DeadLetterError`."""
        with _storage_errors(self.storage.name):
            files = self.storage.files() if self.only is None else [self.only]
        with ThreadPoolExecutor(_READERS, thread_name_prefix="dead-letters") as threads:
            found = dict(zip(files, threads.map(self._read, files), strict=True))
        letters = [each for each in found.values() if isinstance(each, Letter)]
        unreadable = {file: why for file, why in found.items() if isinstance(why, str)}
        return Contents(sorted(letters, key=lambda letter: letter.order), unreadable)

    def _read(self, file: str) -> Letter | str:
        """Return the letter in a file, or why there is none."""
        try:
            return Letter(file, summary(self.storage.read(file, SUMMARY_COLUMNS)))
        except Exception as error:  # noqa: BLE001 - whatever a file system or the file's bytes cause
            return _why(error)

    def rows(self, letter: Letter) -> pa.Table:
        """Read all columns of a letter's records. Raises `DeadLetterError`."""
        try:
            table = self.storage.read(letter.file)
            check_columns(table, tuple(USER_RECORD_SCHEMA.names))
        except Exception as error:
            raise DeadLetterError(
                f"The file {letter.file} in {self.storage.name} cannot be read: {_why(error)}."
            ) from error
        return table

    def put_away(self, letter: Letter, *, delete: bool) -> None:
        """Delete a letter's file, or move it into `PUT_BACK`. Raises `DeadLetterError`."""
        try:
            if delete:
                self.storage.delete(letter.file)
            else:
                self.storage.move(letter.file, f"{PUT_BACK}/{letter.file}")
        except Exception as error:
            doing = "deleted" if delete else "moved"
            raise DeadLetterError(
                f"The records of {letter.file} are in the stream, but the file in "
                f"{self.storage.name} cannot be {doing}: {_why(error)}. Delete or move the file by "
                "hand, or its records are put again next time."
            ) from error


@dataclass
class PutBack:
    """The result of `put_back`."""

    done: list[Letter] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    """Files that were not put back, with the reason."""
    error: SparkinesisError | None = None
    """The error that ended the run early; None if no error did."""


def put_back(
    place: DeadLetters,
    letters: Sequence[Letter],
    stream: StreamAddress,
    *,
    delete: bool,
    needs_keys: bool = True,
    retry: Backoff = RETRY,
) -> PutBack:
    """Put the letters' records into a stream, with their keys, in the order of each key.

    needs_keys: True gives a record without a partition key a random one; False puts it without.

    A file is moved away, or deleted, after the stream has accepted all of its records; so records
    are put twice at worst. A letter that cannot be put does not stop the others. An error of the
    stream is in the result.
    """
    result = PutBack()
    pending = _PendingRecords()

    def put_away() -> None:
        for letter in pending.take_stored():
            try:
                place.put_away(letter, delete=delete)
            except DeadLetterError as error:
                result.left[letter.file] = str(error)
            else:
                result.done.append(letter)

    try:
        with Putter(stream, retry, pending.mark_stored, ordered=True) as putter:
            for letter in letters:
                try:
                    records = _records(place.rows(letter), letter.file, needs_keys=needs_keys)
                except DeadLetterError as error:
                    result.left[letter.file] = str(error)
                    continue
                pending.add(letter, records)
                putter.put(records)
                put_away()
    except SparkinesisError as error:
        result.error = error
    finally:
        put_away()  # also when Ctrl-C ends it
    settled = {*result.left, *(letter.file for letter in result.done)}
    for letter in letters:
        if letter.file not in settled:
            result.left[letter.file] = "not all of its records were accepted"
    return result


def _records(table: pa.Table, file: str, *, needs_keys: bool) -> list[OutgoingRecord]:
    """Return the records to put. Raises `DeadLetterError` if one of them cannot be put."""
    columns = (table.column(n).to_pylist() for n in ("partitionKey", "explicitHashKey", "data"))
    records: list[OutgoingRecord] = []
    for key, explicit, data in zip(*columns, strict=True):
        why = "it has no data" if data is None else None
        if key is not None:
            why = why or why_refused(key, explicit)
        if why is not None:
            raise DeadLetterError(
                f"A record of {file} cannot be put: {why}. Read the file with pyarrow or "
                "Spark, and put it with a key of your own."
            )
        if key is None:
            records.append((random_key() if needs_keys else "", None, data))
        else:
            records.append((key, explicit, data))
    return records


class _PendingRecords:
    """Letters whose records were given to a putter, and the records that are not stored yet."""

    def __init__(self) -> None:
        self._open: dict[Letter, int] = {}
        self._of: dict[int, tuple[OutgoingRecord, Letter]] = {}
        """Record and letter by the record's id; the record is kept, so that no other has its id."""

    def add(self, letter: Letter, records: Iterable[OutgoingRecord]) -> None:
        given = {id(record): (record, letter) for record in records}
        self._open[letter] = len(given)
        self._of.update(given)

    def mark_stored(self, records: Iterable[OutgoingRecord]) -> None:
        for record in records:
            _, letter = self._of.pop(id(record))
            self._open[letter] -= 1

    def take_stored(self) -> list[Letter]:
        """Return the letters whose records are all stored; each letter is returned once."""
        stored = [letter for letter, count in self._open.items() if not count]
        for letter in stored:
            del self._open[letter]
        return stored


@contextlib.contextmanager
def _storage_errors(name: str) -> Iterator[None]:
    """Raise any error of the file system as a `DeadLetterError`."""
    try:
        yield
    except Exception as error:
        raise DeadLetterError(
            f"The dead letters in {name} cannot be read: {_why(error)}"
        ) from error


def _why(error: Exception) -> str:
    if isinstance(error, NotADeadLetterError):
        return f"it is not a dead letter of user records: {error}"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
