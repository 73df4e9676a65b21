"""Columns of encoded user records: their headers are read, their data cut out, all by Arrow.

Arrow's functions read headers as fast as numpy's. The package does without numpy, which takes 58 MB
and makes every import of pyarrow 0.1 s longer.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_KEY_TAG, _HASH_KEY_TAG, _DATA_TAG = 0x08, 0x10, 0x1A
"""The bytes before a user record's fields in its message."""
_MAX_VARINT = 4
"""The most bytes of a number that is read; no page has 2**28 bytes."""
_WORD = 8
"""Bytes that are read at a time. Two words hold the longest header, one holds most."""


class Headers(NamedTuple):
    """The headers of messages as columns, or as a scalar where all are equal; uint64.

    A message is in the usual form if it has the partition key index, the explicit hash key index
    if there is one, and data to its own end, in this order. Every aggregator writes this form. The
    other columns are garbage for a message that is not usual.
    """

    is_usual: pa.Array
    key: pa.Array
    hash_key: pa.Array | None
    """Null for a message without one; None if hash keys were not read."""
    size: pa.Array
    """The bytes before the data."""


def read_headers(messages: pa.Array, *, with_hash_keys: bool, most_keys: int) -> Headers:
    """Read the headers of ``messages`` (binary, one at least, no nulls).

    A message with an explicit hash key is usual only ``with_hash_keys``. A header is never read
    beyond the end of a usual message, because its data ends there.

    most_keys: the most keys in a table, whose indices are usual; larger ones may be.
    """
    lengths = pc.binary_length(messages)
    widths = 2 * _varint_width(most_keys) + _varint_width(pc.max(lengths).as_py())
    has_long = with_hash_keys and 3 + widths > _WORD
    wire = _Wire(_words(messages, 0), _words(messages, _WORD) if has_long else None)
    return _read_headers(wire, lengths.cast(pa.uint64()), with_hash_keys=with_hash_keys)


def _varint_width(most: int) -> int:
    """Return the bytes of the largest number up to ``most``."""
    return (max(most, 1).bit_length() + 6) // 7


def _read_headers(wire: _Wire, lengths: pa.Array, *, with_hash_keys: bool) -> Headers:
    """Read the headers that ``wire`` holds. lengths: of the messages (uint64)."""
    most = _number(_WORD if wire.high is None else 2 * _WORD)
    usual = wire.starts_with(_KEY_TAG)
    key, wire, width, is_whole = _read_varint(wire.after_byte())
    usual = pc.and_(usual, is_whole)
    size = pc.add(width, _number(1))
    hash_key = None
    if with_hash_keys:
        has_one = wire.starts_with(_HASH_KEY_TAG)
        hash_key, after, width, is_whole = _read_varint(wire.after_byte())
        more = pc.add(width, _number(1))
        if has_one.true_count < len(has_one):
            hash_key = pc.if_else(has_one, hash_key, pa.scalar(None, pa.uint64()))
            after = after.where(has_one, wire)
            is_whole = pc.or_(is_whole, pc.invert(has_one))
            more = pc.if_else(has_one, more, _number(0))
        wire = after
        usual = pc.and_(usual, is_whole)
        size = pc.add(size, more)
    usual = pc.and_(usual, wire.starts_with(_DATA_TAG))
    length, _, width, is_whole = _read_varint(wire.after_byte())
    usual = pc.and_(usual, is_whole)
    size = pc.add(size, pc.add(width, _number(1)))
    is_read = pc.less_equal(size, most)
    ends = pc.equal(pc.add(size, length), lengths)
    return Headers(pc.and_(usual, pc.and_(is_read, ends)), key, hash_key, size)


class _Wire(NamedTuple):
    """The next bytes of each message, 8 or 16, as numbers whose lowest byte is the first."""

    low: pa.Array
    high: pa.Array | None

    def starts_with(self, byte: int) -> pa.Array:
        return pc.equal(pc.bit_wise_and(self.low, _number(0xFF)), _number(byte))

    def after_byte(self) -> _Wire:
        low = pc.shift_right(self.low, _number(8))
        if self.high is None:
            return _Wire(low, None)
        low = pc.bit_wise_or(low, pc.shift_left(self.high, _number(56)))
        return _Wire(low, pc.shift_right(self.high, _number(8)))

    def where(self, mask: pa.Array, other: _Wire) -> _Wire:
        """Return these bytes where ``mask`` is true, and those of ``other`` elsewhere."""
        high = None if self.high is None else pc.if_else(mask, self.high, other.high)
        return _Wire(pc.if_else(mask, self.low, other.low), high)


