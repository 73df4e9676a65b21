"""Records as Arrow batches: the columns that the Spark source and record processors give.

No Python object is made per row for what repeats (stream, shard, sequence number, arrival time).

Arrow's string and binary columns hold 2 GiB each. A GetRecords page (10 MB of data) stays below it
by far; of what aggregated keys may expand to, see `sparkinesis.stream.kpl.unpack`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparkinesis.stream.kpl.hash_filter import in_hash_range
from sparkinesis.stream.kpl.unpack import deaggregate as unpack
from sparkinesis.stream.kpl.unpack import is_aggregated
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
"""The columns of user records, as Databricks' Kinesis source names them, and two of ours."""

_NO_RECORDS = pa.RecordBatch.from_pylist([], schema=USER_RECORD_SCHEMA)


def to_arrow(
    records: Sequence[Record], *, stream: str, shard_id: str, deaggregate: bool = True
) -> pa.RecordBatch:
    """The user records of ``records`` as one batch of `USER_RECORD_SCHEMA`, in stream order.

    A record that is not aggregated is one row with sub-sequence number 0. It has no explicit hash
    key: GetRecords does not return it. Its partition key is null where it was put without one.
    ``deaggregate=False`` gives one row per record.
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
    """As `to_arrow`, less the user records of other shards; and how many of those there were.

    ``hash_range``: the first and the last hash key of the shard, for the filter of
    `sparkinesis.stream.kpl.hash_filter`; None filters nothing.
    """
    if not records:
        return _NO_RECORDS, 0  # most answers of a quiet shard
    dropped = 0
    sequence_number = pa.array([r.sequence_number for r in records], pa.string())
    arrival = _arrival([r.approximate_arrival_timestamp for r in records])
    if deaggregate and any([is_aggregated(r.data) for r in records]):  # noqa: C419 - faster so
        user = unpack(records)
        if hash_range is not None:
            kept = in_hash_range(records, user, hash_range)
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
        data = pa.array([r.data for r in records], pa.binary())
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


def _arrival(seconds: list[float | None]) -> pa.Array:
    """Arrival times from epoch seconds.

    The service means milliseconds, which a float of seconds holds only nearly: round to them, not
    to what the float happens to be.
    """
    milliseconds = pc.round(pc.multiply(pa.array(seconds, pa.float64()), 1000.0))
    return milliseconds.cast(pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(_ARRIVAL_TYPE)
