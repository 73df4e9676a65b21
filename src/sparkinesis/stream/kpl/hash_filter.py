"""The hash-range filter: which user records of aggregates are of another shard.

A KPL producer packs an aggregate for one shard. After a reshard the aggregate may land in a shard
that is not that of all its keys, and the producer then puts the strangers again. A reader that asks
for the filter does not get them twice.

As in the KCL, the filter looks at nothing but the inside of aggregates. Any other record is in the
shard because Kinesis put the record there, and its partition key does not tell why: the producer
may have given an explicit hash key, which GetRecords does not return. That goes for plain records,
malformed aggregates, and aggregates that are not unpacked. Nor does the filter look into an
aggregate that was put without a partition key: its stream distributes records itself, and hash keys
mean nothing there. Unlike in the KCL, the user records of the shard stay, whatever their aggregate
holds beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparkinesis.stream.kpl.unpack import UserRecordColumns
from sparkinesis.stream.page import Record
from sparkinesis.stream.routing import MAX_HASH_KEY, hash_key


def in_hash_range(
    records: Sequence[Record], users: UserRecordColumns, hash_range: tuple[int, int]
) -> pa.Array:
    """A mask of the user records to keep; ``users`` came out of ``records``.

    ``hash_range``: the first and the last hash key of the shard.
    """
    rows = zip(
        users.source.to_pylist(),
        users.is_packed.to_pylist(),
        users.partition_key.to_pylist(),
        users.explicit_hash_key.to_pylist(),
        strict=True,
    )
    return pa.array(
        [
            not is_packed
            or records[place].partition_key is None
            or _is_within(key, explicit, hash_range)
            for place, is_packed, key, explicit in rows
        ],
        pa.bool_(),
    )


def _is_within(key: str, explicit_hash_key: str | None, hash_range: tuple[int, int]) -> bool:
    try:
        place = hash_key(key, explicit_hash_key)
    except ValueError:
        return True  # no number
    # No shard takes a hash key beyond all of them, so no producer puts that user record again.
    return hash_range[0] <= place <= hash_range[1] or not 0 <= place <= MAX_HASH_KEY