def _read_varint(wire: _Wire) -> tuple[pa.Array, _Wire, pa.Array, pa.Array]:
    """Return the varints at the start, the bytes after them, their sizes, and which are whole."""
    value = pc.bit_wise_and(wire.low, _number(0x7F))
    more = _goes_on(wire)
    wire, size = wire.after_byte(), _number(1)
    for place in range(1, _MAX_VARINT):
        if more.true_count == 0:
            break
        part = pc.shift_left(pc.bit_wise_and(wire.low, _number(0x7F)), _number(7 * place))
        longer, after, goes_on = pc.bit_wise_or(value, part), wire.after_byte(), _goes_on(wire)
        if more.true_count == len(more):
            value, wire, size, more = longer, after, pc.add(size, _number(1)), goes_on
            continue
        value = pc.if_else(more, longer, value)
        size = pc.add(size, more.cast(pa.uint64()))
        wire, more = after.where(more, wire), pc.and_(more, goes_on)
    return value, wire, size, pc.invert(more)


def _goes_on(wire: _Wire) -> pa.Array:
    """Return where the next byte of a varint is not its last."""
    return pc.not_equal(pc.bit_wise_and(wire.low, _number(0x80)), _number(0))


def _words(messages: pa.Array, start: int) -> pa.Array:
    """Return the 8 bytes from ``start`` of each message as uint64; zeros follow its end."""
    cut = pc.binary_slice(messages, start, start + _WORD)
    if cut.total_values_length < len(messages) * _WORD:
        padded = pc.binary_join_element_wise(cut, _bytes(bytes(_WORD)), _bytes(b""))
        cut = pc.binary_slice(padded, 0, _WORD)
    return pa.Array.from_buffers(pa.uint64(), len(messages), [None, cut.buffers()[2]])


@functools.cache
def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())


@functools.cache
def _bytes(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.binary())


def data_of(messages: pa.Array, starts: pa.Array) -> pa.Array:
    """Return the data of each message, which begins at its own start (uint64)."""
    count = len(messages)
    _, offsets, values = messages.buffers()
    ends = pa.Array.from_buffers(pa.uint32(), count + 1, [None, offsets]).cast(pa.uint64())
    starts = pc.add(ends.slice(0, count), starts)
    # Two offsets of 32 bits in one number: the start of each rest, and its end, which begins a
    # piece that is left out.
    pairs = pc.bit_wise_or(starts, pc.shift_left(ends.slice(1), pa.scalar(32, pa.uint64())))
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pairs.buffers()[1], values])
    every_other = pa.py_buffer(b"\x55" * count)
    mask = pa.Array.from_buffers(pa.bool_(), 2 * count - 1, [None, every_other])
    return pieces.filter(mask)


class JoinedBinary:
    """A binary column that is built of parts; each is copied once, and not needed any more."""

    def __init__(self, size: int) -> None:
        """size: the most bytes of all values together."""
        self._values = pa.allocate_buffer(size)
        self._view = memoryview(self._values).cast("B")
        self._size = 0
        self._offsets = [pa.array([0], pa.int32())]

    def add(self, part: pa.Array) -> None:
        _, offsets, values = part.buffers()
        size = part.total_values_length
        if size:
            self._view[self._size : self._size + size] = memoryview(values).cast("B")[:size]
        ends = pa.Array.from_buffers(pa.int32(), len(part), [None, offsets], offset=1)
        self._offsets.append(pc.add(ends, pa.scalar(self._size, pa.int32())))
        self._size += size

    def array(self) -> pa.Array:
        offsets = pa.concat_arrays(self._offsets)
        buffers = [None, offsets.buffers()[1], self._values]
        return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
