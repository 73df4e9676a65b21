"""Packs user records into KPL aggregated records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sparkinesis.errors import RecordTooLargeError
from sparkinesis.public import public
from sparkinesis.stream.kpl.magic import ENVELOPE_SIZE, MAGIC, MAX_SIZE
from sparkinesis.stream.kpl.message_types import AggregatedRecord

DEFAULT_MAX_SIZE = 51_200
"""The KPL's default of ``AggregationMaxSize``: the most bytes of an aggregated record."""

OutgoingRecord = tuple[str, str | None, bytes]
"""A user record to put: its partition key, explicit hash key or None, and data.

The explicit hash key is the decimal text of a 128-bit number.
"""


@public
@dataclass(frozen=True, slots=True)
class AggregatedBlob:
    """An aggregated record to put.

    Put it with the keys of its first user record, as the aggregation libraries do. Readers take the
    keys of the user records from the tables inside.
    """

    data: bytes
    partition_key: str
    explicit_hash_key: str | None
    count: int
    """The number of user records."""


@public
def aggregate(
    records: Iterable[OutgoingRecord], max_size: int = DEFAULT_MAX_SIZE
) -> Iterator[AggregatedBlob]:
    """Pack user records, in order, into aggregated records of at most ``max_size`` bytes.

    ``max_size`` counts the whole record, magic and digest included, and is at most 1 MiB. All
    records are checked before the first aggregate: raises `RecordTooLargeError` for a user record
    that does not fit on its own, and `ValueError` for keys that Kinesis would refuse.

    The keys of one aggregate may belong to several shards. Readers that filter by hash range, such
    as a KCL, drop aggregates of several shards: group the user records by shard for these readers.
    """
    if not ENVELOPE_SIZE < max_size <= MAX_SIZE:
        raise ValueError(
            f"max_size is {max_size}; it must be over {ENVELOPE_SIZE} and at most {MAX_SIZE} bytes"
        )
    checked = list(records)
    for number, record in enumerate(checked):
        _check(number, record, max_size)
    return _pack(checked, max_size)


def _check(number: int, record: OutgoingRecord, max_size: int) -> None:
    partition_key, explicit_hash_key, _ = record
    if not 1 <= len(partition_key) <= 256:
        raise ValueError(
            f"the partition key of record {number} has {len(partition_key)} characters; Kinesis "
            "accepts 1 to 256"
        )
    if explicit_hash_key is not None and not (
        explicit_hash_key.isascii()
        and explicit_hash_key.isdecimal()
        and len(explicit_hash_key) <= 39
        and int(explicit_hash_key) < 1 << 128
    ):
        raise ValueError(
            f"the explicit hash key of record {number} is {explicit_hash_key!r}; Kinesis accepts "
            "the decimal text of a number from 0 to 2**128 - 1"
        )
    size = ENVELOPE_SIZE + _Packing().size_of(record)
    if size > max_size:
        raise RecordTooLargeError(
            f"record {number} (partition key {partition_key!r}) takes {size} bytes as the only one "
            f"of an aggregated record, more than max_size={max_size}. Raise max_size (to "
            f"{MAX_SIZE} at most), put the record without aggregation, or make it smaller."
        )


def _pack(records: Iterable[OutgoingRecord], max_size: int) -> Iterator[AggregatedBlob]:
    packing = _Packing()
    for record in records:
        if packing.count and packing.size + packing.size_of(record) > max_size:
            yield packing.blob()
            packing = _Packing()
        packing.add(record)
    if packing.count:
        yield packing.blob()


class _Packing:
    """An aggregated record under construction, whose size is known without serialization."""

    def __init__(self) -> None:
        self._message: Any = AggregatedRecord()
        self._partition_keys: dict[str, int] = {}
        self._explicit_hash_keys: dict[str, int] = {}
        self._first: OutgoingRecord | None = None
        self.count = 0
        self.size = ENVELOPE_SIZE

    def size_of(self, record: OutgoingRecord) -> int:
        """Return the bytes that ``record`` would add to the aggregated record."""
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

    def add(self, record: OutgoingRecord) -> None:
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
    """Return the size of a non-negative protobuf varint: seven bits a byte."""
    return max(1, (value.bit_length() + 6) // 7)


def _field_size(length: int) -> int:
    """Return the size of a field of ``length`` bytes: a tag of one byte, the length, the bytes."""
    return 1 + _varint_size(length) + length
