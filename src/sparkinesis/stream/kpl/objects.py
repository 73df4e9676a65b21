"""Unpacks records into one object for each user record, without columns.

The rules are those of `sparkinesis.stream.kpl.unpack`: a malformed aggregate is one user record,
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, EncodeError

from sparkinesis.stream.kpl.envelope import aggregates_of, are_sound, messages_of
from sparkinesis.stream.kpl.hash_filter import is_within
from sparkinesis.stream.kpl.messages import (
    DIGEST_SIZE,
    MAGIC,
    AggregatedRecord,
    UsualAggregate,
)
from sparkinesis.stream.page import Record

_T = TypeVar("_T")

Make = Callable[[bytes, str | None, str, int, float | None, str | None, str], _T]
"""Makes an object of: data, partition key, sequence number, sub-sequence number, arrival time in
epoch seconds, explicit hash key, shard id."""

_SAMPLE = 4
"""The most aggregates of a page that are looked into for an estimate."""


def make_objects(
    records: Sequence[Record],
    make: Make[_T],
    shard_id: str,
    *,
    deaggregate: bool = True,
    hash_range: tuple[int, int] | None = None,
) -> tuple[list[_T], int]:
    """Return an object for each user record, in stream order, and the number of those left out.

    hash_range: the first and the last hash key of the shard, for the filter of
    `sparkinesis.stream.kpl.hash_filter`; None for no filter.
    """
    if not (deaggregate and aggregates_of(records)):
        return [
            make(
                record.data,
                record.partition_key,
                record.sequence_number,
                0,
                record.approximate_arrival_timestamp,
                None,
                shard_id,
            )
            for record in records
        ], 0
    made: list[_T] = []
    dropped = 0
    for record, message in zip(records, messages_of(records), strict=True):
        users = None if message is None else _make_all(message, record, make, shard_id)
        if message is None or users is None:
            users, _ = make_objects([record], make, shard_id, deaggregate=False)
        elif hash_range is not None and record.partition_key is not None:
            keys = _make_all(message, record, _keys_of, shard_id) or []
            users = _within(hash_range, users, keys)
            dropped += len(keys) - len(users)
        made += users
    return made, dropped


def _keys_of(
    _data: bytes,
    partition_key: str | None,
    _number: str,
    _sub: int,
    _arrival: float | None,
    explicit_hash_key: str | None,
    _shard_id: str,
) -> tuple[str, str | None]:
    return partition_key or "", explicit_hash_key


def _within(
    hash_range: tuple[int, int], users: list[_T], keys: list[tuple[str, str | None]]
) -> list[_T]:
    """Return the user records of the shard, by their keys."""
    kept = {pair: is_within(*pair, hash_range) for pair in set(keys)}
    return [user for user, pair in zip(users, keys, strict=True) if kept[pair]]


def last_sub_sequence_number(record: Record) -> int:
    """Return the sub-sequence number of the last user record in a record."""
    return len(make_objects([record], _nothing, "")[0]) - 1


class UnpackedSize(NamedTuple):
    """About how much the user records of some records are."""

    rows: int
    plain: int
    """The number of rows whose records do not start like an aggregate."""
    keys: int
    """Bytes of the keys of aggregates' user records, if each has its own copy."""


def estimate_unpacked(records: Sequence[Record]) -> UnpackedSize:
    """Estimate the user records by a sample of the aggregates, without checking digests."""
    aggregates = [record.data for record in aggregates_of(records)]
    if not aggregates:
        return UnpackedSize(len(records), len(records), 0)
    sample = aggregates[:: 1 + len(aggregates) // _SAMPLE]
    scale = sum(map(len, aggregates)) / max(1, sum(map(len, sample)))
    found = [_size_of(data) for data in sample]
    rows = round(scale * sum([size.rows for size in found]))
    keys = round(scale * sum([size.keys for size in found]))
    plain = len(records) - len(aggregates)
    return UnpackedSize(plain + rows, plain, keys)


def _size_of(data: bytes) -> UnpackedSize:
    aggregate = AggregatedRecord()
    try:
        aggregate.ParseFromString(data[len(MAGIC) : -DIGEST_SIZE])
        keys, hash_keys = aggregate.partition_key_table[:], aggregate.explicit_hash_key_table[:]
    except (DecodeError, UnicodeDecodeError):
        return UnpackedSize(1, 0, 0)
    rows = max(1, len(aggregate.records))
    means = [sum(map(len, table)) // len(table) for table in (keys, hash_keys) if table]
    return UnpackedSize(rows, 0, rows * sum(means))


def _nothing(*_: object) -> None:
    return None


def _make_all(message: bytes, record: Record, make: Make[_T], shard_id: str) -> list[_T] | None:
    """Return the objects of an aggregate's user records; None if it is malformed.

    A user record costs the least if it is known to have no explicit hash key. A message that the
    runtime writes with the same length after all but keys and data was dropped has none, and no
    required field is missing.
    """
    aggregate = UsualAggregate()
    try:
        aggregate.ParseFromString(message)
        aggregate.DiscardUnknownFields()
        is_usual = len(aggregate.SerializeToString()) == len(message)
    except (DecodeError, EncodeError, UnicodeDecodeError):
        is_usual = False
    if not is_usual:
        return _make_any(message, record, make, shard_id)
    keys, users = aggregate.partition_key_table[:], aggregate.records[:]
    if not are_sound(keys, (), len(users), len(message)):
        return None
    sequence_number, arrival = record.sequence_number, record.approximate_arrival_timestamp
    try:
        return [
            make(
                user.data,
                keys[user.partition_key_index],
                sequence_number,
                sub,
                arrival,
                None,
                shard_id,
            )
            for sub, user in enumerate(users)
        ]
    except IndexError:
        return None


def _make_any(message: bytes, record: Record, make: Make[_T], shard_id: str) -> list[_T] | None:
    """The same for aggregates with explicit hash keys, tags, unknown fields and other forms."""
    aggregate = AggregatedRecord()
    try:
        aggregate.ParseFromString(message)
        keys = aggregate.partition_key_table[:]
        hash_keys = aggregate.explicit_hash_key_table[:]
    except (DecodeError, UnicodeDecodeError):
        return None
    users = aggregate.records[:]
    if not aggregate.IsInitialized() or not are_sound(keys, hash_keys, len(users), len(message)):
        return None
    sequence_number, arrival = record.sequence_number, record.approximate_arrival_timestamp
    try:
        return [
            make(
                user.data,
                keys[user.partition_key_index],
                sequence_number,
                sub,
                arrival,
                hash_keys[user.explicit_hash_key_index]
                if user.HasField("explicit_hash_key_index")
                else None,
                shard_id,
            )
            for sub, user in enumerate(users)
        ]
    except IndexError:
        return None
