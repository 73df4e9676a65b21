"""Opens aggregated records: checks their digests, and gives their user records.

The user records are still encoded (`Envelope`), or lists of their fields (`UserRecords`), which the
protobuf runtime makes.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, repeat
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, EncodeError

from sparkinesis.stream.kpl.magic import DIGEST_SIZE, MAGIC, is_aggregated
from sparkinesis.stream.kpl.message_types import (
    AggregatedEnvelope,
    AggregatedRecord,
    AggregateInColumns,
    HashedAggregate,
    KeyedAggregate,
)
from sparkinesis.stream.page import Record

_T = TypeVar("_T")

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
    try:
        characters = len("".join(keys))
    except TypeError:  # upb returns a string that is not UTF-8 as bytes; other runtimes raise
        return False
    if not is_in_proportion(characters * records, size):
        characters = max(map(len, keys))  # for a small table, that of all keys is enough
    return records > 0 and is_in_proportion(characters * records, size)


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


class UserRecords(NamedTuple):
    """The user records of an aggregate, field by field: their keys are places in tables."""

    data: list[bytes]
    key_table: list[str]
    key_places: list[int]
    hash_key_table: list[str]
    hash_key_places: list[int] | list[int | None]
    """None for a user record without an explicit hash key; empty if none has one."""

    def partition_keys(self) -> Iterator[str]:
        return map(self.key_table.__getitem__, self.key_places)

    def explicit_hash_keys(self) -> Iterable[str | None]:
        table = self.hash_key_table
        if not self.hash_key_places:
            return repeat(None, len(self.data))
        return [None if place is None else table[place] for place in self.hash_key_places]


# An aggregate may hold thousands of user records, so no step may make a call of Python for each of
# them, and yet each must be checked. Nothing that was put may be lost.
#
# - To protobuf, the user records are one message that occurs many times, and whose fields are
#   repeated: the runtime appends the fields of each to three lists, in one call. An object of the
#   runtime for each user record, and calls for its fields, take three times as long.
# - The lists do not tell which user record had a field, so that one without data before one with
#   two would move the data of all between them. So the runtime reads the message once more, as
#   user records whose fields are required, and writes it, which fails if one is missing: if each
#   has a field, and the list is as long as there are user records, then each has it once.
# - All else is decided by the runtime's own objects (`_one_by_one`): fields that come twice, hash
#   keys that some user records have and others not, and what is malformed.
def user_records_of(message: memoryview) -> UserRecords | None:
    """Return the user records of a message; None if it is malformed, or has none."""
    try:
        aggregate = AggregateInColumns.FromString(message)
        key_table = aggregate.partition_key_table[:]
        hash_key_table = aggregate.explicit_hash_key_table[:]
        data, keys, hash_keys = _in_bulk(aggregate, message) or _one_by_one(message)
    except (DecodeError, UnicodeDecodeError):
        return None
    is_sound = (
        are_sound((*key_table, *hash_key_table), len(data), len(message))
        and max(keys) < len(key_table)
        and max([place for place in hash_keys if place is not None], default=-1)
        < len(hash_key_table)
    )
    return UserRecords(data, key_table, keys, hash_key_table, hash_keys) if is_sound else None


_Fields = tuple[list[bytes], list[int], list[int] | list[int | None]]
"""Data, key index and hash key index of each user record."""


def _in_bulk(aggregate: Any, message: memoryview) -> _Fields | None:
    """Return the fields of an `AggregateInColumns`; None if one user record does not have each."""
    fields = aggregate.records
    data = fields.data[:]
    keys = fields.partition_key_index[:]
    hash_keys = fields.explicit_hash_key_index[:]
    users = (HashedAggregate if hash_keys else KeyedAggregate).FromString(message)
    rows = len(users.records)
    if not len(data) == len(keys) == (len(hash_keys) or rows) == rows:
        return None
    try:
        users.SerializeToString()
    except EncodeError:
        return None
    return data, keys, hash_keys


def _one_by_one(message: memoryview) -> _Fields:
    """Return the fields of each user record; none if one of them is malformed."""
    aggregate = AggregatedRecord.FromString(message)
    users = aggregate.records[:] if aggregate.IsInitialized() else []
    return (
        [user.data for user in users],
        [user.partition_key_index for user in users],
        [
            user.explicit_hash_key_index if user.HasField("explicit_hash_key_index") else None
            for user in users
        ],
    )


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
