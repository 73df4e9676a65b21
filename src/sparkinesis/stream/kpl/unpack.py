"""Unpacks KPL aggregated records into columns of user records.

Unpacking never loses data. A malformed aggregated record is returned unchanged, as one user record
with sub-sequence number 0 and the partition key of the record. It is malformed if its digest is
wrong, its message cannot be parsed, or, in any user record, a required field is missing, a key is
not UTF-8, or an index is out of range. An aggregated record without user records is also returned
unchanged: every record of the stream gives at least one row.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError

from sparkinesis.public import public
from sparkinesis.stream.kpl.envelope import Envelope, is_aggregated, open_aggregate, open_all
from sparkinesis.stream.kpl.messages import KplRecord
from sparkinesis.stream.page import Record

# A worker without Spark also runs without numpy, but more slowly.
np: Any = importlib.import_module("numpy") if importlib.util.find_spec("numpy") else None

_CHUNK_SIZE = 1 << 20
"""Bytes of records that are unpacked at a time, so that they stay in the processor's cache."""

_KEY_TAG, _HASH_KEY_TAG, _DATA_TAG = 0x08, 0x10, 0x1A
"""The bytes before a user record's fields in its message."""
_MAX_VARINT = 4
"""The most bytes of a number that is read in bulk; no page has 2**28 bytes."""
_HEADER_SIZE = 3 * (1 + _MAX_VARINT)
"""The most bytes before a user record's data."""


@public
@dataclass(frozen=True, slots=True)
class UserRecordColumns:
    """User records as columns of one length, in stream order."""

    source: pa.Array
    """int32: the index of the record that held the user record."""
    partition_key: pa.Array
    """Null for a plain record that was put without a partition key."""
    data: pa.Array
    sub_sequence_number: pa.Array
    """int64: 0..n-1 within one record; 0 for a plain record."""
    explicit_hash_key: pa.Array
    """Null if the producer set none."""
    is_packed: pa.Array
    """bool: true for a user record of an aggregate, false for a plain record."""

    def filter(self, mask: pa.Array) -> UserRecordColumns:
        """Return the user records for which ``mask`` is true."""
        return UserRecordColumns(*(getattr(self, f.name).filter(mask) for f in fields(self)))


_Parsed = tuple[int, int | None, bytes]
"""A user record: the index of its partition key, of its explicit hash key or None, its data."""


def _parse(envelope: Envelope) -> list[_Parsed] | None:
    """Parse the user records with the protobuf runtime; None if any is malformed."""
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


def _canonical(envelope: Envelope) -> Envelope | None:
    """Re-encode the user records without other fields; None if any is malformed."""
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
    """Return the user records of ``records`` in order. A plain record is one user record."""
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
    """Return the number of user records in each record: one for a plain record.

    `deaggregate` gives the same numbers, except for aggregates with a malformed user record.
    """
    envelopes = (
        open_aggregate(record.data) if is_aggregated(record.data) else None for record in records
    )
    return [1 if envelope is None else len(envelope.messages) for envelope in envelopes]


def _chunks(records: Sequence[Record]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of chunks of ``records``: one at least, each but the last `_CHUNK_SIZE`."""
    start = size = 0
    for place, record in enumerate(records):
        if size >= _CHUNK_SIZE:
            yield start, place
            start, size = place, 0
        size += len(record.data)
    yield start, len(records)


def _unpack(records: Sequence[Record], first: int) -> UserRecordColumns:
    """Return the columns of one chunk, whose first record has the index ``first``."""
    envelopes = open_all(records)
    if np is None:
        return _columns_one_by_one(records, envelopes, first)
    columns = _columns_at_once(records, envelopes, first)
    if not isinstance(columns, UserRecordColumns):
        # The protobuf runtime decides about messages in another form: tags, unknown fields and
        # another order are valid, and everything else is malformed.
        for place in columns:
            envelope = envelopes[place]
            envelopes[place] = None if envelope is None else _canonical(envelope)
        columns = _columns_at_once(records, envelopes, first)
        assert isinstance(columns, UserRecordColumns)
    return columns


def _columns_one_by_one(
    records: Sequence[Record], envelopes: Sequence[Envelope | None], first: int
) -> UserRecordColumns:
    """Return the columns, built one user record at a time: without numpy, and for tests."""
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
    records: Sequence[Record], envelopes: Sequence[Envelope | None], first: int
) -> UserRecordColumns | list[int]:
    """Return the columns, or the indices of aggregates that are not in the usual form.

    Every aggregator writes a user record in the usual form: partition key index, explicit hash key
    index if there is one, and data, in this order. Then the data is the rest of the message after
    a short header, and one cut per message gives the whole column.
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
    payloads.append(bytes(_HEADER_SIZE))  # a header may be read beyond the last message
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
    """The headers before the data of each message, as columns; garbage if not `usual`."""

    usual: Any
    key: Any
    has_hash_key: Any
    hash_key: Any
    data_start: Any


def _read_headers(wire: Any, offsets: Any) -> _Headers:
    """Read the headers of the messages in ``wire`` (uint8) between ``offsets`` (int64, n + 1).

    `_HEADER_SIZE` bytes must follow the last message. A message is in the usual form only if its
    data ends at its own end, so a header read beyond the end of a message never is.
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
    """Read the varints at the offsets ``at``; return (values, their ends, which are complete)."""
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
