"""Unpacks KPL aggregated records into columns of user records.

Nothing is ever lost by unpacking. Whatever begins like an aggregated record and is not a sound one
is delivered as it is, as one user record with sub-sequence number 0 and the partition key under
which Kinesis stores it: no sound digest, no parsable message, a required field missing, a key that
is not UTF-8, an index out of range at any of its user records. So is an aggregated record without
user records: its bytes were put by somebody, and every record of the stream gives at least one row.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError

from sparkinesis.public import public
from sparkinesis.stream.kpl.messages import (
    DIGEST_SIZE,
    ENVELOPE_SIZE,
    MAGIC,
    AggregatedEnvelope,
    KplRecord,
)
from sparkinesis.stream.page import Record

# A worker without Spark may do without numpy, more slowly.
np: Any = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None

_CHUNK_SIZE = 1 << 20
"""Bytes of records unpacked at a time: what is at hand then stays in the processor's cache."""

_WORTH_A_THREAD = 1 << 18
"""Bytes of records that take longer to hash than to tell another thread of."""

_KEY_TAG, _HASH_KEY_TAG, _DATA_TAG = 0x08, 0x10, 0x1A
"""The bytes before a user record's fields in its message."""
_MAX_VARINT = 4
"""Bytes of the longest number read in bulk; 28 bits are more than a page has bytes."""
_HEADER_SIZE = 3 * (1 + _MAX_VARINT)
"""Bytes that may stand before a user record's data."""

_UTF8_WIDTH = 4
_MAX_EXPANSION = 171
"""How often a key table may multiply the size of its message.

A user record takes 6 bytes at least on the wire, and a partition key has 256 characters of 4 bytes
at most, so no aggregate that could have been put record by record is over this. One that is, is
malformed: thousands of user records that repeat one key of a megabyte. With it, what 10 MB of
records expand to stays below the 2 GiB that an Arrow column of strings holds.
"""


@public
@dataclass(frozen=True, slots=True)
class UserRecordColumns:
    """User records as columns of one length, in stream order."""

    source: pa.Array
    """int32: the place, in what was unpacked, of the record that a user record came in."""
    partition_key: pa.Array
    """Null for a record that is not aggregated and was put without one."""
    data: pa.Array
    sub_sequence_number: pa.Array
    """int64: 0..n-1 among the user records of one record; 0 for a record that is not aggregated."""
    explicit_hash_key: pa.Array
    """Null where the producer gave none."""
    is_packed: pa.Array
    """bool: the user record came out of an aggregate; false for a record that is as it was put."""

    def filter(self, mask: pa.Array) -> UserRecordColumns:
        """The user records for which ``mask`` is true."""
        return UserRecordColumns(*(getattr(self, f.name).filter(mask) for f in fields(self)))


def is_aggregated(data: bytes) -> bool:
    """Whether ``data`` says that it is an aggregated record; it may still be malformed."""
    return data.startswith(MAGIC) and len(data) > ENVELOPE_SIZE


def message_of(data: bytes) -> bytes | None:
    """The message in an aggregated record's data; None where there is none, or its MD5 differs."""
    if not is_aggregated(data):
        return None
    message = memoryview(data)[len(MAGIC) : -DIGEST_SIZE]
    # No security is meant: without the flag a machine in FIPS mode refuses MD5.
    digest = hashlib.md5(message, usedforsecurity=False).digest()
    return bytes(message) if data.endswith(digest) else None


@dataclass(frozen=True, slots=True)
class _Envelope:
    """An aggregated record with its user records still as protobuf wrote them."""

    partition_keys: list[str]
    explicit_hash_keys: list[str]
    messages: list[bytes]


def _open(data: bytes) -> _Envelope | None:
    """The envelope of an aggregated record; None when ``data`` is none, or one without records."""
    message = message_of(data)
    if message is None:
        return None
    envelope = AggregatedEnvelope()
    try:
        envelope.ParseFromString(message)
        partition_keys = envelope.partition_key_table[:]
        explicit_hash_keys = envelope.explicit_hash_key_table[:]
    except (DecodeError, UnicodeDecodeError):
        return None
    # A string that is not UTF-8 comes out of upb as bytes; the pure Python runtime raises.
    if not {str}.issuperset(map(type, chain(partition_keys, explicit_hash_keys))):
        return None
    messages = envelope.records[:]
    longest = max(map(len, chain(partition_keys, explicit_hash_keys)), default=0)
    if not messages or longest * len(messages) * _UTF8_WIDTH > _MAX_EXPANSION * len(message):
        return None
    return _Envelope(partition_keys, explicit_hash_keys, messages)


