"""Packing user records into KPL aggregated records, and unpacking them into columns.

Nothing is ever lost by unpacking. Whatever begins like an aggregated record and is not a sound one
is delivered as it is, as one user record with sub-sequence number 0 and the partition key under
which Kinesis stores it: no sound digest, no parsable message, a required field missing, a key that
is not UTF-8, an index out of range at any of its user records. So is an aggregated record without
user records: its bytes were put by somebody, and every record of the stream gives at least one row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from sparkinesis.errors import SparkinesisError
from sparkinesis.stream.kpl import (
    DIGEST_SIZE,
    ENVELOPE_SIZE,
    MAGIC,
    MAX_SIZE,
    AggregatedRecord,
)
from sparkinesis.stream.page import Record

DEFAULT_MAX_SIZE = 51_200
"""Bytes of an aggregated record: the KPL's default of ``AggregationMaxSize``."""


@dataclass(frozen=True, slots=True)
class UserRecordColumns:
    """User records as columns of one length, in stream order."""

    source: pa.Array
    """int32: the place, in what was unpacked, of the record that a user record came in."""
    partition_key: pa.Array
    data: pa.Array
    sub_sequence_number: pa.Array
    """int64: 0..n-1 among the user records of one record; 0 for a record that is not aggregated."""
    explicit_hash_key: pa.Array
    """Null where the producer gave none."""


def is_aggregated(data: bytes) -> bool:
    """Whether ``data`` says that it is an aggregated record; it may still be malformed."""
    return data.startswith(MAGIC) and len(data) > ENVELOPE_SIZE


def message_of(data: bytes) -> bytes | None:
    """The message in an aggregated record's data; None where there is none, or its MD5 differs."""
    if not is_aggregated(data):
        return None
    message = data[len(MAGIC) : -DIGEST_SIZE]
    # No security is meant: without the flag a machine in FIPS mode refuses MD5.
    digest = hashlib.md5(message, usedforsecurity=False).digest()
    return message if data.endswith(digest) else None


@dataclass(frozen=True, slots=True)
class _Unpacked:
    """The user records of one record; keys are places in a table."""

    partition_key_table: list[str]
    explicit_hash_key_table: list[str]
    data: list[bytes]
    partition_key: list[int]
    explicit_hash_key: list[int | None]


def _raw(record: Record) -> _Unpacked:
    return _Unpacked([record.partition_key], [], [record.data], [0], [None])


def _unpack(message: bytes) -> _Unpacked | None:
    """The user records of a message; None when it is malformed or has none."""
    aggregate = AggregatedRecord()
    try:
        aggregate.ParseFromString(message)
        partition_keys = list(aggregate.partition_key_table)
        explicit_hash_keys = list(aggregate.explicit_hash_key_table)
    except (DecodeError, UnicodeDecodeError):
        return None
    records = list(aggregate.records)
    if not records or not aggregate.IsInitialized():
        return None
    indices = [record.partition_key_index for record in records]
    hash_indices = [
        record.explicit_hash_key_index if record.HasField("explicit_hash_key_index") else None
        for record in records
    ]
    present = [index for index in hash_indices if index is not None]
    if max(indices) >= len(partition_keys) or max(present, default=-1) >= len(explicit_hash_keys):
        return None
    data = [record.data for record in records]
    return _Unpacked(partition_keys, explicit_hash_keys, data, indices, hash_indices)


def deaggregate(records: Sequence[Record]) -> UserRecordColumns:
    """The user records of ``records``, in order, each record that is not aggregated as it is."""
    partition_key_table: list[str] = []
    explicit_hash_key_table: list[str] = []
    parts: list[_Unpacked] = []
    indices: list[int] = []
    hash_indices: list[int | None] = []
    source: list[int] = []
    for place, record in enumerate(records):
        message = message_of(record.data)
        part = (None if message is None else _unpack(message)) or _raw(record)
        first, first_hash = len(partition_key_table), len(explicit_hash_key_table)
        indices += [first + index for index in part.partition_key]
        hash_indices += [
            None if index is None else first_hash + index for index in part.explicit_hash_key
        ]
        partition_key_table += part.partition_key_table
        explicit_hash_key_table += part.explicit_hash_key_table
        source += [place] * len(part.data)
        parts.append(part)
    return UserRecordColumns(
        source=pa.array(source, pa.int32()),
        partition_key=pa.array(partition_key_table, pa.string()).take(
            pa.array(indices, pa.int64())
        ),
        data=pa.array(list(chain.from_iterable(part.data for part in parts)), pa.binary()),
        sub_sequence_number=pa.array(
            list(chain.from_iterable(range(len(part.data)) for part in parts)), pa.int64()
        ),
        explicit_hash_key=pa.array(explicit_hash_key_table, pa.string()).take(
            pa.array(hash_indices, pa.int64())
        ),
    )


class RecordTooLargeError(SparkinesisError, ValueError):
    """A user record does not fit into an aggregated record of the size that was asked."""


