"""Opening aggregated records: what is one, what is malformed, and in which portions."""

from __future__ import annotations

import pytest

from sparkinesis import aggregate
from sparkinesis.stream.kpl import envelope
from sparkinesis.stream.kpl.envelope import (
    are_sound,
    chunks,
    count_user_records,
    is_in_proportion,
    message_of,
    messages_of,
    open_message,
    open_sound,
    user_records_of,
)
from sparkinesis.stream.page import Record
from tests.unit.stream.kpl.aggregates import sealed
from tests.unit.stream.kpl.test_objects import objects
from tests.unit.stream.kpl.test_unpack import by_the_runtime


def record(data: bytes) -> Record:
    return Record(data=data, partition_key="k", sequence_number="1")


def aggregated(*data: bytes) -> bytes:
    (blob,) = aggregate([("key", None, one) for one in data])
    return blob.data


def test_a_message_has_the_right_digest() -> None:
    data = aggregated(b"a", b"b")
    message = message_of(data)
    assert message is not None
    opened = open_sound(message)
    assert opened is not None
    assert (opened.partition_keys, len(opened.messages)) == ([b"key"], 2)
    assert user_records_of(message) == ([b"a", b"b"], ["key"], [0, 0], [], [])
    assert message_of(data[:-1] + bytes([data[-1] ^ 1])) is None
    assert message_of(b"plain, and long enough to be an aggregate") is None
    assert message_of(b"\x00" + data[1:]) is None, "the digest alone makes no aggregate"


@pytest.mark.parametrize("message", [b"", b"\xff" * 9, b"\x0a\x02\xff\xfe\x1a\x02\x1a\x00"])
def test_a_message_without_user_records_or_with_bytes_as_keys_is_malformed(message: bytes) -> None:
    assert open_sound(memoryview(message)) is None
    assert user_records_of(memoryview(message)) is None


def test_a_message_without_user_records_is_no_aggregate() -> None:
    """It would give no row, and its record would be lost."""
    for message in (b"", b"\x0a\x01k"):
        assert open_message(memoryview(message)) is None


def test_keys_may_multiply_a_message_only_so_often() -> None:
    assert is_in_proportion(171, 4)
    assert not is_in_proportion(172, 4)
    assert are_sound(["a" * 171, "b"], 1, 4)
    assert not are_sound(["b", "1" * 172], 1, 4)
    assert not are_sound(["a"], 0, 4), "without user records"
    assert not are_sound(["a", b"\xff"], 1, 4)  # type: ignore[list-item]
    assert are_sound([], 1_000, 1), "without keys"
    for length, is_sound in ((450, True), (451, False)):
        table = b"\x0a" + bytes([length & 0x7F | 0x80, length >> 7]) + b"k" * length
        message = table + bytes.fromhex("1a0408001a00") * 100
        assert (open_sound(memoryview(message)) is not None) is is_sound
        assert (user_records_of(memoryview(message)) is not None) is is_sound


A, B, BOTH = b"\x08\x00", b"\x10\x00", b"\x08\x00\x10\x00"
DATA = b"\x1a\x01d"
SHAPES = {
    "usual": ([A + DATA, A + DATA], True),
    "each with a hash key": ([BOTH + DATA, BOTH + DATA], True),
    "tags, other fields and another order": (
        [DATA + b"\x22\x03\x0a\x01t" + BOTH, B + b"\x28\x01" + DATA + A],
        True,
    ),
    "one with a hash key": ([BOTH + DATA, A + DATA], False),
    "data twice, and none": ([A + DATA + DATA, A], False),
    "a key twice, and none": ([A + A + DATA, DATA], False),
    "a hash key twice, and none": ([BOTH + B + DATA, A + DATA], False),
    "a hash key twice, and one": ([BOTH + B + DATA, BOTH + DATA], False),
    "all twice": ([(BOTH + DATA) * 2] * 2, False),
    "two keys in one field": ([A + b"\x0a\x02\x00\x00" + DATA, A + DATA], False),
    "a hash key in another form": ([A + b"\x12\x01\x00" + DATA, A + DATA], False),
    "a key in another form": ([b"\x0a\x01\x00" + DATA, A + DATA], False),
}


@pytest.mark.parametrize("name", SHAPES)
def test_only_user_records_with_one_of_each_field_are_read_in_bulk(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All others are looked at one by one: the lists of fields do not tell whose each is."""
    users, is_bulk = SHAPES[name]
    looked_at: list[memoryview] = []
    was = envelope._one_by_one

    def one_by_one(message: memoryview) -> envelope._Fields:
        looked_at.append(message)
        return was(message)

    monkeypatch.setattr(envelope, "_one_by_one", one_by_one)
    message = b"\x0a\x01k\x12\x019" + b"".join([b"\x1a%c%s" % (len(u), u) for u in users])
    record = sealed(message)
    assert objects([record]) == by_the_runtime(record, 0)
    assert bool(looked_at) is not is_bulk


def test_user_records_are_counted_one_for_whatever_is_no_aggregate() -> None:
    data = aggregated(b"a", b"b", b"c")
    assert count_user_records(map(record, [b"x", data, data[:-1] + b"\x00", b""])) == [1, 3, 1, 1]


def test_many_bytes_are_opened_by_two_threads_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [record(aggregated(b"%d" % n * 4_000)) for n in range(90)]
    assert sum(len(one.data) for one in records) > 1 << 18
    records.append(record(b"plain"))
    assert messages_of(records) == [message_of(one.data) for one in records]
    monkeypatch.delattr(envelope, "_thread_pool")
    assert messages_of(records[:3]) == [message_of(one.data) for one in records[:3]], "by no other"


def test_chunks_are_as_large_as_asked_and_cover_all() -> None:
    records = [record(b"x" * size) for size in (3, 3, 4, 9, 0, 1)]
    assert list(chunks(records, 6)) == [(0, 2), (2, 4), (4, 6)]
    assert list(chunks(records, 7)) == [(0, 3), (3, 4), (4, 6)]
    assert list(chunks([], 6)) == [(0, 0)]
    records = [record(b"x" * size) for size in (6, 5, 1, 1)]
    assert list(chunks(records, 6)) == [(0, 1), (1, 3), (3, 4)], "each counts its own"
