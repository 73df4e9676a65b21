"""User records as objects: the same as those in columns, for any aggregate, sound or not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparkinesis.stream.kpl import envelope
from sparkinesis.stream.kpl.objects import estimate_unpacked, make_objects
from sparkinesis.stream.kpl.pack import OutgoingRecord, aggregate
from sparkinesis.stream.page import Record
from sparkinesis.stream.reading.arrow import to_arrow_within
from sparkinesis.stream.shard import MAX_HASH_KEY
from tests.examples import examples
from tests.unit.stream.kpl.aggregates import (
    GOLDEN,
    GOLDEN_MESSAGE,
    Row,
    raw,
    rows,
    sealed,
)
from tests.unit.stream.kpl.test_unpack import (
    PLAIN,
    field,
    messages,
)

SHARD = "shardId-000000000003"
Made = tuple[bytes, str | None, str, int, float | None, str | None, str]


def made(*values: object) -> Made:
    return values  # type: ignore[return-value]


def objects(records: list[Record]) -> list[Row]:
    """The rows of `rows`, from objects. The sequence numbers are the records' places."""
    numbered = [replace(record, sequence_number=str(place)) for place, record in enumerate(records)]
    found, dropped = make_objects(numbered, made, SHARD)
    assert dropped == 0
    assert {shard for *_, shard in found} <= {SHARD}
    for _, _, place, _, arrival, _, _ in found:
        assert arrival == records[int(place)].approximate_arrival_timestamp
    return [
        (int(number), key, data, sub, hash_key) for data, key, number, sub, _, hash_key, _ in found
    ]


def test_cut_short_or_changed_anywhere_it_is_what_columns_make_of_it() -> None:
    records = [
        Record(data=GOLDEN.data[:length], partition_key="outer", sequence_number="7")
        for length in range(len(GOLDEN.data))
    ]
    records += [sealed(GOLDEN_MESSAGE[:length]) for length in range(len(GOLDEN_MESSAGE))]
    for bit in range(8 * len(GOLDEN_MESSAGE)):
        message = bytearray(GOLDEN_MESSAGE)
        message[bit // 8] ^= 1 << bit % 8
        records.append(sealed(bytes(message)))
    assert objects(records) == rows(records)


def test_a_key_that_would_expand_without_bound_is_raw() -> None:
    for users in ("1a0408001a00", "120139 1a0608001000 1a00"):
        bomb = sealed(field(0x0A, b"k" * 100_000) + bytes.fromhex(users) * 20_000)
        assert objects([bomb]) == rows([bomb]) == raw(bomb)


def test_a_large_page_is_the_same_by_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "_MIN_SIZE_FOR_THREAD", 10_000)
    users: list[OutgoingRecord] = [(f"k{n % 7}", None, b"%d" % n) for n in range(40_000)]
    records = [
        Record(data=blob.data, partition_key="outer", sequence_number="1")
        for blob in aggregate(users, 20_000)
    ]
    assert sum(len(record.data) for record in records) > 300_000
    assert [(key, None, data) for _, key, data, _, _ in objects(records)] == users
    assert objects(records) == rows(records)


pages = st.lists(
    st.one_of(
        st.just(PLAIN),
        st.just(Record(data=b"bare", sequence_number="9")),
        messages.map(sealed),
        st.lists(
            st.tuples(
                st.sampled_from(["a", "b", "c"]),
                st.sampled_from([None, None, "5", "50", str(MAX_HASH_KEY)]),
                st.binary(max_size=3),
            ),
            min_size=1,
            max_size=5,
        ).map(lambda users: packed_as(next(aggregate(users)).data)),
    ),
    max_size=6,
)


def packed_as(data: bytes) -> Record:
    return Record(data=data, partition_key="a", sequence_number="3")


@settings(max_examples=examples(60), deadline=None)
@given(
    pages,
    st.sampled_from([None, (0, 10), (0, MAX_HASH_KEY), (0, MAX_HASH_KEY // 2), (40, 60)]),
    st.booleans(),
)
def test_objects_and_columns_agree_with_any_hash_range(
    records: list[Record], hash_range: tuple[int, int] | None, deaggregate: bool
) -> None:
    found, dropped = make_objects(
        records, made, SHARD, deaggregate=deaggregate, hash_range=hash_range
    )
    columns, dropped_from_columns = to_arrow_within(
        records, hash_range, stream="s", shard_id=SHARD, deaggregate=deaggregate
    )
    assert dropped == dropped_from_columns
    names = ["data", "partitionKey", "sequenceNumber", "subSequenceNumber"]
    names += ["explicitHashKey", "shardId"]
    assert [(*row[:4], *row[5:]) for row in found] == [
        tuple(row[name] for name in names) for row in columns.to_pylist()
    ]


def test_the_estimate_of_a_page_is_near() -> None:
    users: list[OutgoingRecord] = [(f"key-{n % 10}", "123", b"x" * (n % 50)) for n in range(5000)]
    records = [
        Record(data=blob.data, partition_key="outer", sequence_number="1")
        for blob in aggregate(users, 5_000)
    ]
    assert len(records) > 10
    estimate = estimate_unpacked(records)
    assert estimate.rows == pytest.approx(5000, rel=0.1)
    assert estimate.keys == pytest.approx(5000 * (5 + 3), rel=0.1)
    assert estimate_unpacked([GOLDEN, sealed(b"\xff\xff")]) == (4, 3 * (2 + 1))
    assert estimate_unpacked([]) == (0, 0)
