"""The hash-range filter, which drops user records of other shards from aggregates of a KPL.

A KPL packs an aggregate for one shard, and puts it by the hash key of its first user record. After
a reshard, the aggregate may land in a shard that does not own all its keys, and the KPL then puts
the user records of the other keys again. A reader with the filter does not return them twice.

A user record is dropped only from an aggregate that a KPL put by key into this shard (`is_kpls`):
other producers put nothing again, and a stream that distributes records itself
(RecordDistributionStrategy AUTO) puts an aggregate into any shard. A record does not show by which
strategy it was put, and the strategy may have been another one then. So the decision rests on the
aggregate, and the caller filters shards only that came of a reshard.

All other records are kept, whatever their keys: plain records, malformed aggregates, and aggregates
that are not unpacked. Unlike the KCL, the filter keeps the user records of the shard even if others
in the same aggregate are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from sparkinesis.stream.page import Record
from sparkinesis.stream.shard import MAX_HASH_KEY, hash_key

if TYPE_CHECKING:
    from sparkinesis.stream.kpl.unpack import UserRecordColumns

_KPLS_KEY = "a"
"""The partition key of each aggregate of a KPL: the explicit hash key beside it chooses the shard.
Other libraries put an aggregate by the partition key of its first user record."""


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
    mask: list[bool] = []
    for place, group in groupby(rows, itemgetter(0)):
        of_record = list(group)
        keys = [(key, explicit) for _, _, key, explicit in of_record]
        is_packed = of_record[0][1]
        mask += keep(records[place], keys, hash_range) if is_packed else [True] * len(keys)
    return mask


def keep(
    record: Record, keys: Sequence[tuple[str, str | None]], hash_range: tuple[int, int]
) -> list[bool]:
    """Return a mask of the user records of an aggregate to keep, by their keys."""
    if not is_kpls(record, keys, hash_range):
        return [True] * len(keys)
    kept = {pair: is_within(*pair, hash_range) for pair in set(keys)}
    return [kept[pair] for pair in keys]


def is_kpls(
    record: Record, keys: Sequence[tuple[str, str | None]], hash_range: tuple[int, int]
) -> bool:
    """Return True if a KPL put an aggregate into the shard by the key of its first user record.

    keys: of the aggregate's user records: partition key and explicit hash key.
    """
    if record.partition_key != _KPLS_KEY or not keys:
        return False
    try:
        return hash_range[0] <= hash_key(*keys[0]) <= hash_range[1]
    except ValueError:
        return False  # the explicit hash key is not a number


def is_within(key: str, explicit_hash_key: str | None, hash_range: tuple[int, int]) -> bool:
    """Return True if a user record of an aggregate is to be kept, by its keys."""
    try:
        place = hash_key(key, explicit_hash_key)
    except ValueError:
        return True  # the explicit hash key is not a number
    # No shard owns a hash key outside of the key space, so no producer puts that record again.
    return hash_range[0] <= place <= hash_range[1] or not 0 <= place <= MAX_HASH_KEY
