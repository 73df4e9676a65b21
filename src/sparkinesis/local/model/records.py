"""Records as they are stored: their JSON and their CBOR, as GetRecords returns them.

Both are made when the record is put, so that a page costs the same in either encoding. In CBOR, an
instant is an integer of milliseconds under tag 1, as the AWS SDKs for Java take it. Source of the
heads: RFC 8949, section 3.

The log of a shard has them one after another, in blocks of bytes. Blocks are large and few. So a
page is a copy of some ranges of bytes, whatever the number of its records; and the garbage
collector, which walks every object of every list, has nothing to walk.
"""

from __future__ import annotations

import dataclasses
import functools
from array import array
from binascii import b2a_base64
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

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


_BLOCK_BYTES = 1 << 20


_Span = list[tuple[bytes | bytearray, int, int]]
"""Consecutive records, as ranges of blocks: (block, start, end). A bytearray still grows."""


def buffers(span: _Span) -> list[memoryview]:
    """Return the bytes of the records, for joining; also while others append to the log."""
    return [
        # A view of a bytearray would keep it from growing, so its range is copied.
        memoryview(block)[start:end] if isinstance(block, bytes) else memoryview(block[start:end])
        for block, start, end in span
    ]


class RecordLog:
    """Records by index; the first of those that are left has index 0. `drop` removes the oldest."""

    def __init__(self) -> None:
        # Offsets count from the first record ever.
        self._ends = array("q")
        self._end = 0
        self._dropped_to = 0
        self._blocks: list[bytes | bytearray] = []
        self._starts: list[int] = []
        self._last = self._begin_block()

    def extend(self, records: Sequence[bytes]) -> None:
        ends = accumulate(map(len, records), initial=self._end)
        next(ends)
        self._ends.extend(ends)
        self._end = self._ends[-1]
        self._last += b"".join(records)
        if len(self._last) >= _BLOCK_BYTES:
            self._blocks[-1] = bytes(self._last)
            self._last = self._begin_block()

    def span(self, first: int, last: int) -> _Span:
        """Return the records from `first` up to, excluding, `last`."""
        span: _Span = []
        start, end = self._start_of(first), self._start_of(last)
        place = bisect_right(self._starts, start) - 1
        while start < end:
            block, begin = self._blocks[place], self._starts[place]
            stop = min(end, begin + len(block))
            span.append((block, start - begin, stop - begin))
            start, place = stop, place + 1
        return span

    def within(self, index: int, skip: int, size: int) -> bytes:
        """Return `size` bytes of one record, from its byte `skip` on."""
        ((block, start, _),) = self.span(index, index + 1)
        return bytes(block[start + skip : start + skip + size])

    def drop(self, count: int) -> None:
        """Remove the oldest records, and the blocks in which no other record lies."""
        self._dropped_to = self._start_of(count)
        del self._ends[:count]
        unused = bisect_right(self._starts, self._dropped_to) - 1
        del self._blocks[:unused], self._starts[:unused]

    def _start_of(self, index: int) -> int:
        return self._ends[index - 1] if index else self._dropped_to

    def _begin_block(self) -> bytearray:
        block = bytearray()
        self._blocks.append(block)
        self._starts.append(self._end)
        return block


@dataclasses.dataclass(frozen=True)
class ReadRecords:
    """Consecutive records of a shard in both encodings; in JSON, a comma follows each of them.

    next_position: of the record behind them. bytes: the size of their data and keys.
    """

    next_position: int
    count: int = 0
    json: _Span = dataclasses.field(default_factory=list)
    cbor: _Span = dataclasses.field(default_factory=list)
    bytes: int = 0


class DecodedRecord(msgspec.Struct, frozen=True, rename="pascal"):
    """A stored record. approximate_arrival_timestamp: in seconds. partition_key: None for none."""

    sequence_number: str
    data: bytes
    approximate_arrival_timestamp: float
    partition_key: str | None = None

    @property
    def size(self) -> int:
        """The bytes of the data and the key."""
        return len(self.data) + len((self.partition_key or "").encode())


_decode = msgspec.json.Decoder(list[DecodedRecord]).decode


def decoded(records: ReadRecords) -> list[DecodedRecord]:
    """Decode consecutive records."""
    text = b"".join((b"[", *buffers(records.json)))
    return _decode(text[:-1] + b"]") if records.count else []


class RecordPage(msgspec.Struct, frozen=True):
    """Records as the shard stores them, and the answer's other members."""

    records: ReadRecords
    rest: dict[str, Any]
