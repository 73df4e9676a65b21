"""The hash-range filter, which drops user records of other shards from aggregates.

A KPL producer packs an aggregate for one shard. After a reshard, the aggregate may land in a shard
that does not own all its keys, and the producer then puts the user records of the other keys again.
A reader with the filter does not return them twice.

As in the KCL, the filter applies only to user records inside aggregates. Kinesis chose the shard of
every other record (plain records, malformed aggregates, and aggregates that are not unpacked), and
their partition keys do not show why: the producer may have set an explicit hash key, which
GetRecords does not return. The filter also skips aggregates without a partition key: their stream
distributes records itself, regardless of hash keys. Unlike the KCL, the filter keeps the user
records of the shard even if others in the same aggregate are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkinesis.stream.page import Record
from sparkinesis.stream.routing import MAX_HASH_KEY, hash_key

if TYPE_CHECKING:
    from sparkinesis.stream.kpl.unpack import UserRecordColumns


def in_hash_range(
    records: Sequence[Record], users: UserRecordColumns, hash_range: tuple[int, int]
) -> list[bool]:
    """Return a mask of the user records to keep. ``users`` are the user records of ``records``.

    ``hash_range``: the first and the last hash key of the shard.
    """
    rows = zip(
        users.source.to_pylist(),
        users.is_packed.to_pylist(),
        users.partition_key.to_pylist(),
        users.explicit_hash_key.to_pylist(),
        strict=True,
    )
    return [
        not is_packed
        or records[place].partition_key is None
        or is_within(key, explicit, hash_range)
        for place, is_packed, key, explicit in rows
    ]


def is_within(key: str, explicit_hash_key: str | None, hash_range: tuple[int, int]) -> bool:
    """Return True if a user record of an aggregate is to be kept, by its keys."""
    try:
        place = hash_key(key, explicit_hash_key)
    except ValueError:
        return True  # the explicit hash key is not a number
    # No shard owns a hash key outside of the key space, so no producer puts that record again.
    return hash_range[0] <= place <= hash_range[1] or not 0 <= place <= MAX_HASH_KEY
