"""Aggregated records made to harm: read as by the protobuf runtime, in bounded time and space."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.stream.kpl.messages import AggregatedRecord
from tests.examples import examples
from tests.unit.stream.kpl.aggregates import raw, rows, sealed
from tests.unit.stream.kpl.test_unpack import by_the_runtime, field, varint

USER = field(0x1A, bytes.fromhex("08001a0141"))
KEY = field(0x0A, b"k")


def group(number: int, inside: bytes) -> bytes:
    return varint(number << 3 | 3) + inside + varint(number << 3 | 4)


def nested(depth: int) -> bytes:
    inside = b""
    for _ in range(depth):
        inside = field(0x22, inside)
    return inside


# What the format does not have, and what a parser has to find its way through.
unknown = st.recursive(
    st.one_of(
        st.builds(lambda n, v, p: varint(n << 3) + varint(v, p), st.integers(4, 2**29 - 1),
                  st.integers(0, 2**64 - 1), st.integers(0, 6)),
        st.builds(lambda n, v: varint(n << 3 | 1) + v, st.integers(4, 99), st.binary(max_size=9)),
        st.builds(lambda n, v: varint(n << 3 | 5) + v, st.integers(4, 99), st.binary(max_size=5)),
        st.builds(lambda n, v: varint(n << 3 | 2) + varint(v), st.integers(1, 9),
                  st.integers(0, 2**64 - 1)),
        st.sampled_from([b"\x00", b"\x07", b"\x06", b"\x0b", b"\x0c", b"\x1b", b"\xff" * 11]),
    ),
    lambda inner: st.one_of(
        st.builds(group, st.integers(1, 30), inner),
        st.builds(lambda n, i: varint(n << 3 | 2) + varint(len(i)) + i, st.integers(4, 99), inner),
    ),
)  # fmt: skip
inside = st.lists(
    st.one_of(
        unknown,
        st.just(bytes.fromhex("0800")),
        st.just(bytes.fromhex("1a0141")),
        st.builds(lambda n: b"\x10" + varint(n), st.integers(0, 2**64 - 1)),
        st.builds(lambda n: b"\x08" + varint(n), st.integers(0, 2**64 - 1)),
    ),
    max_size=5,
).map(b"".join)
parts = st.one_of(
    unknown,
    st.just(USER),
    st.just(KEY),
    inside.map(lambda user: field(0x1A, user)),
    st.sampled_from(["", "-1", "x", str(2**128), "9" * 300]).map(
        lambda key: field(0x12, key.encode())
    ),
    st.binary(max_size=4).map(lambda key: field(0x0A, key)),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(parts, max_size=6).map(b"".join))
def test_whatever_is_in_it_is_what_the_runtime_reads(message: bytes) -> None:
    good, bad = sealed(KEY + USER), sealed(message)
    assert rows([good, bad, good]) == [
        (0, "k", b"A", 0, None),
        *by_the_runtime(bad, 1),
        (2, "k", b"A", 0, None),
    ]


SIZE = 1 << 20
BOMBS = {
    "groups in groups": group(9, b"") * 3 + b"\x4b" * (SIZE // 2) + b"\x4c" * (SIZE // 2),
    "fields in fields": nested(20_000),
    "keys without records": field(0x0A, b"") * (SIZE // 2),
    "a length of all there is": b"\x1a" + varint(2**63),
    "varints without end": b"\x08" + b"\xff" * SIZE,
    "tags of one record": KEY
    + field(0x1A, bytes.fromhex("08001a0141") + field(0x22, field(0x0A, b"t")) * (SIZE // 6)),
    "the same field for ever": KEY + field(0x1A, bytes.fromhex("0800") * (SIZE // 2)),
    "indexes out of range": KEY + field(0x1A, bytes.fromhex("08011a00")) * (SIZE // 6),
    "the last index out of range": KEY
    + field(0x1A, bytes.fromhex("08001a00")) * (SIZE // 6)
    + field(0x1A, bytes.fromhex("08011a00")),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_megabyte_of_harm_takes_time_and_space_like_any_megabyte(name: str) -> None:
    bomb = sealed(BOMBS[name])
    tracemalloc.start()
    began = time.process_time()
    try:
        found = rows([bomb])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Traced allocation is slow: a second is common, minutes would be wrong.
    assert time.process_time() - began < 30
    assert peak < 300 * len(bomb.data)
    aggregate = AggregatedRecord()
    if name == "tags of one record":
        aggregate.ParseFromString(BOMBS[name])
        assert found == [(0, "k", b"A", 0, None)]
    else:
        assert found == raw(bomb)
