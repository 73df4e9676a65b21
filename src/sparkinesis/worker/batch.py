"""The batches that ``process_records`` is given: user records of one shard, in order."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import msgspec
import pyarrow as pa

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.public import public
from sparkinesis.stream.page import Record
from sparkinesis.stream.reading.arrow import to_arrow_within
from sparkinesis.worker.retrieval.memory_estimates import batch_memory

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@public
class UserRecord(msgspec.Struct, frozen=True, gc=False):
    """A user record: one record as its producer put it, after de-aggregation."""

    data: bytes
    partition_key: str | None
    """The key; None if put without one, on a stream that distributes records itself."""
    sequence_number: str
    sub_sequence_number: int
    """0 to n-1 for the user records of an aggregated record; 0 for any other record."""
    approximate_arrival_timestamp: datetime | None
    """The time in UTC, to the millisecond; None if the service gave none."""
    explicit_hash_key: str | None
    shard_id: str

    @property
    def position(self) -> ExtendedSequenceNumber:
        return ExtendedSequenceNumber(self.sequence_number, self.sub_sequence_number)


@public
class RecordBatch:
    """User records of one shard, in order, as Python objects or as Arrow columns.

    Objects are made only when `records` is asked for.
    """

    def __init__(
        self,
        columns: pa.RecordBatch,
        millis_behind_latest: int | None,
        fetched_at: datetime | None = None,
    ) -> None:
        self._columns = columns
        self.fetched_at = fetched_at
        """The time of the fetch, by the service's clock in UTC. `fetched_at` less
        `millis_behind_latest` is the time up to which the shard was read: a batch may have waited
        for a slow processor."""
        self.millis_behind_latest = millis_behind_latest
        """The distance of the batch's end from the stream's tip, at the time of the fetch; None if
        the service did not say."""

    def __len__(self) -> int:
        return int(self._columns.num_rows)

    def to_arrow(self) -> pa.RecordBatch:
        """Return the Arrow columns of `sparkinesis.stream.reading.arrow.USER_RECORD_SCHEMA`."""
        return self._columns

    @functools.cached_property
    def records(self) -> list[UserRecord]:
        column = {
            name: self._columns.column(name)
            for name in self._columns.schema.names
            if name != "stream"
        }
        arrival = column["approximateArrivalTimestamp"].cast(pa.int64()).to_pylist()
        return [
            UserRecord(data, key, sequence, sub, _instant(us), hash_key, shard)
            for data, key, sequence, sub, us, hash_key, shard in zip(
                column["data"].to_pylist(),
                column["partitionKey"].to_pylist(),
                _shared(column["sequenceNumber"]),
                column["subSequenceNumber"].to_pylist(),
                arrival,
                column["explicitHashKey"].to_pylist(),
                _shared(column["shardId"]),
                strict=True,
            )
        ]

    @property
    def memory(self) -> int:
        """The approximate memory of the batch, with the objects of `records`, in bytes."""
        return batch_memory(self._columns.nbytes, len(self))

    @property
    def last(self) -> ExtendedSequenceNumber:
        """The position of the last record. The batch must not be empty."""
        return self._position(len(self) - 1)

    def arrived_ms(self, sequence_number: str) -> int | None:
        """Return the arrival time of a record (epoch ms); None if unknown, or not of this batch."""
        at = ExtendedSequenceNumber(sequence_number)
        row = bisect.bisect_left(range(len(self)), at, key=self._position)
        if row == len(self) or self._position(row).sequence_number != sequence_number:
            return None
        arrival = self._columns.column("approximateArrivalTimestamp").slice(row, 1)
        us: int | None = arrival.cast(pa.int64())[0].as_py()
        return None if us is None else us // 1000

    def _position(self, row: int) -> ExtendedSequenceNumber:
        return ExtendedSequenceNumber(
            self._columns.column("sequenceNumber")[row].as_py(),
            self._columns.column("subSequenceNumber")[row].as_py(),
        )

    def after(self, done: ExtendedSequenceNumber) -> RecordBatch:
        """Return the records after the position ``done``."""
        first = bisect.bisect_right(range(len(self)), done, key=self._position)
        return self.slice(first, len(self))

    def slice(self, start: int, stop: int) -> RecordBatch:
        """Return the records with the indices ``start`` to ``stop - 1``."""
        if (start, stop) == (0, len(self)):
            return self
        columns = self._columns.slice(start, stop - start)
        return RecordBatch(columns, self.millis_behind_latest, self.fetched_at)

    def halves(self) -> tuple[RecordBatch, RecordBatch]:
        middle = len(self) // 2
        return self.slice(0, middle), self.slice(middle, len(self))


def make_batch(
    records: Sequence[Record],
    *,
    stream: str,
    shard_id: str,
    millis_behind_latest: int | None,
    fetched_ms: int | None = None,
    deaggregate: bool = True,
    hash_range: tuple[int, int] | None = None,
) -> tuple[RecordBatch, int]:
    """Return a batch of ``records``, and the number of user records that were left out.

    fetched_ms: the service's clock at the fetch (epoch ms).
    hash_range: both ends inclusive; user records of aggregates outside of it are left out, see
    `sparkinesis.stream.kpl.hash_filter`.
    """
    columns, dropped = to_arrow_within(
        records, hash_range, stream=stream, shard_id=shard_id, deaggregate=deaggregate
    )
    fetched_at = None if fetched_ms is None else _instant(fetched_ms * 1000)
    return RecordBatch(columns, millis_behind_latest, fetched_at), dropped


def _shared(texts: pa.Array) -> list[str]:
    """Return a column's strings. Equal strings are one object."""
    encoded = texts.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    return [values[index] for index in encoded.indices.to_pylist()]


def _instant(us: int | None) -> datetime | None:
    return None if us is None else _EPOCH + timedelta(microseconds=us)