@dataclass(frozen=True, slots=True)
class AggregatedBlob:
    """An aggregated record, ready to be put.

    Put it under the keys of its first user record, as the aggregation libraries do; readers take
    the keys of user records from the tables inside.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    count: int
    """How many user records it holds."""


UserRecord = tuple[str, str | None, bytes]
"""Partition key, explicit hash key (decimal text of a 128-bit number) or None, data."""


def aggregate(
    records: Iterable[UserRecord], max_size: int = DEFAULT_MAX_SIZE
) -> Iterator[AggregatedBlob]:
    """Pack user records, in order, into aggregated records of at most ``max_size`` bytes.

    ``max_size`` counts the whole record, magic and digest included, and is at most 1 MiB. All of
    ``records`` is taken and checked first, so that an error comes before any aggregate does:
    `RecordTooLargeError` for a user record that would not fit on its own, `ValueError` for keys
    that Kinesis would refuse. The keys of one aggregate need not belong to one shard; a reader
    that filters by hash range (a KCL does) drops such an aggregate, so group by shard for those.
    """
    if not ENVELOPE_SIZE < max_size <= MAX_SIZE:
        raise ValueError(
            f"max_size is {max_size}: it must be over {ENVELOPE_SIZE} and at most {MAX_SIZE} bytes"
        )
    checked = list(records)
    for number, record in enumerate(checked):
        _check(number, record, max_size)
    return _pack(checked, max_size)


def _check(number: int, record: UserRecord, max_size: int) -> None:
    partition_key, explicit_hash_key, _ = record
    if not 1 <= len(partition_key) <= 256:
        raise ValueError(
            f"the partition key of record {number} has {len(partition_key)} characters; Kinesis "
            "takes 1 to 256"
        )
    if explicit_hash_key is not None and not (
        explicit_hash_key.isascii()
        and explicit_hash_key.isdecimal()
        and len(explicit_hash_key) <= 39
        and int(explicit_hash_key) < 1 << 128
    ):
        raise ValueError(
            f"the explicit hash key of record {number} is {explicit_hash_key!r}; Kinesis takes "
            "the decimal text of a number from 0 to 2**128 - 1"
        )
    size = ENVELOPE_SIZE + _Packing().size_of(record)
    if size > max_size:
        raise RecordTooLargeError(
            f"record {number} (partition key {partition_key!r}) takes {size} bytes as an "
            f"aggregated record of its own, more than the {max_size} allowed. Raise max_size (to "
            f"{MAX_SIZE} at most), put the record without aggregation, or make it smaller."
        )


def _pack(records: Iterable[UserRecord], max_size: int) -> Iterator[AggregatedBlob]:
    packing = _Packing()
    for record in records:
        if packing.count and packing.size + packing.size_of(record) > max_size:
            yield packing.blob()
            packing = _Packing()
        packing.add(record)
    if packing.count:
        yield packing.blob()


class _Packing:
    """An aggregated record in the making; its size is known without serializing it."""

    def __init__(self) -> None:
        self._message: Any = AggregatedRecord()
        self._partition_keys: dict[str, int] = {}
        self._explicit_hash_keys: dict[str, int] = {}
        self._first: UserRecord | None = None
        self.count = 0
        self.size = ENVELOPE_SIZE

    def size_of(self, record: UserRecord) -> int:
        """Bytes by which ``record`` would make the aggregated record longer."""
        partition_key, explicit_hash_key, data = record
        index = self._partition_keys.get(partition_key, len(self._partition_keys))
        body = 1 + _varint_size(index) + _field_size(len(data))
        size = 0
        if index == len(self._partition_keys):
            size += _field_size(len(partition_key.encode()))
        if explicit_hash_key is not None:
            index = self._explicit_hash_keys.get(explicit_hash_key, len(self._explicit_hash_keys))
            body += 1 + _varint_size(index)
            if index == len(self._explicit_hash_keys):
                size += _field_size(len(explicit_hash_key))
        return size + _field_size(body)

    def add(self, record: UserRecord) -> None:
        self.size += self.size_of(record)
        self._first = self._first or record
        self.count += 1
        partition_key, explicit_hash_key, data = record
        index = self._partition_keys.setdefault(partition_key, len(self._partition_keys))
        added = self._message.records.add(partition_key_index=index, data=data)
        if explicit_hash_key is not None:
            added.explicit_hash_key_index = self._explicit_hash_keys.setdefault(
                explicit_hash_key, len(self._explicit_hash_keys)
            )

    def blob(self) -> AggregatedBlob:
        assert self._first is not None
        partition_key, explicit_hash_key, _ = self._first
        self._message.partition_key_table.extend(self._partition_keys)
        self._message.explicit_hash_key_table.extend(self._explicit_hash_keys)
        message = self._message.SerializeToString()
        digest = hashlib.md5(message, usedforsecurity=False).digest()
        data = MAGIC + message + digest
        return AggregatedBlob(data, partition_key, explicit_hash_key, self.count)


def _varint_size(value: int) -> int:
    """Bytes of a non-negative number as protobuf writes it: seven bits a byte."""
    return max(1, (value.bit_length() + 6) // 7)


def _field_size(length: int) -> int:
    """Bytes of a field of ``length`` bytes: a tag of one byte, the length, the bytes."""
    return 1 + _varint_size(length) + length
