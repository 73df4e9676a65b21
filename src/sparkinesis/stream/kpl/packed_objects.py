"""Makes one object for each user record of an aggregate, by the protobuf runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import DecodeError, EncodeError

from sparkinesis.stream.kpl.envelope import are_sound
from sparkinesis.stream.kpl.magic import DIGEST_SIZE, MAGIC
from sparkinesis.stream.kpl.messages import AggregatedRecord, UsualAggregate
from sparkinesis.stream.page import Record

_T = TypeVar("_T")

Make = Callable[[bytes, str | None, str, int, float | None, str | None, str], _T]
"""Makes an object of: data, partition key, sequence number, sub-sequence number, arrival time in
epoch seconds, explicit hash key, shard id."""


def make_all(message: memoryview, record: Record, make: Make[_T], shard_id: str) -> list[_T] | None:
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
    if not are_sound(keys, len(users), len(message)):
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


def _make_any(
    message: memoryview, record: Record, make: Make[_T], shard_id: str
) -> list[_T] | None:
    """The same for aggregates with explicit hash keys, tags, unknown fields and other forms."""
    aggregate = AggregatedRecord()
    try:
        aggregate.ParseFromString(message)
        keys = aggregate.partition_key_table[:]
        hash_keys = aggregate.explicit_hash_key_table[:]
    except (DecodeError, UnicodeDecodeError):
        return None
    users = aggregate.records[:]
    if not aggregate.IsInitialized() or not are_sound(
        (*keys, *hash_keys), len(users), len(message)
    ):
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


def count_of(data: bytes) -> tuple[int, int]:
    """Return the number of user records, and the bytes of their keys if each has its own copy.

    data: an aggregate's, whose digest is not checked. A malformed one is one user record.
    """
    aggregate = AggregatedRecord()
    try:
        aggregate.ParseFromString(data[len(MAGIC) : -DIGEST_SIZE])
        keys, hash_keys = aggregate.partition_key_table[:], aggregate.explicit_hash_key_table[:]
    except (DecodeError, UnicodeDecodeError):
        return 1, 0
    rows = max(1, len(aggregate.records))
    means = [sum(map(len, table)) // len(table) for table in (keys, hash_keys) if table]
    return rows, rows * sum(means)