@functools.cache
def _openers(_: int) -> ThreadPoolExecutor:
    """Threads that open aggregates beside their callers'; by process id: none survives a fork."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="kpl")


def _open_all(records: Sequence[Record]) -> list[_Envelope | None]:
    """`_open` each record. Half of unpacking is MD5, which needs no GIL: two threads share it."""
    if sum(len(record.data) for record in records) < _WORTH_A_THREAD:
        return [_open(record.data) for record in records]
    middle = len(records) // 2
    rest = _openers(os.getpid()).submit(lambda: [_open(r.data) for r in records[middle:]])
    return [_open(record.data) for record in records[:middle]] + rest.result()


_Parsed = tuple[int, int | None, bytes]
"""A user record: index of its partition key, index of its explicit hash key or None, data."""


def _parse(envelope: _Envelope) -> list[_Parsed] | None:
    """The user records, by the protobuf runtime; None when any is malformed."""
    parsed: list[_Parsed] = []
    for message in envelope.messages:
        record = KplRecord()
        try:
            record.ParseFromString(message)
        except (DecodeError, UnicodeDecodeError):
            return None
        if not record.IsInitialized():
            return None
        index, hash_index = record.partition_key_index, None
        if record.HasField("explicit_hash_key_index"):
            hash_index = record.explicit_hash_key_index
        if index >= len(envelope.partition_keys):
            return None
        if hash_index is not None and hash_index >= len(envelope.explicit_hash_keys):
            return None
        parsed.append((index, hash_index, record.data))
    return parsed


def _canonical(envelope: _Envelope) -> _Envelope | None:
    """The same user records with nothing else in their messages; None when any is malformed."""
    parsed = _parse(envelope)
    if parsed is None:
        return None
    messages = [
        KplRecord(
            partition_key_index=index, explicit_hash_key_index=hash_index, data=data
        ).SerializeToString()
        for index, hash_index, data in parsed
    ]
    return replace(envelope, messages=messages)


@public
def deaggregate(records: Sequence[Record]) -> UserRecordColumns:
    """The user records of ``records``, in order, each record that is not aggregated as it is."""
    chunks = [_unpack(records[start:stop], start) for start, stop in _chunks(records)]
    if len(chunks) == 1:
        return chunks[0]
    return UserRecordColumns(
        *(
            pa.concat_arrays([getattr(chunk, field.name) for chunk in chunks])
            for field in fields(UserRecordColumns)
        )
    )


def count_user_records(records: Iterable[Record]) -> list[int]:
    """How many user records each record holds, as `deaggregate` will find unless one is malformed.

    It is one for a record that is not aggregated.
    """
    envelopes = (_open(record.data) if is_aggregated(record.data) else None for record in records)
    return [1 if envelope is None else len(envelope.messages) for envelope in envelopes]


def _chunks(records: Sequence[Record]) -> Iterator[tuple[int, int]]:
    """Where to cut ``records``: one chunk at least, and each but the last of `_CHUNK_SIZE`."""
    start = size = 0
    for place, record in enumerate(records):
        if size >= _CHUNK_SIZE:
            yield start, place
            start, size = place, 0
        size += len(record.data)
    yield start, len(records)


def _unpack(records: Sequence[Record], first: int) -> UserRecordColumns:
    """The columns of one chunk, which begins at the place ``first``."""
    envelopes = _open_all(records)
    if np is None:
        return _columns_one_by_one(records, envelopes, first)
    columns = _columns_at_once(records, envelopes, first)
    if not isinstance(columns, UserRecordColumns):
        # The protobuf runtime has the last word on what is not in the usual form: tags, unknown
        # fields and another order are fine, all else is malformed.
        for place in columns:
            envelope = envelopes[place]
            envelopes[place] = None if envelope is None else _canonical(envelope)
        columns = _columns_at_once(records, envelopes, first)
        assert isinstance(columns, UserRecordColumns)
    return columns


def _columns_one_by_one(
    records: Sequence[Record], envelopes: Sequence[_Envelope | None], first: int
) -> UserRecordColumns:
    """The columns, a user record at a time: without numpy, and to test against."""
    source: list[int] = []
    partition_keys: list[str | None] = []
    data: list[bytes] = []
    sub_sequence_numbers: list[int] = []
    explicit_hash_keys: list[str | None] = []
    is_packed: list[bool] = []
    for place, (record, envelope) in enumerate(zip(records, envelopes, strict=True)):
        parsed = None if envelope is None else _parse(envelope)
        if envelope is None or parsed is None:
            source.append(first + place)
            sub_sequence_numbers.append(0)
            partition_keys.append(record.partition_key)
            data.append(record.data)
            explicit_hash_keys.append(None)
            is_packed.append(False)
            continue
        source += [first + place] * len(parsed)
        sub_sequence_numbers += range(len(parsed))
        is_packed += [True] * len(parsed)
        for index, hash_index, user_data in parsed:
            partition_keys.append(envelope.partition_keys[index])
            data.append(user_data)
            explicit_hash_keys.append(
                None if hash_index is None else envelope.explicit_hash_keys[hash_index]
            )
    return UserRecordColumns(
        source=pa.array(source, pa.int32()),
        partition_key=pa.array(partition_keys, pa.string()),
        data=pa.array(data, pa.binary()),
        sub_sequence_number=pa.array(sub_sequence_numbers, pa.int64()),
        explicit_hash_key=pa.array(explicit_hash_keys, pa.string()),
        is_packed=pa.array(is_packed, pa.bool_()),
    )


def _columns_at_once(
    records: Sequence[Record], envelopes: Sequence[_Envelope | None], first: int
) -> UserRecordColumns | list[int]:
    """The columns, all user records at a time, or the places of aggregates not in the usual form.

    The usual form of a user record is what every aggregator writes: partition key index, explicit
    hash key index if there is one, data, in this order and nothing else. Then the data is the rest
    of the message after a short header, and one cut per message gives the whole column.
    """
    partition_keys: list[str | None] = []
    explicit_hash_keys: list[str] = []
    payloads: list[bytes] = []
    shape: list[tuple[bool, int, int, int]] = []
    for record, envelope in zip(records, envelopes, strict=True):
        starts = len(partition_keys), len(explicit_hash_keys)
        if envelope is None:
            shape.append((False, 1, *starts))
            partition_keys.append(record.partition_key)
            payloads.append(record.data)
        else:
            shape.append((True, len(envelope.messages), *starts))
            partition_keys += envelope.partition_keys
            explicit_hash_keys += envelope.explicit_hash_keys
            payloads += envelope.messages
    rows = len(payloads)
    payloads.append(bytes(_HEADER_SIZE))  # so that a header may be looked for in the last message
    payload = pa.array(payloads, pa.binary())
    _, offset_buffer, byte_buffer = payload.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, rows + 1).astype(np.int64)

    is_packed, counts, first_key, first_hash_key = np.array(shape, np.int64).reshape(-1, 4).T
    source = np.repeat(np.arange(len(records)), counts)
    key_counts = np.diff(first_key, append=len(partition_keys))
    hash_key_counts = np.diff(first_hash_key, append=len(explicit_hash_keys))
    packed = is_packed.astype(bool)[source]

    header = _read_headers(np.frombuffer(byte_buffer, np.uint8), offsets)
    usual = header.usual & (header.key < key_counts[source])
    usual &= ~header.has_hash_key | (header.hash_key < hash_key_counts[source])
    if not usual[packed].all():
        return [int(place) for place in np.unique(source[packed & ~usual])]

    cuts = np.empty(2 * rows + 1, np.int32)  # header, data, header, data, ...
    cuts[0::2] = offsets
    cuts[1::2] = np.where(packed, header.data_start, offsets[:-1])
    pieces = pa.Array.from_buffers(pa.binary(), 2 * rows, [None, pa.py_buffer(cuts), byte_buffer])
    keys = np.where(packed, header.key, 0) + first_key[source]
    hash_keys = pa.array(
        header.hash_key + first_hash_key[source], mask=~(packed & header.has_hash_key)
    )
    return UserRecordColumns(
        source=pa.array(source + first, pa.int32()),
        partition_key=pa.array(partition_keys, pa.string()).take(pa.array(keys)),
        data=pieces.take(pa.array(np.arange(1, 2 * rows, 2))),
        sub_sequence_number=pa.array(np.arange(rows) - (np.cumsum(counts) - counts)[source]),
        explicit_hash_key=pa.array(explicit_hash_keys, pa.string()).take(hash_keys),
        is_packed=pa.array(packed),
    )


class _Headers(NamedTuple):
    """What stands before the data of each message, as columns; garbage where it is not usual."""

    usual: Any
    key: Any
    has_hash_key: Any
    hash_key: Any
    data_start: Any


def _read_headers(wire: Any, offsets: Any) -> _Headers:
    """Read the headers of the messages in ``wire`` (uint8) between ``offsets`` (int64, n + 1).

    `_HEADER_SIZE` bytes must follow the last message. A message is usual only if its data ends
    where it ends, so a header that was read beyond a message's end never is.
    """
    at, end = offsets[:-1], offsets[1:]
    usual = wire[at] == _KEY_TAG
    key, at, whole = _read_varints(wire, at + 1)
    usual &= whole
    has_hash_key = wire[at] == _HASH_KEY_TAG
    hash_key = np.zeros_like(key)
    if has_hash_key.any():
        hash_key, after, whole = _read_varints(wire, at + 1)
        usual &= whole | ~has_hash_key
        at = np.where(has_hash_key, after, at)
    usual &= wire[at] == _DATA_TAG
    length, at, whole = _read_varints(wire, at + 1)
    usual &= whole & (at + length == end)
    return _Headers(usual, key, has_hash_key, hash_key, at)


def _read_varints(wire: Any, at: Any) -> tuple[Any, Any, Any]:
    """The varints that begin ``at``: (values, where they end, whether they are over by then)."""
    byte = wire[at]
    value = (byte & 0x7F).astype(np.int64)
    at = at + 1
    more = byte >= 0x80
    for shift in range(7, 7 * _MAX_VARINT, 7):
        if not more.any():
            break
        byte = wire[at]
        value |= np.where(more, (byte & 0x7F).astype(np.int64) << shift, 0)
        at = at + more
        more &= byte >= 0x80
    return value, at, ~more
