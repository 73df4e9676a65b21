"""Aggregated records made to harm: read as by the protobuf runtime, in bounded time and space."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from sparkinesis.stream.kpl.message_types import AggregatedRecord
from tests.unit.stream.kpl.aggregates import raw, rows, sealed
from tests.unit.stream.kpl.test_unpack import field, varint

USER = field(0x1A, bytes.fromhex("08001a0141"))
KEY = field(0x0A, b"k")


def group(number: int, inside: bytes) -> bytes:
    return varint(number << 3 | 3) + inside + varint(number << 3 | 4)


def nested(depth: int) -> bytes:
    inside = b""
    for _ in range(depth):
        inside = field(0x22, inside)
    return inside


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
