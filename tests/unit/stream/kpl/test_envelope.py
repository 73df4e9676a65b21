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
)
from sparkinesis.stream.page import Record


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
    assert message_of(data[:-1] + bytes([data[-1] ^ 1])) is None
    assert message_of(b"plain, and long enough to be an aggregate") is None
    assert message_of(b"\x00" + data[1:]) is None, "the digest alone makes no aggregate"


@pytest.mark.parametrize("message", [b"", b"\xff" * 9, b"\x0a\x02\xff\xfe\x1a\x02\x1a\x00"])
def test_a_message_without_user_records_or_with_bytes_as_keys_is_malformed(message: bytes) -> None:
    assert open_sound(memoryview(message)) is None


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
