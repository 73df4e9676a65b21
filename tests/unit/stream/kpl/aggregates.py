"""An aggregated record whose bytes are known, and the rows that unpacking gives."""

from __future__ import annotations

import hashlib

from sparkinesis.stream.kpl.magic import MAGIC
from sparkinesis.stream.kpl.pack import OutgoingRecord
from sparkinesis.stream.kpl.unpack import deaggregate
from sparkinesis.stream.page import Record

Row = tuple[int, str | None, bytes, int, str | None]
"""Place of the record, partition key, data, sub-sequence number, explicit hash key."""


def rows(records: list[Record]) -> list[Row]:
    columns = deaggregate(records)
    arrays = [
        columns.source,
        columns.partition_key,
        columns.data,
        columns.sub_sequence_number,
        columns.explicit_hash_key,
    ]
    for array in arrays:
        array.validate(full=True)
    return list(zip(*(array.to_pylist() for array in arrays), strict=True))


def raw(record: Record, place: int = 0) -> list[Row]:
    """The row of a record that is delivered as it is."""
    return [(place, record.partition_key, record.data, 0, None)]


def sealed(message: bytes) -> Record:
    """An aggregated record around a message, sound or not, with the right digest."""
    return Record(
        data=MAGIC + message + hashlib.md5(message).digest(),
        partition_key="outer",
        sequence_number="7",
        approximate_arrival_timestamp=1.5,
    )


# The bytes of an aggregate, by hand from the format's description.
GOLDEN_MESSAGE = bytes.fromhex(
    "0a 02 6b31"  # partition key table: "k1"
    "0a 02 6b32"  # and "k2"
    "12 01 39"  # explicit hash key table: "9"
    "1a 05 08 00 1a 01 41"  # a record: key 0, data "A"
    "1a 08 08 01 10 00 1a 02 4243"  # a record: key 1, hash key 0, data "BC"
    "1a 04 08 00 1a 00"  # a record: key 0, no data
)
GOLDEN = sealed(GOLDEN_MESSAGE)
GOLDEN_USERS: list[OutgoingRecord] = [("k1", None, b"A"), ("k2", "9", b"BC"), ("k1", None, b"")]
GOLDEN_ROWS: list[Row] = [
    (0, "k1", b"A", 0, None),
    (0, "k2", b"BC", 1, "9"),
    (0, "k1", b"", 2, None),
]
