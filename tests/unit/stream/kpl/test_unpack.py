"""Aggregated records: every user record comes out, in order, and nothing is lost to damage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparkinesis.stream.kpl import unpack as aggregation
from sparkinesis.stream.kpl.message_types import AggregatedRecord
from sparkinesis.stream.kpl.pack import OutgoingRecord, aggregate
from sparkinesis.stream.kpl.unpack import deaggregate
from sparkinesis.stream.page import Record
from tests.examples import examples
from tests.unit.stream.kpl.aggregates import (
    GOLDEN,
    GOLDEN_MESSAGE,
    GOLDEN_ROWS,
    Row,
    raw,
    rows,
    sealed,
)


def field(tag: int, value: bytes) -> bytes:
    return bytes([tag]) + varint(len(value)) + value


def varint(value: int, padding: int = 0) -> bytes:
    """A protobuf varint, longer than needed by ``padding`` bytes."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


PLAIN = Record(
    data=b"plain", partition_key="key", sequence_number="8", approximate_arrival_timestamp=2.5
)


MALFORMED = {
    "empty message": "",
    "no records": "0a016b",
    "key index too high": "0a016b 1a0508011a0141",
    "no key table": "1a0508001a0141",
    "no hash key table": "0a016b 1a07080010001a0141",
    "no hash key table, hash key first": "0a016b 1a07100008001a0141",
    "hash key index too high": "0a016b 120139 1a07080010011a0141",
    "second index too high": "0a016b 1a0508001a0141 1a0508011a0142",
    "index of 2**64-1": "0a016b 1a0e08ffffffffffffffffff011a0141",
    "hash key index of 2**64-1": "0a016b 120139 1a10080010ffffffffffffffffff011a0141",
    "key index missing": "0a016b 1a031a0141",
    "data missing": "0a016b 1a020800",
    "data of the second missing": "0a016b 1a0508001a0141 1a020800",
    "empty record": "0a016b 1a00",
    "data too long for record": "0a016b 1a0508001a0241",
    "tag without key": "0a016b 1a070800 1a0141 2200",
    "key not UTF-8": "0a01ff 1a0508001a0141",
    "key not UTF-8, unused": "0a016b 0a01ff 1a0508001a0141",
    "hash key not UTF-8": "0a016b 1201ff 1a0508001a0141",
    # A number of five bytes whose last looks like the tag of the data that would follow.
    "key index of 33 bits": "0a016b 1a0808808080801a0141",
    "hash key index of 33 bits": "0a016b 120139 1a0a080010808080801a0141",
    "no protobuf": "ffffff",
}
UNUSUAL = {
    "table after records": "1a0508001a0141 0a016b",
    "data before key": "0a016b 1a051a01410800",
    "long varint": "0a016b 1a060880001a0141",
    "a tag": "0a016b 1a0a08001a014122030a0174",
    "unknown field": "0a016b 1a0708001a01412801",
    "unknown field of the aggregate": "0a016b 1a0508001a0141 2801",
    "data twice: the last": "0a016b 1a0808001a01421a0141",
    "a hash key that no record has": "0a016b 120139 1a0508001a0141",
}


