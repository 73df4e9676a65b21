"""Records as they are stored: their JSON and their CBOR, as GetRecords returns them.

Both are made when the record is put, so that a page costs the same in either encoding. In CBOR, an
instant is an integer of milliseconds under tag 1, as the AWS SDKs for Java take it. Source of the
heads: RFC 8949, section 3.
"""

from __future__ import annotations

import functools
from binascii import b2a_base64
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

JSON_HEAD = b'{"SequenceNumber":"'
SEQUENCE_DIGITS = 56

POSITIVE, BLOB, TEXT, ARRAY, MAP = 0, 2, 3, 4, 5
"""The major types of CBOR."""


class NewRecord(NamedTuple):
    """A record that is put. key: None for a record without one. size: the bytes of both."""

    data: bytes
    key: str | None
    size: int


class StoredRecords(NamedTuple):
    """Records of one put. json: an object and the comma behind it, each. cbor: a map each."""

    json: list[bytes]
    cbor: list[bytes]


def stored_records(
    records: Iterable[NewRecord], numbers: Iterable[str], arrival_ms: int, *, encrypted: bool
) -> StoredRecords:
    """Encode records with these sequence numbers. encrypted: give them an EncryptionType."""
    found = StoredRecords([], [])
    json_time, cbor_time = _arrival(arrival_ms)
    json_tail, cbor_tail = _ENCRYPTED if encrypted else _PLAIN
    json_key = cbor_key = b""
    join = b"".join
    for (data, key, _), number in zip(records, numbers, strict=True):
        digits = number.encode()
        head = _HEADS[encrypted + (key is not None)]
        if key is None:
            json_key = cbor_key = b""
        else:
            text = key.encode()
            json_key = b',"PartitionKey":' + msgspec.json.encode(key)
            cbor_key = _key_head(len(text)) + text
        blob = b2a_base64(data, newline=False)
        found.json.append(join((JSON_HEAD, digits, json_time, blob, b'"', json_key, json_tail)))
        found.cbor.append(
            join((head, digits, cbor_time, _data_head(len(data)), data, cbor_key, cbor_tail))
        )
    return found


def cbor_head(kind: int, count: int) -> bytes:
    """Return the head of an item: its major type, and its value or length."""
    first = kind << 5
    if count < 24:
        return bytes((first + count,))
    size = next(size for size in range(4) if count < 1 << (8 << size))
    return bytes((first + 24 + size,)) + count.to_bytes(1 << size, "big")


def _text(value: str) -> bytes:
    return cbor_head(TEXT, len(value)) + value.encode()


@functools.lru_cache(1024)
def _key_head(size: int) -> bytes:
    return _text("PartitionKey") + cbor_head(TEXT, size)


@functools.lru_cache(1024)
def _data_head(size: int) -> bytes:
    return _text("Data") + cbor_head(BLOB, size)


def _arrival(time_ms: int) -> tuple[bytes, bytes]:
    """Return the bytes between the digits of the sequence number and the data, in both."""
    json = b'","ApproximateArrivalTimestamp":%.3f,"Data":"' % (time_ms / 1000)
    instant = cbor_head(POSITIVE, max(0, time_ms))  # no page has an earlier record: it is trimmed
    return json, _text("ApproximateArrivalTimestamp") + _INSTANT + instant


_INSTANT = b"\xc1"
# The beginnings of maps with three, four and five members.
_HEADS = [
    cbor_head(MAP, members) + _text("SequenceNumber") + cbor_head(TEXT, SEQUENCE_DIGITS)
    for members in (3, 4, 5)
]
_PLAIN = (b"},", b"")
_ENCRYPTED = (b',"EncryptionType":"KMS"},', _text("EncryptionType") + _text("KMS"))
