"""Unpacks KPL aggregated records into columns of user records.

Unpacking never loses data. A malformed aggregated record is returned unchanged, as one user record
with sub-sequence number 0 and the partition key of the record. It is malformed if its digest is
wrong, its message cannot be parsed, or, in any user record, a required field is missing, a key is
not UTF-8, or an index is out of range. An aggregated record without user records is also returned
unchanged: every record of the stream gives at least one row.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import compress, count, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from sparkinesis.public import public
from sparkinesis.stream.kpl.envelope import (
    Envelope,
    chunks,
    is_in_proportion,
    messages_of,
    open_message,
    open_sound,
)
from sparkinesis.stream.kpl.magic import ENVELOPE_SIZE
from sparkinesis.stream.kpl.message_types import KplRecord
from sparkinesis.stream.kpl.wire import JoinedBinary, data_of, read_headers
from sparkinesis.stream.page import Record

_CHUNK_SIZE = 2 << 20
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


class _UnusualError(Exception):
    """Aggregates are not in the usual form; ``places`` are their indices."""

    def __init__(self, places: Iterable[int]) -> None:
        self.places = places


def _canonical(message: memoryview) -> Envelope | None:
    """Open a message, its user records re-encoded without other fields; None if malformed."""
    envelope = open_sound(message)
    if envelope is None:
        return None
    messages: list[bytes] = []
    for user in envelope.messages:
        record = KplRecord()
        try:
            record.ParseFromString(user)
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
    return envelope._replace(messages=messages)


# A page of aggregates may hold tens of thousands of user records, so no step may make a call of
# Python for each of them, and yet each must be checked. Nothing that was put may be lost.
#
# - protobuf opens only the envelope of an aggregate: the tables of keys, and the encoded user
#   records as bytes. Arrow's functions then read the headers of all user records of a chunk at
#   once, and one cut per message gives the column of data (`sparkinesis.stream.kpl.wire`).
# - That is right for the form that every known aggregator writes, and for no other: with tags,
#   unknown fields or another order of fields, the bytes behind a header are not the data. Whatever
#   does not fit is found by its lengths, which must add up to the message's end. Those aggregates
#   are opened again by the protobuf runtime (`_canonical`), which alone decides what is malformed,
#   and writes the rest in the usual form, so that the same cut serves them.
# - Checking only the headers would trust the keys. They are checked as tables: each index must be
#   in the table of its own record, and no aggregate may repeat a long key so often that the column
#   grows beyond what its bytes can justify (`is_in_proportion`): 10 MB could become gigabytes.
# - Chunks of two megabytes keep the memory beside a page small; with one megabyte, the calls of
#   Arrow, a hundred for each chunk, took a tenth of the time. The columns are joined at the end;
#   the data, which is most of it, is copied once into its place as each chunk is done
#   (`JoinedBinary`), so that a page is never held twice.
@public
def deaggregate(records: Sequence[Record]) -> UserRecordColumns:
    """Return the user records of ``records`` in order. A plain record is one user record."""
    bounds = list(chunks(records, _CHUNK_SIZE))
    messages = messages_of(records)
    if len(bounds) == 1:
        return _unpack(records, messages, 0)
    data = JoinedBinary(sum([len(record.data) for record in records]))
    parts: list[UserRecordColumns] = []
    for start, stop in bounds:
        part = _unpack(records[start:stop], messages[start:stop], start)
        data.add(part.data)
        parts.append(replace(part, data=_NO_COLUMNS.data))  # the copy is enough
    joined = UserRecordColumns(
        *(
            pa.concat_arrays([getattr(part, field.name) for part in parts])
            for field in fields(UserRecordColumns)
        )
    )
    return replace(joined, data=data.array())


def _unpack(
    records: Sequence[Record], messages: Sequence[memoryview | None], first: int
) -> UserRecordColumns:
    """Return the columns of one chunk, whose first record has the index ``first``."""
    if not records:
        return _NO_COLUMNS
    try:
        return _columns(records, map(_opened, messages), first)
    except _UnusualError as error:
        # The protobuf runtime decides about messages in another form: tags, unknown fields and
        # another order are valid, and everything else is malformed.
        unusual = set(error.places)
    envelopes = (
        _opened(message, _canonical if place in unusual else open_message)
        for place, message in enumerate(messages)
    )
    return _columns(records, envelopes, first, unusual)


def _opened(
    message: memoryview | None, by: Callable[[memoryview], Envelope | None] = open_message
) -> Envelope | None:
    return None if message is None else by(message)


class _Parts(NamedTuple):
    """The parts of all aggregates of a chunk; of a plain record its key and its data."""

    partition_keys: list[bytes | str | None]
    explicit_hash_keys: list[bytes]
    wire: pa.Array
    """The messages of user records, and the data of plain records."""
    bounds: list[tuple[int, int, int]]
    """Where each record's messages, partition keys and explicit hash keys begin, and the ends."""
    is_packed: list[bool]


