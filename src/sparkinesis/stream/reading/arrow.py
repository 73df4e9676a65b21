"""Records as Arrow batches, with the columns of the Spark source and of record processors.

Values that repeat (stream, shard, sequence number, arrival time) have no Python object per row.

Arrow's string and binary columns hold 2 GiB each, far more than a GetRecords page (10 MB of data).
`sparkinesis.stream.kpl.unpack` limits the size of unpacked partition keys.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkinesis.stream.kpl.hash_filter import in_hash_range
from sparkinesis.stream.kpl.magic import MAGIC, is_aggregated
from sparkinesis.stream.page import Record

if TYPE_CHECKING:
    from sparkinesis.stream.kpl.unpack import UserRecordColumns

_ARRIVAL_TYPE = pa.timestamp("us", tz="UTC")

USER_RECORD_SCHEMA: pa.Schema = pa.schema(
    [
        ("partitionKey", pa.string()),
        ("data", pa.binary()),
        ("stream", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("approximateArrivalTimestamp", _ARRIVAL_TYPE),
        ("subSequenceNumber", pa.int64()),
        ("explicitHashKey", pa.string()),
    ]
)
"""The columns of user records: those of Databricks' Kinesis source, and two more."""

_LARGE = 512
"""Bytes of a value, on average, from which joining all values builds a column faster."""
_SAMPLED = 16
"""Every sixteenth value counts for the average."""

COLUMNS = tuple(USER_RECORD_SCHEMA.names)
_OF_USER_RECORDS = {
    "partitionKey": "partition_key",
    "data": "data",
    "subSequenceNumber": "sub_sequence_number",
    "explicitHashKey": "explicit_hash_key",
}
"""The columns that unpacking makes, by their names in `UserRecordColumns`."""


@functools.cache
def _no_records(columns: tuple[str, ...]) -> pa.RecordBatch:
    """Return a batch of these columns that has no rows."""
    schema = pa.schema([USER_RECORD_SCHEMA.field(name) for name in columns])
    return pa.RecordBatch.from_arrays([pa.nulls(0, one.type) for one in schema], schema=schema)


def to_arrow(
    records: Sequence[Record],
    *,
    stream: str,
    shard_id: str,
    deaggregate: bool = True,
    columns: Sequence[str] = COLUMNS,
) -> pa.RecordBatch:
    """Return the user records of ``records`` as one batch of `USER_RECORD_SCHEMA`, in stream order.

    columns: those of the schema that are wanted, in order; no other is made.

    A record that is not aggregated is one row with sub-sequence number 0. Its explicit hash key is
    null, because GetRecords does not return it; its partition key is null if it was put without
    one. With ``deaggregate=False`` every record is one row.
    """
    batch, _ = to_arrow_within(
        records,
        None,
        stream=stream,
        shard_id=shard_id,
        deaggregate=deaggregate,
        columns=columns,
    )
    return batch


def to_arrow_within(
    records: Sequence[Record],
    hash_range: tuple[int, int] | None,
    *,
    stream: str,
    shard_id: str,
    deaggregate: bool = True,
    columns: Sequence[str] = COLUMNS,
) -> tuple[pa.RecordBatch, int]:
    """Return the batch of `to_arrow` without user records of other shards, and their number.

    ``hash_range``: the first and the last hash key of the shard, for the filter of
    `sparkinesis.stream.kpl.hash_filter`; None for no filter.
    """
    if not records:
        return _no_records(tuple(columns)), 0  # most answers of a quiet shard
    dropped, rows = 0, len(records)
    values = [r.data for r in records]
    user: UserRecordColumns | None = None
    data: pa.Array | None = None
    if not (deaggregate and is_aggregated(values[0])):
        data = _binary(values) if "data" in columns else None
    if deaggregate and _has_aggregated(values, data):
        # With the protobuf runtime, which plain records do not need.
        from sparkinesis.stream.kpl.unpack import deaggregate as unpack  # noqa: PLC0415

        user = unpack(records)
        if hash_range is not None:
            kept = pa.array(in_hash_range(records, user, hash_range), pa.bool_())
            dropped = len(kept) - kept.true_count
            user = user.filter(kept) if dropped else user
        rows = len(user.data)

    constant = {"stream": stream, "shardId": shard_id}

    def column(name: str) -> pa.Array:
        if name in constant:
            return pa.repeat(pa.scalar(constant[name], pa.string()), rows)
        if user is None:
            return data if name == "data" else _of_records(records, name)
        if name in _OF_USER_RECORDS:
            return getattr(user, _OF_USER_RECORDS[name])
        return _of_records(records, name).take(user.source)

    schema = _no_records(tuple(columns)).schema
    return pa.RecordBatch.from_arrays(list(map(column, columns)), schema=schema), dropped


def _of_records(records: Sequence[Record], name: str) -> pa.Array:
    """Return a column of records as they are stored, other than their data."""
    match name:
        case "partitionKey":
            return pa.array([r.partition_key for r in records], pa.string())
        case "sequenceNumber":
            return pa.array([r.sequence_number for r in records], pa.string())
        case "approximateArrivalTimestamp":
            return _arrival([r.approximate_arrival_timestamp for r in records])
        case "subSequenceNumber":
            return pa.repeat(pa.scalar(0, pa.int64()), len(records))
        case _:
            return pa.nulls(len(records), pa.string())  # GetRecords returns no explicit hash key


def _has_aggregated(values: Sequence[bytes], data: pa.Array | None) -> bool:
    """Return True if any value starts like an aggregated record. data: their column, if made."""
    if data is None:
        return any(map(is_aggregated, values))
    return bool(pc.starts_with(data, MAGIC).true_count)


def _binary(values: list[bytes]) -> pa.Array:
    """Return a binary column. Arrow builds one of large values twice as slowly as join does."""
    sample = values[::_SAMPLED]
    if sum(map(len, sample)) < _LARGE * len(sample):
        return pa.array(values, pa.binary())
    # A list fills an array of unsigned numbers three times as fast as one of signed numbers.
    sizes = pa.py_buffer(array("I", [0, *[len(value) for value in values]]))
    ends = pc.cumulative_sum(pa.Array.from_buffers(pa.uint32(), len(values) + 1, [None, sizes]))
    joined = pa.py_buffer(b"".join(values))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, ends.buffers()[1], joined])


def _arrival(seconds: list[float | None]) -> pa.Array:
    """Convert epoch seconds to a column of arrival times.

    Arrival times are whole milliseconds, which a float of seconds only approximates: this rounds to
    milliseconds.
    """
    milliseconds = pc.round(pc.multiply(pa.array(seconds, pa.float64()), 1000.0))
    # A check of each would find no fraction, which they do not have any more.
    microseconds = pc.multiply(milliseconds.cast(pa.int64(), safe=False), 1000)
    return microseconds.view(_ARRIVAL_TYPE)
