"""The files of dead letters: what each tells of its records, and when it may be put away."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from sparkinesis.errors import DeadLetterError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.kpl.pack import OutgoingRecord, aggregate
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.batch import RecordBatch, make_batch
from sparkinesis.worker.dead_letters.stored import (
    PUT_BACK,
    DeadLetters,
    Letter,
    NotADeadLetterError,
    _PendingRecords,
    _records,
    summary,
    to_table,
)
from sparkinesis.worker.dead_letters.targets import DeadLetterDirectory, FailedRecords
from tests.unit.worker.delivering import SHARD, batch_of

AT = datetime(2026, 11, 26, 8, 30, 0, 125_000, tzinfo=timezone.utc)
STREAM_ID = "123456789012:s:1763700000"


def table_of(batch: RecordBatch, stream_id: str | None = None) -> pa.Table:
    try:
        raise ValueError("bad")
    except ValueError as error:
        return to_table(batch.to_arrow(), error, "app", AT, stream_id)


def store(folder: Path, batch: RecordBatch, stream_id: str | None = None) -> None:
    target = DeadLetterDirectory(folder, clock=AT.timestamp)
    target(FailedRecords(batch, ValueError("bad"), "app", "s", SHARD, stream_id))


def packed(number: int) -> RecordBatch:
    """The second and the third user record of an aggregate."""
    (blob,) = aggregate([("k", None, b"%d" % n) for n in range(3)])
    record = Record(data=blob.data, partition_key="a", sequence_number=str(number))
    return make_batch([record], stream="s", shard_id=SHARD, millis_behind_latest=0)[0].slice(1, 3)


@pytest.mark.parametrize("stream_id", [None, STREAM_ID])
def test_a_file_tells_its_records_and_the_error(stream_id: str | None) -> None:
    about = summary(table_of(packed(7), stream_id))
    assert (about.stream, about.shard_id, about.records) == ("s", SHARD, 2)
    assert about.first == ExtendedSequenceNumber("7", 1)
    assert about.last == ExtendedSequenceNumber("7", 2)
    assert (about.application, about.error, about.stream_id) == (
        "app",
        "ValueError: bad",
        stream_id,
    )
    assert about.traceback is not None
    assert "in table_of" in about.traceback
    assert about.failed_at == AT


def test_a_file_without_what_is_known_of_the_error_is_a_letter_all_the_same() -> None:
    table = table_of(batch_of(7))
    bare = summary(table.replace_schema_metadata(None))
    assert (bare.error, bare.failed_at, bare.stream_id) == (None, None, None)
    odd = summary(table.replace_schema_metadata({"failed_at": "yesterday", "error": b"\xff"}))
    assert (odd.error, odd.failed_at) == ("\ufffd", None)
    east = AT.astimezone(timezone(timedelta(hours=2))).isoformat()
    assert summary(table.replace_schema_metadata({"failed_at": east})).failed_at == AT


@pytest.mark.parametrize("spoil", ["column", "type", "rows", "number"])
def test_what_is_no_letter_says_what_it_lacks(spoil: str) -> None:
    table = table_of(batch_of(7))
    place = table.schema.get_field_index("sequenceNumber")
    wrong, why = {
        "column": (table.remove_column(place), "it has no column 'sequenceNumber'"),
        "type": (
            table.set_column(place, "sequenceNumber", pa.array([7])),
            "its column 'sequenceNumber' is not of type string",
        ),
        "rows": (table.slice(0, 0), "it has no rows"),
        "number": (
            table.set_column(place, "sequenceNumber", pa.array(["x"])),
            "x:0 is not the position of a record",
        ),
    }[spoil]
    with pytest.raises(NotADeadLetterError, match=why):
        summary(wrong)


@pytest.mark.parametrize("delete", [False, True])
def test_a_letter_that_is_put_back_comes_no_more(tmp_path: Path, *, delete: bool) -> None:
    store(tmp_path, batch_of(7))
    place = DeadLetters.at(str(tmp_path))
    (letter,) = place.contents().letters
    place.put_away(letter, delete=delete)
    assert not place.contents().letters
    assert (tmp_path / PUT_BACK / letter.file).exists() is not delete
    with pytest.raises(DeadLetterError, match="are in the stream, but the file"):
        place.put_away(letter, delete=delete)
    with pytest.raises(DeadLetterError, match="cannot be read"):
        place.rows(letter)


def letter_of(number: int) -> Letter:
    return Letter(f"{number}.parquet", summary(table_of(batch_of(number))))


def test_a_letter_may_be_put_away_once_all_of_its_records_are_stored() -> None:
    """Equal records of two letters are told apart."""
    pending = _PendingRecords()
    mine: list[list[OutgoingRecord]] = [
        [("k", None, bytes([number])) for number in (1, 2)] for _ in "ab"
    ]
    first, second = letter_of(1), letter_of(2)
    pending.add(first, mine[0])
    pending.add(second, mine[1])
    pending.mark_stored(mine[0][:1])
    pending.mark_stored(mine[1])
    assert pending.take_stored() == [second]
    assert pending.take_stored() == []
    pending.mark_stored(mine[0][1:])
    assert pending.take_stored() == [first]


def test_records_keep_their_keys_and_what_cannot_be_put_is_told() -> None:
    def rows(key: str | None, explicit: str | None, data: bytes | None) -> pa.Table:
        text = pa.string()
        return pa.table(
            {
                "partitionKey": pa.array([key], text),
                "explicitHashKey": pa.array([explicit], text),
                "data": pa.array([data], pa.binary()),
            }
        )

    assert _records(rows("k", "7", b"x"), "f", needs_keys=True) == [("k", "7", b"x")]
    assert _records(rows(None, None, b"x"), "f", needs_keys=False) == [("", None, b"x")]
    ((made, *rest),) = _records(rows(None, None, b"x"), "f", needs_keys=True)
    assert made
    assert rest == [None, b"x"]
    for key, data in (("k", None), (None, None), ("k" * 257, b"x")):
        with pytest.raises(DeadLetterError, match="A record of f cannot be put"):
            _records(rows(key, None, data), "f", needs_keys=True)
