"""Records as Arrow batches, with the columns of the Spark source and of record processors.

Values that repeat (stream, shard, sequence number, arrival time) have no Python object per row.

Arrow's string and binary columns hold 2 GiB each, far more than a GetRecords page (10 MB of data).
`sparkinesis.stream.kpl.unpack` limits the size of unpacked partition keys.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from sparkinesis.stream.kpl.hash_filter import in_hash_range
from sparkinesis.stream.kpl.magic import MAGIC, is_aggregated
from sparkinesis.stream.page import Record

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

_NO_RECORDS = pa.RecordBatch.from_arrays(
    [pa.nulls(0, field.type) for field in USER_RECORD_SCHEMA], schema=USER_RECORD_SCHEMA
)


def to_arrow(
    records: Sequence[Record], *, stream: str, shard_id: str, deaggregate: bool = True
) -> pa.RecordBatch:
    """Return the user records of ``records`` as one batch of `USER_RECORD_SCHEMA`, in stream order.

    A record that is not aggregated is one row with sub-sequence number 0. Its explicit hash key is
    null, because GetRecords does not return it; its partition key is null if it was put without
    one. With ``deaggregate=False`` every record is one row.
    """
    batch, _ = to_arrow_within(
        records, None, stream=stream, shard_id=shard_id, deaggregate=deaggregate
    )
    return batch


def to_arrow_within(
    records: Sequence[Record],
    hash_range: tuple[int, int] | None,
    *,
    stream: str,
    shard_id: str,
    deaggregate: bool = True,
) -> tuple[pa.RecordBatch, int]:
    """Return the batch of `to_arrow` without user records of other shards, and their number.

    ``hash_range``: the first and the last hash key of the shard, for the filter of
    `sparkinesis.stream.kpl.hash_filter`; None for no filter.
    """
    if not records:
        return _NO_RECORDS, 0  # most answers of a quiet shard
    dropped = 0
    sequence_number = pa.array([r.sequence_number for r in records], pa.string())
    arrival = _arrival([r.approximate_arrival_timestamp for r in records])
    data = None
    if not (deaggregate and is_aggregated(records[0].data)):
        data = _binary([r.data for r in records])
    if data is None or (deaggregate and _has_aggregated(data)):
        # With the protobuf runtime, which plain records do not need.
        from sparkinesis.stream.kpl.unpack import deaggregate as unpack  # noqa: PLC0415

        user = unpack(records)
        if hash_range is not None:
            kept = pa.array(in_hash_range(records, user, hash_range), pa.bool_())
            dropped = len(kept) - kept.true_count
            user = user.filter(kept) if dropped else user
        rows = len(user.data)
        sequence_number = sequence_number.take(user.source)
        arrival = arrival.take(user.source)
        partition_key, data = user.partition_key, user.data
        sub_sequence_number, explicit_hash_key = user.sub_sequence_number, user.explicit_hash_key
    else:
        rows = len(records)
        partition_key = pa.array([r.partition_key for r in records], pa.string())
        sub_sequence_number = pa.repeat(pa.scalar(0, pa.int64()), rows)
        explicit_hash_key = pa.nulls(rows, pa.string())
    batch = pa.RecordBatch.from_arrays(
        [
            partition_key,
            data,
            pa.repeat(pa.scalar(stream, pa.string()), rows),
            pa.repeat(pa.scalar(shard_id, pa.string()), rows),
            sequence_number,
            arrival,
            sub_sequence_number,
            explicit_hash_key,
        ],
        schema=USER_RECORD_SCHEMA,
    )
    return batch, dropped


def _has_aggregated(data: pa.Array) -> bool:
    """Return True if any value starts like an aggregated record."""
    return bool(pc.starts_with(data, MAGIC).true_count)


def _binary(values: list[bytes]) -> pa.Array:
    """Return a binary column. Arrow builds one of large values twice as slowly as join does."""
    sample = values[::_SAMPLED]
    if sum(map(len, sample)) < _LARGE * len(sample):
        return pa.array(values, pa.binary())
    offsets = pa.py_buffer(array("i", accumulate(map(len, values), initial=0)))
    joined = pa.py_buffer(b"".join(values))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, joined])


def _arrival(seconds: list[float | None]) -> pa.Array:
    """Convert epoch seconds to a column of arrival times.

    Arrival times are whole milliseconds, which a float of seconds only approximates: this rounds to
    milliseconds.
    """
    milliseconds = pc.round(pc.multiply(pa.array(seconds, pa.float64()), 1000.0))
    microseconds = pc.multiply(milliseconds.cast(pa.int64()), 1000)
    return microseconds.view(_ARRIVAL_TYPE)