class TestDeaggregate:
    def test_golden_bytes_and_nothing(self) -> None:
        assert rows([GOLDEN]) == GOLDEN_ROWS
        assert rows([]) == []

    def test_a_record_without_a_key_is_delivered_with_none(self) -> None:
        bare = Record(data=b"bare", sequence_number="9")
        broken = Record(data=GOLDEN.data[:-1] + b"?", sequence_number="9")
        packed = Record(data=GOLDEN.data, sequence_number="9")
        assert rows([bare, packed, broken, PLAIN]) == [
            (0, None, b"bare", 0, None),
            *((1, *row[1:]) for row in GOLDEN_ROWS),
            (2, None, broken.data, 0, None),
            *raw(PLAIN, 3),
        ]

    def test_a_plain_record_that_looks_like_a_user_record_is_plain(self) -> None:
        users = [bytes.fromhex("0801 1000 1a0141"), bytes.fromhex("0801 1a0141")]
        plain = [Record(data=user, partition_key="p", sequence_number="9") for user in users]
        assert rows([GOLDEN, *plain, GOLDEN]) == [
            *GOLDEN_ROWS,
            *raw(plain[0], 1),
            *raw(plain[1], 2),
            *((3, *row[1:]) for row in GOLDEN_ROWS),
        ]

    def test_cut_short_anywhere_it_is_delivered_as_it_is(self) -> None:
        for length in range(len(GOLDEN.data)):
            cut = replace(GOLDEN, data=GOLDEN.data[:length])
            assert rows([cut]) == raw(cut), length

    def test_any_flipped_bit_is_delivered_as_it_is(self) -> None:
        for bit in range(8 * len(GOLDEN.data)):
            data = bytearray(GOLDEN.data)
            data[bit // 8] ^= 1 << bit % 8
            flipped = replace(GOLDEN, data=bytes(data))
            assert rows([flipped]) == raw(flipped), bit

    @pytest.mark.parametrize("name", MALFORMED)
    def test_malformed_is_raw_and_spares_its_neighbours(self, name: str) -> None:
        bad = sealed(bytes.fromhex(MALFORMED[name]))
        good = [(2, *row[1:]) for row in GOLDEN_ROWS]
        assert rows([PLAIN, bad, GOLDEN]) == [*raw(PLAIN, 0), *raw(bad, 1), *good]
        assert rows([GOLDEN, PLAIN, bad]) == [*GOLDEN_ROWS, *raw(PLAIN, 1), *raw(bad, 2)]

    @pytest.mark.parametrize("name", UNUSUAL)
    def test_unusual_but_sound_is_unpacked(self, name: str) -> None:
        unusual = sealed(bytes.fromhex(UNUSUAL[name]))
        assert rows([GOLDEN, unusual]) == [*GOLDEN_ROWS, (1, "k", b"A", 0, None)]

    def test_the_longest_keys_with_the_smallest_records_are_unpacked(self) -> None:
        key = "\U0001f600" * 256
        message = field(0x0A, key.encode()) + bytes.fromhex("1a0408001a00") * 1000
        assert rows([sealed(message)]) == [(0, key, b"", n, None) for n in range(1000)]

    @pytest.mark.parametrize("more", [0, 1])
    @pytest.mark.parametrize(
        ("tables", "longest", "user"),
        [
            (lambda key: field(0x0A, key), 450, "1a0408001a00"),
            (lambda key: field(0x0A, b"k") + field(0x12, key), 601, "1a06080010001a00"),
        ],
        ids=["partition key", "hash key"],
    )
    def test_a_key_may_be_repeated_only_so_often(
        self, tables: Callable[[bytes], bytes], longest: int, user: str, more: int
    ) -> None:
        """Else a record could make more columns than the memory holds."""
        message = tables(b"9" * (longest + more)) + bytes.fromhex(user) * 100
        packed = sealed(message)
        found = rows([PLAIN, packed, PLAIN])
        assert found[0] + found[-1] == (0, *raw(PLAIN)[0][1:], 2, *raw(PLAIN)[0][1:])
        assert found[1:-1] == raw(packed, 1) if more else len(found) == 102

    def test_no_records_give_columns_of_the_same_types(self) -> None:
        none, one = deaggregate([]), deaggregate([GOLDEN])
        for each in fields(none):
            column = getattr(none, each.name)
            assert len(column) == 0
            assert column.type == getattr(one, each.name).type

    def test_user_records_of_aggregates_are_told_from_plain_ones_and_filtered(self) -> None:
        columns = deaggregate([PLAIN, GOLDEN])
        assert columns.is_packed.to_pylist() == [False, True, True, True]
        kept = columns.filter(pa.array([True, False, True, False]))
        assert kept.data.to_pylist() == [b"plain", b"BC"]
        assert kept.partition_key.to_pylist() == ["key", "k2"]
        assert kept.explicit_hash_key.to_pylist() == [None, "9"]
        assert kept.sub_sequence_number.to_pylist() == [0, 1]
        assert kept.source.to_pylist() == [0, 1]


def test_only_many_bytes_are_unpacked_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts are copied once more."""
    large = Record(data=b"x" * aggregation._CHUNK_SIZE, partition_key="k", sequence_number="9")
    expected = [*raw(large, 0), *((1, *row[1:]) for row in GOLDEN_ROWS)]
    assert rows([large, GOLDEN]) == expected
    assert len(rows([large])) == 1
    monkeypatch.delattr(aggregation, "JoinedBinary")
    assert rows([large]) == raw(large)
    assert rows([GOLDEN, PLAIN, large]) == [*GOLDEN_ROWS, *raw(PLAIN, 1), *raw(large, 2)]
    with pytest.raises(NameError):
        rows([large, GOLDEN])


def test_usual_aggregates_do_without_the_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are unpacked in bulk, whatever the number of their keys and the size of their data."""
    users: list[OutgoingRecord] = [
        (f"key {n % 300}", str(n % 200) if n % 3 else None, b"d" * (n * 7 % 200))
        for n in range(900)
    ]
    users += [(f"{n}", None, b"") for n in range(17_000)]
    (blob,) = aggregate([*users, ("large", None, b"x" * 20_000)], 1 << 20)
    monkeypatch.delattr(aggregation, "_canonical")
    packed = Record(data=blob.data, partition_key="outer", sequence_number="1")
    found = rows([PLAIN, packed, PLAIN])
    assert [(key, hash_key, data) for _, key, data, _, hash_key in found[1:-1]] == [
        *users,
        ("large", None, b"x" * 20_000),
    ]
    assert [found[0], found[-1]] == [*raw(PLAIN, 0), *raw(PLAIN, 2)]
    assert rows([PLAIN, GOLDEN])[1:] == [(1, *row[1:]) for row in GOLDEN_ROWS]


def test_a_base_install_has_no_numpy() -> None:
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from tests.unit.stream.kpl.aggregates import GOLDEN, GOLDEN_ROWS, rows\n"
        "assert rows([GOLDEN]) == GOLDEN_ROWS"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[4])


