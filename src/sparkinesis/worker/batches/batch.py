"""The batches that ``process_records`` is given: user records of one shard, in order."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from sparkinesis.errors import RecordDecodeError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.public import public
from sparkinesis.stream.kpl.magic import aggregates_of
from sparkinesis.stream.page import Record
from sparkinesis.worker.batches.page_rows import Habit, PackedRecords, PageRows
from sparkinesis.worker.batches.user_record import UserRecord, instant

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

Value = TypeVar("Value")


@public
class RecordBatch:
    """User records of one shard, in order, as Python objects or as Arrow columns.

    Objects are made only when `records` is asked for, and columns only by `to_arrow`.
    """

    def __init__(
        self,
        columns: pa.RecordBatch,
        millis_behind_latest: int | None,
        fetched_at: datetime | None = None,
    ) -> None:
        self._begin(PageRows(None, columns, Habit()), millis_behind_latest, fetched_at)

    def _begin(
        self,
        rows: PageRows,
        millis_behind_latest: int | None,
        fetched_at: datetime | None,
        start: int = 0,
        stop: int | None = None,
    ) -> RecordBatch:
        self._rows = rows
        self._start = start
        self._stop = stop
        """The row after the last one; None: the end of the page."""
        self.fetched_at = fetched_at
        """The time of the fetch, by the service's clock in UTC. `fetched_at` less
        `millis_behind_latest` is the time up to which the shard was read: a batch may have waited
        for a slow processor."""
        self.millis_behind_latest = millis_behind_latest
        """The distance from the stream's tip at the time of the fetch: of the batch's end, or, if
        it was divided again, of the end of the whole. None if the service did not say."""
        return self

    def __len__(self) -> int:
        stop = len(self._rows) if self._stop is None else self._stop
        return stop - self._start

    def __bool__(self) -> bool:
        """True if there are records; unlike the length, this unpacks nothing."""
        return (self._stop is None and not self._start and bool(self._rows.whole)) or len(self) > 0

    def to_arrow(self) -> pa.RecordBatch:
        """Return the records as Arrow columns, with the names of ``format("kinesis")``.

        ``partitionKey``, ``data``, ``stream``, ``shardId``, ``sequenceNumber``,
        ``approximateArrivalTimestamp``, ``subSequenceNumber`` and ``explicitHashKey``.
        """
        self._rows.habit.asks_for_objects = False
        columns = self._rows.columns()
        return columns if self._is_whole else columns.slice(self._start, len(self))

    @functools.cached_property
    def records(self) -> list[UserRecord]:
        self._rows.habit.asks_for_objects = True
        return self._rows.objects()[self._start : self._stop]

    def __iter__(self) -> Iterator[UserRecord]:
        return iter(self.records)

    @overload
    def __getitem__(self, index: int) -> UserRecord: ...

    @overload
    def __getitem__(self, index: slice) -> RecordBatch: ...

    def __getitem__(self, index: int | slice) -> UserRecord | RecordBatch:
        """Return a record, or a batch of successive ones."""
        if not isinstance(index, slice):
            return self.records[index]
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise IndexError(f"the step is {step}; a batch has successive records only")
        return self.slice(start, stop)

    def to_pandas(self) -> pd.DataFrame:
        """Return the columns of `to_arrow` as a pandas DataFrame. Needs pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return the columns of `to_arrow` as a polars DataFrame. Needs polars."""
        import polars  # noqa: PLC0415 - only where it is installed

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    @overload
    def json(self) -> list[Any]: ...

    @overload
    def json(self, of: type[Value]) -> list[Value]: ...

    def json(self, of: Any = Any) -> list[Any]:
        """Return what each record's JSON text says, by msgspec.

        of: a type that msgspec knows, such as a `msgspec.Struct` or a dataclass, which is checked;
        without it, dicts, lists, texts and numbers. Raises as `values`.
        """
        return self.values(decode=_json_decoder(of).decode)

    def values(self, *, decode: Callable[[bytes], Value]) -> list[Value]:
        """Return ``decode(record.data)`` of each record.

        Raises `RecordDecodeError`, which names the first record that ``decode`` fails on.
        """
        found: list[Value] = []
        for record in self.records:
            try:
                found.append(decode(record.data))
            except Exception as error:
                raise RecordDecodeError(
                    f"Record {record.position} of shard {record.shard_id} cannot be decoded: "
                    f"{error}. With on_error=Skip(...) or DeadLetter(...), processing goes on "
                    "after it.",
                    str(record.position),
                ) from error
        return found

    @property
    def last(self) -> ExtendedSequenceNumber:
        """The position of the last record. The batch must not be empty."""
        return self._rows.last() if self._stop is None else self._position(len(self) - 1)

    def data_bytes(self) -> int:
        """Return the bytes of data of the records. Packed records are unpacked, as by `len`."""
        return self._rows.data_bytes(self._start, self._start + len(self))

    def arrived_ms(self, sequence_number: str) -> int | None:
        """Return the arrival time of a record (epoch ms); None if unknown, or not of this batch."""
        at = ExtendedSequenceNumber(sequence_number)
        if self._is_whole and (records := self._rows.whole):
            place = bisect.bisect_left(records, at, key=_position_of)
            if place == len(records) or records[place].sequence_number != sequence_number:
                return None
            return records[place].arrived_ms
        row = bisect.bisect_left(range(len(self)), at, key=self._position)
        if row == len(self) or self._position(row).sequence_number != sequence_number:
            return None
        return self._rows.arrived_ms(self._start + row)

    @property
    def _is_whole(self) -> bool:
        return self._start == 0 and self._stop is None

    def _position(self, row: int) -> ExtendedSequenceNumber:
        return self._rows.position(self._start + row)

    def after(self, done: ExtendedSequenceNumber) -> RecordBatch:
        """Return the records after the position ``done``."""
        count = len(self)
        first = bisect.bisect_right(range(count), done, key=self._position)
        return self if first == 0 else self.slice(first, count)

    def slice(self, start: int, stop: int) -> RecordBatch:
        """Return the records with the indices ``start`` to ``stop - 1``."""
        if (start, stop) == (0, len(self)):
            return self
        if start < 0:
            raise IndexError(f"the first index is {start}; it must be 0 or more")
        start = min(start, len(self))
        return RecordBatch.__new__(RecordBatch)._begin(
            self._rows,
            self.millis_behind_latest,
            self.fetched_at,
            self._start + start,
            self._start + min(max(start, stop), len(self)),
        )

    def halves(self) -> tuple[RecordBatch, RecordBatch]:
        middle = len(self) // 2
        return self.slice(0, middle), self.slice(middle, len(self))


@functools.lru_cache(maxsize=64)
def _json_decoder(of: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(of)


def _position_of(record: Record) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(record.sequence_number)


def make_batch(
    records: Sequence[Record],
    *,
    stream: str,
    shard_id: str,
    millis_behind_latest: int | None,
    fetched_ms: int | None = None,
    aggregates: Sequence[Record] | None = None,
    hash_range: tuple[int, int] | None = None,
    habit: Habit | None = None,
) -> tuple[RecordBatch, int]:
    """Return a batch of ``records``, and the number of user records that were left out.

    fetched_ms: the service's clock at the fetch (epoch ms).
    aggregates: those of ``records`` that are to be unpacked; None: all that start like one.
    hash_range: both ends inclusive; user records of aggregates outside of it are left out, see
    `sparkinesis.stream.kpl.hash_filter`. With it, the records are unpacked at once.
    habit: the form to unpack into where either does; None: columns.
    """
    unpacks = bool(aggregates_of(records) if aggregates is None else aggregates)
    packed = PackedRecords(records, stream, shard_id, unpacks, hash_range)
    rows = PageRows(packed, None, habit or Habit())
    fetched_at = None if fetched_ms is None else instant(fetched_ms / 1000)
    batch = RecordBatch.__new__(RecordBatch)
    return batch._begin(rows, millis_behind_latest, fetched_at), rows.dropped
