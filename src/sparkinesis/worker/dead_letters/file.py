"""The Parquet file of a dead letter: records that could not be processed, and the error. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

import pyarrow as pa

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.reading.arrow import USER_RECORD_SCHEMA
from sparkinesis.worker.reporting.failures import describe, traceback_of

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
