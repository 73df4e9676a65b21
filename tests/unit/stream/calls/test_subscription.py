"""The decoder of event stream messages: botocore's own is the oracle."""

from __future__ import annotations

import io
import itertools
import struct
import tracemalloc

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.errors import CorruptEventStreamError
from sparkinesis.local.wire.push import framed
from sparkinesis.stream.calls.subscription import EventStreamDecoder, HeaderValue
from tests.event_stream import INITIAL_RESPONSE, records_event

Decoded = list[tuple[dict[str, HeaderValue], bytes]]


def decode(*chunks: bytes) -> tuple[Decoded, bool]:
    """The messages, and whether the bytes end with the last of them."""
    decoder = EventStreamDecoder()
    messages = [
        (message.headers, bytes(message.payload))
        for chunk in chunks
        for message in decoder.feed(chunk)
    ]
    return messages, decoder.is_between_messages


def decode_with_botocore(data: bytes) -> Decoded:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(event.headers, event.payload) for event in buffer]


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
    lambda name: len(name.encode()) < 256
)
header_values = st.one_of(
    st.booleans().map(lambda value: bytes([0 if value else 1])),
    st.binary(min_size=1, max_size=1).map(lambda value: b"\2" + value),
    st.binary(min_size=2, max_size=2).map(lambda value: b"\3" + value),
    st.binary(min_size=4, max_size=4).map(lambda value: b"\4" + value),
    st.binary(min_size=8, max_size=8).map(lambda value: b"\5" + value),
    st.binary(max_size=40).map(lambda value: b"\6" + struct.pack("!H", len(value)) + value),
    st.text(st.characters(codec="utf-8"), max_size=40).map(
        lambda value: b"\7" + struct.pack("!H", len(value.encode())) + value.encode()
    ),
    st.binary(min_size=8, max_size=8).map(lambda value: b"\x08" + value),
    st.uuids().map(lambda value: b"\x09" + value.bytes),
)
messages = st.builds(
    lambda headers, payload: framed(
        b"".join(
            bytes([len(name.encode())]) + name.encode() + value for name, value in headers.items()
        ),
        payload,
    ),
    st.dictionaries(names, header_values, max_size=5),
    st.binary(max_size=200),
)


@given(st.lists(messages, max_size=5), st.data())
def test_any_cut_gives_what_botocore_gives(
    given_messages: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(given_messages)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=30).map(sorted))
    chunks = [stream[a:b] for a, b in itertools.pairwise([0, *cuts, len(stream)])]
    assert decode(*chunks) == (decode_with_botocore(stream), True)


def test_every_flipped_bit_is_noticed() -> None:
    before, broken = INITIAL_RESPONSE, records_event([1], 1)
    for bit in range(len(broken) * 8):
        flipped = bytearray(broken)
        flipped[bit // 8] ^= 1 << bit % 8
        decoder = EventStreamDecoder()
        assert len(list(decoder.feed(before))) == 1
        with pytest.raises(CorruptEventStreamError):
            list(decoder.feed(bytes(flipped)))


@given(st.binary(min_size=12, max_size=200))
def test_anything_else_is_an_error(data: bytes) -> None:
    with pytest.raises(CorruptEventStreamError):
        decode(data)


def prelude(total: int, headers: int) -> bytes:
    """With a right checksum, so that nothing else is wrong."""
    import zlib  # noqa: PLC0415

    lengths = struct.pack("!II", total, headers)
    return lengths + struct.pack("!I", zlib.crc32(lengths))


@pytest.mark.parametrize(
    ("total", "headers"),
    [
        (2**32 - 1, 0),
        (16 + 24 * 1024 * 1024 + 1, 0),
        (2**20, 128 * 1024 + 1),
        (15, 0),
        (0, 0),
        (20, 5),
        (16, 2**32 - 1),
    ],
)
def test_lengths_that_no_message_has(total: int, headers: int) -> None:
    with pytest.raises(CorruptEventStreamError, match=f"{total} bytes, {headers} of them"):
        decode(prelude(total, headers))


@pytest.mark.parametrize(
    ("total", "headers"),
    [
        (16, 0),
        (16 + 128 * 1024, 128 * 1024),
        (16 + 128 * 1024 + 24 * 1024 * 1024, 128 * 1024),
        (16 + 7, 7),
    ],
)
def test_lengths_that_a_message_may_have(total: int, headers: int) -> None:
    decoder = EventStreamDecoder()
    assert not list(decoder.feed(prelude(total, headers)))
    assert decoder.missing == total - 12


def test_the_longest_message_may_come_and_costs_nothing_before_it_does() -> None:
    decoder = EventStreamDecoder()
    tracemalloc.start()
    try:
        assert not list(decoder.feed(prelude(16 + 24 * 1024 * 1024, 0)))
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@given(st.lists(messages, min_size=1, max_size=4))
def test_a_reader_of_the_missing_bytes_copies_no_message(given_messages: list[bytes]) -> None:
    stream, decoder = io.BytesIO(b"".join(given_messages)), EventStreamDecoder()
    ends = list(itertools.accumulate(map(len, given_messages)))
    for end in ends:
        assert not list(decoder.feed(stream.read(decoder.missing)))
        rest = stream.read(decoder.missing)
        (message,) = decoder.feed(rest)
        assert message.payload.obj is rest
        assert stream.tell() == end
    assert decoder.is_between_messages


@given(messages, st.data())
def test_the_missing_bytes_are_those_up_to_the_end_of_the_prelude_or_the_message(
    message: bytes, data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(message) - 1))
    decoder = EventStreamDecoder()
    assert not list(decoder.feed(message[:length]))
    assert decoder.missing == (12 if length < 12 else len(message)) - length


@pytest.mark.parametrize(
    "headers",
    [
        b"\5name",  # ends before the type
        b"\5nam",  # ends in the name
        b"\1n\7\0\5abc",  # ends in the text
        b"\1n\7\0",  # ends in its length
        b"\1n\x04\0\0",  # ends in a number
        b"\1n\x09" + bytes(15),
        b"\1n\x0a\0",  # no such type
        b"\1\xff\0",  # a name that is no text
        b"\1n\7\0\1\xff",  # a text that is none
        b"\1n\0\1n\0",  # the same twice
    ],
)
def test_broken_headers_are_an_error(headers: bytes) -> None:
    with pytest.raises(CorruptEventStreamError, match=r"[Hh]eader"):
        decode(framed(headers, b"{}"))
