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


class NewRecord(msgspec.Struct, frozen=True, gc=False):
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
    json: list[bytes] = []
    cbor: list[bytes] = []
    json_time, cbor_time = _arrival(arrival_ms)
    json_type, cbor_type = _ENCRYPTED if encrypted else _PLAIN
    keyless, keyed = _HEADS[encrypted : encrypted + 2]
    join = b"".join
    for record, number in zip(records, numbers, strict=True):
        data, key, digits = record.data, record.key, number.encode()
        text = b2a_base64(data, newline=False)
        blob = _data_head(len(data))
        if key is None:
            json.append(join((JSON_HEAD, digits, json_time, text, b'"', json_type)))
            cbor.append(join((keyless, digits, cbor_time, blob, data, cbor_type)))
            continue
        named = _json_string(key)
        json.append(join((JSON_HEAD, digits, json_time, text, _JSON_KEY, named, json_type)))
        utf8 = key.encode()
        head = _key_head(len(utf8))
        cbor.append(join((keyed, digits, cbor_time, blob, data, head, utf8, cbor_type)))
    return StoredRecords(json, cbor)


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


_json_string = msgspec.json.Encoder().encode
_JSON_KEY = b'","PartitionKey":'
_INSTANT = b"\xc1"
# The beginnings of maps with three, four and five members.
_HEADS = [
    cbor_head(MAP, members) + _text("SequenceNumber") + cbor_head(TEXT, SEQUENCE_DIGITS)
    for members in (3, 4, 5)
]
_PLAIN = (b"},", b"")
_ENCRYPTED = (b',"EncryptionType":"KMS"},', _text("EncryptionType") + _text("KMS"))
