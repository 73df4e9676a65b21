"""Opens aggregated records: checks their digests, and gives their user records.

The user records are still encoded (`Envelope`), or are objects (`make_all`), which the protobuf
runtime makes.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, EncodeError

from sparkinesis.stream.kpl.magic import DIGEST_SIZE, MAGIC, is_aggregated
from sparkinesis.stream.kpl.message_types import (
    AggregatedEnvelope,
    AggregatedRecord,
    UsualAggregate,
)
from sparkinesis.stream.page import Record

_T = TypeVar("_T")

Make = Callable[[bytes, str | None, str, int, float | None, str | None, str], _T]
"""Makes an object of: data, partition key, sequence number, sub-sequence number, arrival time in
epoch seconds, explicit hash key, shard id."""

_MIN_SIZE_FOR_THREAD = 1 << 18
"""The least bytes of records for which a second thread saves more time than it costs."""

_UTF8_WIDTH = 4
_MAX_EXPANSION = 171
"""The most that repeated keys may multiply the size of a message.

A user record takes 6 bytes at least on the wire, and a partition key has 256 characters of 4 bytes
at most, so no aggregate of valid user records exceeds this factor. An aggregate that exceeds it is
malformed, for example thousands of user records that repeat one key of a megabyte. The limit keeps
the keys of 10 MB of records below the 2 GiB that an Arrow column of strings holds.
"""


def message_of(data: bytes) -> memoryview | None:
    """Return the message in an aggregated record's data; None for other data or a wrong MD5."""
    if not is_aggregated(data):
        return None
    message = memoryview(data)[len(MAGIC) : -DIGEST_SIZE]
    # MD5 is not used for security here. Without the flag, a machine in FIPS mode refuses it.
    digest = hashlib.md5(message, usedforsecurity=False).digest()
    return message if data.endswith(digest) else None


class Envelope(NamedTuple):
    """The parts of an aggregated record; its user records are still encoded."""

    partition_keys: list[bytes]
    explicit_hash_keys: list[bytes]
    messages: list[bytes]


def open_message(message: memoryview) -> Envelope | None:
    """Return the parts of a message; None if it has no user records, or is no protobuf.

    The keys may still be unsound: see `are_sound`.
    """
    try:
        parsed = AggregatedEnvelope.FromString(message)
    except DecodeError:
        return None
    messages = parsed.records[:]
    if not messages:
        return None
    return Envelope(
        parsed.partition_key_table[:],
        parsed.explicit_hash_key_table[:],
        messages,
    )


def open_sound(message: memoryview) -> Envelope | None:
    """Return the parts of a message; None if it is malformed, but for its user records."""
    envelope = open_message(message)
    if envelope is None:
        return None
    keys, hash_keys, messages = envelope
    try:
        texts = [key.decode() for key in chain(keys, hash_keys)]
    except UnicodeDecodeError:
        return None
    return envelope if are_sound(texts, len(messages), len(message)) else None


def are_sound(keys: Collection[str], records: int, size: int) -> bool:
    """Return True if an aggregate may have these keys in its tables.

    records: the number of its user records. size: the message's bytes.
    """
    # upb returns a string that is not UTF-8 as bytes; the pure Python runtime raises.
    if not {str}.issuperset(map(type, keys)):
        return False
    longest = max(map(len, keys), default=0)
    return records > 0 and is_in_proportion(longest * records, size)


def is_in_proportion(characters: int, size: int) -> bool:
    """Return True if the user records of a message may repeat keys of ``characters`` in all."""
    return characters * _UTF8_WIDTH <= _MAX_EXPANSION * size


def count_user_records(records: Iterable[Record]) -> list[int]:
    """Return the number of user records in each record: one for a plain record.

    `sparkinesis.stream.kpl.unpack` gives the same numbers, except for aggregates with a malformed
    user record.
    """
    messages = [message_of(record.data) for record in records]
    envelopes = [None if message is None else open_sound(message) for message in messages]
    return [1 if envelope is None else len(envelope.messages) for envelope in envelopes]


# Only the MD5 at its end proves that data with the magic bytes is an aggregate, so it is computed
# for each. That takes most of the time of unpacking. hashlib releases the GIL meanwhile, so two
# threads share the records of a page; for a small one, the hand-over takes longer than it saves.
@functools.cache
def _thread_pool(_: int) -> ThreadPoolExecutor:
    """Return a process's threads that open aggregates; the process id is the cache's key."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="kpl")


def _shared_by_two(do: Callable[[bytes], _T], records: Sequence[Record]) -> list[_T]:
    """Call ``do`` with the data of each record. It releases the GIL: two threads share the time."""
    if sum([len(record.data) for record in records]) < _MIN_SIZE_FOR_THREAD:
        return [do(record.data) for record in records]
    middle = len(records) // 2
    rest = _thread_pool(os.getpid()).submit(lambda: [do(r.data) for r in records[middle:]])
    return [do(record.data) for record in records[:middle]] + rest.result()


def messages_of(records: Sequence[Record]) -> list[memoryview | None]:
    """Return `message_of` each record. MD5, which takes most of the time, releases the GIL."""
    return _shared_by_two(message_of, records)


def chunks(records: Sequence[Record], chunk_size: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of chunks of ``records``: one at least, each but the last ``chunk_size``."""
    start = size = 0
    for place, record in enumerate(records):
        if size >= chunk_size:
            yield start, place
            start, size = place, 0
        size += len(record.data)
    yield start, len(records)


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