# Messages near the format: sound ones, unusual ones, and broken ones.

small = st.integers(0, 3) | st.integers(125, 130)
user_record_fields = st.one_of(
    st.builds(lambda n, pad: b"\x08" + varint(n, pad), small, st.integers(0, 5)),
    st.builds(lambda n, pad: b"\x10" + varint(n, pad), small, st.integers(0, 5)),
    st.binary(max_size=4).map(lambda data: field(0x1A, data)),
    st.binary(max_size=4).map(lambda key: field(0x22, field(0x0A, key))),
    st.binary(max_size=4).map(lambda data: field(0x32, data)),
    st.binary(max_size=3),
)
usual_user_records = st.builds(
    lambda key, hash_key, data: (
        b"\x08"
        + varint(key)
        + (b"" if hash_key is None else b"\x10" + varint(hash_key))
        + field(0x1A, data)
    ),
    small,
    st.none() | small,
    st.binary(max_size=200),
)
user_records = st.one_of(
    usual_user_records,
    usual_user_records,
    st.lists(user_record_fields, max_size=5).map(b"".join),
)
keys = st.text(max_size=3).map(lambda text: text.encode("utf-8", "replace"))
message_parts = st.one_of(
    (keys | st.binary(max_size=3)).map(lambda key: field(0x0A, key)),
    keys.map(lambda key: field(0x12, key)),
    user_records.map(lambda message: field(0x1A, message)),
    st.binary(max_size=3).map(lambda data: field(0x22, data)),
)
wide_tables = st.integers(126, 300).map(
    lambda count: b"".join(field(tag, b"%d" % n) for tag in (0x0A, 0x12) for n in range(count))
)
tables = wide_tables | st.builds(
    lambda keys, hash_keys: b"".join(
        [*(field(0x0A, key) for key in keys), *(field(0x12, key) for key in hash_keys)]
    ),
    st.lists(keys, min_size=3, max_size=4),
    st.lists(keys, min_size=3, max_size=4),
)
usual_messages = st.builds(
    lambda table, messages: table + b"".join(field(0x1A, message) for message in messages),
    tables,
    st.lists(usual_user_records, max_size=6),
)
odd_messages = st.builds(
    lambda table, parts: table + b"".join(parts), tables, st.lists(message_parts)
)
mutations = st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=2)


def mutated(message: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(message)
    for place, byte in changes:
        if changed:
            changed[place % len(changed)] = byte
    return bytes(changed)


messages = st.builds(mutated, usual_messages | odd_messages, mutations)


def by_the_runtime(record: Record, place: int) -> list[Row]:
    """What the protobuf runtime makes of an aggregated record with a right digest."""
    aggregate = AggregatedRecord()
    try:
        aggregate.ParseFromString(record.data[4:-16])
        keys = list(aggregate.partition_key_table)
        hash_keys = list(aggregate.explicit_hash_key_table)
    except (DecodeError, UnicodeDecodeError):
        return raw(record, place)
    if not aggregate.IsInitialized() or not aggregate.records:
        return raw(record, place)
    if any(isinstance(key, bytes) for key in keys + hash_keys):  # not UTF-8
        return raw(record, place)
    try:
        return [
            (
                place,
                keys[user.partition_key_index],
                user.data,
                sub,
                hash_keys[user.explicit_hash_key_index]
                if user.HasField("explicit_hash_key_index")
                else None,
            )
            for sub, user in enumerate(aggregate.records)
        ]
    except IndexError:
        return raw(record, place)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(messages, max_size=5), st.sampled_from([1, 100, 1 << 20]))
@example([GOLDEN_MESSAGE], 1)
def test_any_message_gives_what_the_protobuf_runtime_makes_of_it(
    found: list[bytes], chunk_size: int
) -> None:
    records = [PLAIN, *(sealed(message) for message in found), GOLDEN]
    expected = raw(PLAIN, 0)
    for place, record in enumerate(records[1:], 1):
        expected += by_the_runtime(record, place)
    with patch.object(aggregation, "_CHUNK_SIZE", chunk_size):
        assert rows(records) == expected