def _parts(records: Sequence[Record], envelopes: Iterable[Envelope | None]) -> _Parts:
    partition_keys: list[bytes | str | None] = []
    explicit_hash_keys: list[bytes] = []
    messages: list[bytes] = []
    bounds = [(0, 0, 0)]
    is_packed: list[bool] = []
    for record, envelope in zip(records, envelopes):  # noqa: B905 - one of each
        is_packed.append(envelope is not None)
        if envelope is None:
            partition_keys.append(record.partition_key)
            messages.append(record.data)
        else:
            partition_keys += envelope.partition_keys
            explicit_hash_keys += envelope.explicit_hash_keys
            messages += envelope.messages
        bounds.append((len(messages), len(partition_keys), len(explicit_hash_keys)))
    wire = pa.array(messages, pa.binary())
    return _Parts(partition_keys, explicit_hash_keys, wire, bounds, is_packed)


def _columns(
    records: Sequence[Record],
    envelopes: Iterable[Envelope | None],
    first: int,
    checked: Container[int] = (),
) -> UserRecordColumns:
    """Return the columns. Raises `_UnusualError`.

    In the usual form (see `sparkinesis.stream.kpl.wire`) the data is the rest of a user record's
    message after a short header, so that one cut per message gives the whole column.

    checked: the indices of aggregates that the protobuf runtime has decided about.
    """
    parts = _parts(records, envelopes)
    first_row, first_key, first_hash_key = map(list, zip(*parts.bounds))  # noqa: B905
    wire, rows = parts.wire, len(parts.wire)
    try:
        partition_keys = pa.array(parts.partition_keys, pa.string())
        explicit_hash_keys = pa.array(parts.explicit_hash_keys, pa.string())
    except pa.ArrowInvalid:  # one is not UTF-8
        raise _UnusualError(compress(count(), parts.is_packed)) from None
    firsts = (first_key, first_hash_key)
    most_keys = max([stop - start for each in firsts for start, stop in pairwise(each)])
    header = read_headers(wire, with_hash_keys=len(explicit_hash_keys) > 0, most_keys=most_keys)
    source = pc.list_parent_indices(
        pa.ListArray.from_arrays(pa.array(first_row, pa.int32()), pa.nulls(rows))
    )
    all_packed = all(parts.is_packed)
    if all_packed:
        packed = pa.repeat(pa.scalar(True), rows)
    else:
        packed = pa.array(parts.is_packed, pa.bool_()).take(source)

    key, in_table = _places(header.key, first_key, source)
    usual = pc.and_(header.is_usual, in_table)
    if header.hash_key is None:
        explicit_hash_key = pa.nulls(rows, pa.string())
    else:
        hash_key, in_table = _places(header.hash_key, first_hash_key, source)
        usual = pc.and_(usual, pc.fill_null(in_table, True))
    unusual = pc.and_not(packed, usual)
    places = source.filter(unusual).unique().to_pylist() if unusual.true_count else []
    longest = max(_longest(partition_keys), _longest(explicit_hash_keys))
    places += [
        place
        for place, (start, stop) in enumerate(pairwise(first_row))
        if not is_in_proportion(longest * (stop - start), len(records[place].data) - ENVELOPE_SIZE)
        and parts.is_packed[place]
        and place not in checked
    ]
    if places:
        raise _UnusualError(places)

    size = header.size
    if not all_packed:
        if header.hash_key is not None:
            hash_key = pc.if_else(packed, hash_key, None)
        key = pc.if_else(packed, key, pa.array(first_key[:-1], pa.uint64()).take(source))
        size = pc.if_else(packed, size, pa.scalar(0, pa.uint64()))
    if header.hash_key is not None:
        explicit_hash_key = explicit_hash_keys.take(hash_key)
    return UserRecordColumns(
        source=pc.add(source, pa.scalar(first, pa.int64())).cast(pa.int32()),
        partition_key=partition_keys.take(key),
        data=data_of(wire, size),
        sub_sequence_number=pc.subtract(
            pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), rows), start=-1),
            pa.array(first_row[:-1], pa.int64()).take(source),
        ),
        explicit_hash_key=explicit_hash_key,
        is_packed=packed,
    )


def _longest(texts: pa.Array) -> int:
    """Return the bytes of the longest text, which are at least its characters; 0 without any."""
    longest: int | None = pc.max(pc.binary_length(texts)).as_py()
    return longest or 0


def _places(
    indices: pa.Array, first_keys: list[int], source: pa.Array
) -> tuple[pa.Array, pa.Array]:
    """Return the places of keys in all records' keys together, and which are their own record's.

    ``indices``: of keys in the table of their record; ``first_keys``: where each table begins.
    """
    firsts = pa.array(first_keys, pa.uint64())
    places = pc.add(indices, firsts.take(source))
    return places, pc.less(places, firsts.slice(1).take(source))
