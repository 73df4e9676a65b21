"""The headers of encoded user records, read in bulk: right in the usual form, and refused else."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparkinesis.stream.kpl.wire import read_headers
from tests.unit.stream.kpl.test_unpack import field, varint

User = tuple[int, int | None, int, int]
"""Key index, hash key index, bytes that its number is longer than needed, size of the data."""

indexes = st.one_of(st.integers(0, 300), st.sampled_from((127, 128, 16383, 16384, 2**21 - 1)))
sizes = st.sampled_from((0, 1, 3, 10, 127, 128, 200, 16383, 16384))
users = st.tuples(indexes, st.none() | indexes, st.integers(0, 1), sizes)


def header(user: User) -> bytes:
    key, hash_key, padding, size = user
    hash_field = b"" if hash_key is None else b"\x10" + varint(hash_key, padding)
    return b"\x08" + varint(key) + hash_field + b"\x1a" + varint(size)


def message(user: User) -> bytes:
    return header(user) + b"\xff" * user[3]


def columns(messages: list[bytes], with_hash_keys: bool) -> list[tuple[object, ...]]:
    wire = pa.array(messages, pa.binary())
    read = read_headers(wire, with_hash_keys=with_hash_keys, most_keys=2**21)
    count = len(messages)
    hash_key = pa.nulls(count) if read.hash_key is None else read.hash_key
    size = pa.repeat(read.size, count) if isinstance(read.size, pa.Scalar) else read.size
    found = (read.is_usual, read.key, hash_key, size)
    return list(zip(*(column.to_pylist() for column in found), strict=True))


@settings(deadline=None)
@given(st.lists(users, min_size=1, max_size=8))
@example([(5, None, 0, 200)] * 3)
@example([(2**21 - 1, 2**21 - 1, 1, 16384), (0, None, 0, 0)])
def test_any_mix_of_usual_messages(found: list[User]) -> None:
    assert columns([message(user) for user in found], with_hash_keys=True) == [
        (True, user[0], user[1], len(header(user))) for user in found
    ]


@pytest.mark.parametrize(("keys", "size"), [(127, 127), (127, 16000), (16383, 100), (16383, 16000)])
def test_headers_of_any_length_are_read_in_full(keys: int, size: int) -> None:
    """A header of up to 8 bytes is read as one word, a longer one as two."""
    user = (keys, keys, 0, size)
    wire = pa.array([message(user)], pa.binary())
    read = read_headers(wire, with_hash_keys=True, most_keys=keys)
    assert read.is_usual.to_pylist() == [True]
    assert pa.scalar(len(header(user)), pa.uint64()) == (
        read.size if isinstance(read.size, pa.Scalar) else read.size[0]
    )


@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(bytes.fromhex("1a0141 0800"), id="data before key"),
        pytest.param(bytes.fromhex("1000 0800 1a0141"), id="hash key before key"),
        pytest.param(bytes.fromhex("0800 0801 1a0141"), id="key twice"),
        pytest.param(bytes.fromhex("0800 1000 1001 1a0141"), id="hash key twice"),
        pytest.param(bytes.fromhex("0800 1a0141 2801"), id="unknown field"),
        pytest.param(b"\x08" + varint(0, 4) + field(0x1A, b"A"), id="key of 5 bytes"),
        pytest.param(b"\x08\x00\x10" + varint(0, 4) + field(0x1A, b"A"), id="hash key of 5 bytes"),
        pytest.param(b"\x08\x00\x1a" + varint(1, 4) + b"A", id="length of 5 bytes"),
        pytest.param(b"\x08" + b"\xff" * 20, id="number without end"),
        pytest.param(b"", id="empty"),
    ],
)
def test_other_forms_are_not_usual_and_spare_their_neighbours(encoded: bytes) -> None:
    usual = message((3, None, 0, 130))
    for with_hash_keys in (True, False):
        before, found, after = columns([usual, encoded, usual], with_hash_keys)
        assert before == after == (True, 3, None, 5)
        assert found[0] is False
