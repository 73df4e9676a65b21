"""Unpacks KPL aggregated records into columns of user records.

Unpacking never loses data. A malformed aggregated record is returned unchanged, as one user record
with sub-sequence number 0 and the partition key of the record. It is malformed if its digest is
wrong, its message cannot be parsed, or, in any user record, a required field is missing, a key is
not UTF-8, or an index is out of range. An aggregated record without user records is also returned
unchanged: every record of the stream gives at least one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from sparkinesis.public import public
from sparkinesis.stream.kpl.envelope import Envelope, chunks, open_all
from sparkinesis.stream.kpl.headers import read_headers
from sparkinesis.stream.kpl.messages import KplRecord
from sparkinesis.stream.page import Record

_CHUNK_SIZE = 1 << 22
"""Bytes of records that are unpacked at a time: few calls of Arrow, and little memory beside."""


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


_NO_COLUMNS = UserRecordColumns(
    source=pa.nulls(0, pa.int32()),
    partition_key=pa.nulls(0, pa.string()),
    data=pa.nulls(0, pa.binary()),
    sub_sequence_number=pa.nulls(0, pa.int64()),
    explicit_hash_key=pa.nulls(0, pa.string()),
    is_packed=pa.nulls(0, pa.bool_()),
)


def _canonical(envelope: Envelope) -> Envelope | None:
    """Re-encode the user records without other fields; None if any is malformed."""
    messages: list[bytes] = []
    for message in envelope.messages:
        record = KplRecord()
        try:
            record.ParseFromString(message)
        except (DecodeError, UnicodeDecodeError):
            return None
        has_hash_key = record.HasField("explicit_hash_key_index")
        if (
            not record.IsInitialized()
            or record.partition_key_index >= len(envelope.partition_keys)
            or (has_hash_key and record.explicit_hash_key_index >= len(envelope.explicit_hash_keys))
        ):
            return None
        record.ClearField("tags")
        record.DiscardUnknownFields()
        messages.append(record.SerializeToString())
    return replace(envelope, messages=messages)


@public
def deaggregate(records: Sequence[Record]) -> UserRecordColumns:
    """Return the user records of ``records`` in order. A plain record is one user record."""
    parts = [_unpack(records[start:stop], start) for start, stop in chunks(records, _CHUNK_SIZE)]
    if len(parts) == 1:
        return parts[0]
    return UserRecordColumns(
        *(
            pa.concat_arrays([getattr(part, field.name) for part in parts])
            for field in fields(UserRecordColumns)
        )
    )


def _unpack(records: Sequence[Record], first: int) -> UserRecordColumns:
    """Return the columns of one chunk, whose first record has the index ``first``."""
    envelopes = open_all(records)
    columns = _columns(records, envelopes, first)
    if not isinstance(columns, UserRecordColumns):
        # The protobuf runtime decides about messages in another form: tags, unknown fields and
        # another order are valid, and everything else is malformed.
        for place in columns:
            envelope = envelopes[place]
            envelopes[place] = None if envelope is None else _canonical(envelope)
        columns = _columns(records, envelopes, first)
        assert isinstance(columns, UserRecordColumns)
    return columns


def _columns(
    records: Sequence[Record], envelopes: Sequence[Envelope | None], first: int
) -> UserRecordColumns | list[int]:
    """Return the columns, or the indices of aggregates that are not in the usual form.

    In the usual form (see `sparkinesis.stream.kpl.headers`) the data is the rest of a user record's
    message after a short header, so that one cut per message gives the whole column.
    """
    partition_keys: list[str | None] = []
    explicit_hash_keys: list[str] = []
    messages: list[bytes] = []
    bounds = [(0, 0, 0)]  # of each record's messages, partition keys and explicit hash keys
    for record, envelope in zip(records, envelopes, strict=True):
        if envelope is None:
            partition_keys.append(record.partition_key)
            messages.append(record.data)
        else:
            partition_keys += envelope.partition_keys
            explicit_hash_keys += envelope.explicit_hash_keys
            messages += envelope.messages
        bounds.append((len(messages), len(partition_keys), len(explicit_hash_keys)))
    first_row, first_key, first_hash_key = map(list, zip(*bounds, strict=True))
    rows = len(messages)
    if rows == 0:
        return _NO_COLUMNS
    wire = pa.array(messages, pa.binary())
    header = read_headers(wire, with_hash_keys=bool(explicit_hash_keys))
    source = pc.list_parent_indices(
        pa.ListArray.from_arrays(pa.array(first_row, pa.int32()), pa.nulls(rows))
    )
    packed = pa.array([envelope is not None for envelope in envelopes], pa.bool_()).take(source)

    key, in_table = _places(header.key, first_key, source)
    usual = pc.and_(header.is_usual, in_table)
    if header.hash_key is None:
        explicit_hash_key = pa.nulls(rows, pa.string())
    else:
        hash_key, in_table = _places(header.hash_key, first_hash_key, source)
        usual = pc.and_(usual, pc.fill_null(in_table, True))
    unusual = pc.and_not(packed, usual)
    if unusual.true_count:
        places: list[int] = source.filter(unusual).unique().to_pylist()
        return places

    if header.hash_key is not None:
        hash_key = pc.if_else(packed, hash_key, None)
        explicit_hash_key = pa.array(explicit_hash_keys, pa.string()).take(hash_key)
    begins = pa.array(first_key[:-1], pa.uint64()).take(source)
    return UserRecordColumns(
        source=pc.add(source, pa.scalar(first, pa.int64())).cast(pa.int32()),
        partition_key=pa.array(partition_keys, pa.string()).take(pc.if_else(packed, key, begins)),
        data=_rest(wire, pc.if_else(packed, header.size, pa.scalar(0, pa.uint64()))),
        sub_sequence_number=pc.subtract(
            pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows)),
            pc.add(pa.array(first_row[:-1], pa.int64()), pa.scalar(1, pa.int64())).take(source),
        ),
        explicit_hash_key=explicit_hash_key,
        is_packed=packed,
    )


def _places(
    indices: pa.Array, first_keys: list[int], source: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Return the places of keys in all records' keys together, and which are their own record's.

    ``indices``: of keys in the table of their record; ``first_keys``: where each table begins.
    """
    firsts = pa.array(first_keys, pa.uint64())
    places = pc.add(indices, firsts.take(source))
    return places, pc.less(places, firsts.slice(1).take(source))


def _rest(messages: pa.Array, starts: pa.Array) -> pa.Array:
    """Return the bytes of each message from its own start (uint64)."""
    count = len(messages)
    _, offsets, values = messages.buffers()
    ends = pa.Array.from_buffers(pa.uint32(), count + 1, [None, offsets]).cast(pa.uint64())
    starts = pc.add(ends.slice(0, count), starts)
    # Two offsets of 32 bits in one number: the start of each rest, and its end, which begins a
    # piece that is left out.
    pairs = pc.bit_wise_or(starts, pc.shift_left(ends.slice(1), pa.scalar(32, pa.uint64())))
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pairs.buffers()[1], values])
    every_other = pa.py_buffer(b"\x55" * (count // 4 + 1))
    mask = pa.Array.from_buffers(pa.bool_(), 2 * count - 1, [None, every_other])
    return pieces.filter(mask)
