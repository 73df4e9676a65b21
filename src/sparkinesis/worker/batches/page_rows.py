"""The user records of a page, unpacked into the form that is asked for: objects or columns.

pyarrow is imported with the first columns: it doubles the memory of an idle worker, and takes a
third of a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.kpl.objects import last_sub_sequence_number, make_objects
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.user_record import (
    UserRecord,
    after_us,
    arrived_ms,
    make_user_record,
)

if TYPE_CHECKING:
    import pyarrow as pa


class Habit:
    """The form that a shard's processor asked for last. Batches of one shard share it.

    A length or a position needs either form: that which is probably asked for next.
    """

    def __init__(self) -> None:
        self.asks_for_objects: bool | None = None
        """None before the first time."""


class PackedRecords(msgspec.Struct, frozen=True):
    """Records as Kinesis stores them, and what is needed to unpack them."""

    records: Sequence[Record]
    stream: str
    shard_id: str
    deaggregate: bool
    """True if one record at least starts like an aggregate that is to be unpacked."""
    hash_range: tuple[int, int] | None

    def objects(self) -> tuple[list[UserRecord], int]:
        """Return the user records, and the number of those outside of the hash range."""
        return make_objects(
            self.records,
            make_user_record,
            self.shard_id,
            deaggregate=self.deaggregate,
            hash_range=self.hash_range,
        )

    def columns(self) -> tuple[pa.RecordBatch, int]:
        """Return the same as Arrow columns."""
        from sparkinesis.stream.reading.arrow import to_arrow_within  # noqa: PLC0415 - see above

        return to_arrow_within(
            self.records,
            self.hash_range,
            stream=self.stream,
            shard_id=self.shard_id,
            deaggregate=self.deaggregate,
        )


class PageRows:
    """Nothing is unpacked before it is asked for.

    Two threads that ask at the same time may both unpack; they get equal user records.
    """

    def __init__(
        self, packed: PackedRecords | None, columns: pa.RecordBatch | None, habit: Habit
    ) -> None:
        """Either ``packed`` or ``columns`` is given."""
        self.habit = habit
        self.dropped = 0
        """The number of user records outside of the hash range."""
        self._packed = packed
        """None as soon as there are both forms."""
        self._columns = columns
        self._objects: list[UserRecord] | None = None
        self._plain: Sequence[Record] | None = None
        """The records, if each is a user record."""
        if packed is not None:
            if not packed.deaggregate:
                self._plain = packed.records
            elif packed.hash_range is not None:
                self._unpack()

    @property
    def whole(self) -> Sequence[Record]:
        """The packed records, if each gives one row at least; empty otherwise."""
        packed = self._packed
        if packed is None or (packed.hash_range is not None and self._plain is None):
            return ()
        return packed.records

    def objects(self) -> list[UserRecord]:
        packed = self._packed
        if self._objects is None:
            if packed is not None:
                self._objects, self.dropped = packed.objects()
            else:
                assert self._columns is not None
                self._objects = objects_of(self._columns)
            if self._columns is not None:
                self._packed = None
        return self._objects

    def columns(self) -> pa.RecordBatch:
        packed = self._packed
        if self._columns is None:
            assert packed is not None
            self._columns, self.dropped = packed.columns()
            if self._objects is not None:
                self._packed = None
        return self._columns

    def _unpack(self) -> list[UserRecord] | pa.RecordBatch:
        if self._objects is not None:
            return self._objects
        if self._columns is not None:
            return self._columns
        return self.objects() if self.habit.asks_for_objects else self.columns()

    def __len__(self) -> int:
        if self._plain is not None:
            return len(self._plain)
        rows = self._unpack()
        return len(rows) if isinstance(rows, list) else rows.num_rows

    def position(self, row: int) -> ExtendedSequenceNumber:
        if self._plain is not None:
            return ExtendedSequenceNumber(self._plain[row].sequence_number)
        rows = self._unpack()
        if isinstance(rows, list):
            return rows[row].position
        return ExtendedSequenceNumber(
            rows.column("sequenceNumber")[row].as_py(),
            rows.column("subSequenceNumber")[row].as_py(),
        )

    def last(self) -> ExtendedSequenceNumber:
        """Return the position of the last row. It must have one."""
        records = self.whole
        is_packed = self._objects is None and self._columns is None and self._plain is None
        if is_packed and records and self.habit.asks_for_objects is None:
            last = records[-1]
            return ExtendedSequenceNumber(last.sequence_number, last_sub_sequence_number(last))
        return self.position(len(self) - 1)

    def data_bytes(self, start: int, stop: int) -> int:
        """Return the bytes of data in the rows ``start`` to ``stop - 1``."""
        if self._columns is not None:
            return _data_bytes(self._columns.column("data").slice(start, stop - start))
        rows = self._plain if self._plain is not None else self.objects()
        return sum([len(row.data) for row in rows[start:stop]])

    def arrived_ms(self, row: int) -> int | None:
        if self._plain is not None:
            return self._plain[row].arrived_ms
        rows = self._unpack()
        if isinstance(rows, list):
            return arrived_ms(rows[row])
        arrival = rows.column("approximateArrivalTimestamp").slice(row, 1)
        us: int | None = arrival.cast("int64")[0].as_py()
        return None if us is None else us // 1000


def objects_of(columns: pa.RecordBatch) -> list[UserRecord]:
    """Return the rows of columns of `sparkinesis.stream.reading.arrow.USER_RECORD_SCHEMA`."""
    return [
        UserRecord(data, key, sequence, sub, None if us is None else after_us(us), hash_key, shard)
        for data, key, sequence, sub, us, hash_key, shard in zip(
            columns.column("data").to_pylist(),
            columns.column("partitionKey").to_pylist(),
            _shared(columns.column("sequenceNumber")),
            columns.column("subSequenceNumber").to_pylist(),
            columns.column("approximateArrivalTimestamp").cast("int64").to_pylist(),
            columns.column("explicitHashKey").to_pylist(),
            _shared(columns.column("shardId")),
            strict=True,
        )
    ]


def _data_bytes(data: pa.BinaryArray) -> int:
    """Return the bytes of the values, by their offsets: no value is looked at."""
    offsets = data.buffers()[1]
    if not len(data) or offsets is None:
        return 0
    places = memoryview(offsets).cast("i")
    size: int = places[data.offset + len(data)] - places[data.offset]
    return size


def _shared(texts: pa.Array) -> list[str]:
    """Return a column's strings. Equal strings are one object."""
    encoded = texts.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    return [values[index] for index in encoded.indices.to_pylist()]
