"""Packing for shards: every user record once, in order, in an entry that lands in its shard."""

from __future__ import annotations

import hashlib
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.stream.kpl.pack import OutgoingRecord
from sparkinesis.stream.kpl.unpack import deaggregate
from sparkinesis.stream.page import Record
from sparkinesis.stream.put_entry import (
    PutEntry,
    aggregated_entries,
    fitting_keys,
    plain_entries,
    why_refused,
)
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard, ShardMap, hash_key

QUARTER = (MAX_HASH_KEY + 1) // 4
SHARDS = ShardMap.of(
    [
        Shard("old", is_open=False, hash_range=(0, 2 * QUARTER - 1)),
        *(Shard(f"s{n}", hash_range=(n * QUARTER, (n + 1) * QUARTER - 1)) for n in (3, 1, 0, 2)),
    ]
)
records = st.lists(
    st.tuples(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12),
        st.none() | st.integers(0, MAX_HASH_KEY).map(str),
        st.binary(max_size=300),
    ),
    max_size=60,
)


def unpacked(entry: PutEntry) -> list[tuple[str, bytes]]:
    columns = deaggregate(
        [Record(data=entry.data, partition_key=entry.partition_key, sequence_number="1")]
    )
    return list(zip(columns.partition_key.to_pylist(), columns.data.to_pylist(), strict=True))


@settings(deadline=None)
@given(records, st.integers(64, 2000), st.booleans())
def test_each_shards_user_records_in_order_in_entries_that_land_there(
    given: list[OutgoingRecord], size: int, ordered: bool
) -> None:
    entries = aggregated_entries(given, SHARDS, size, ordered=ordered)
    for entry in entries:
        assert entry.shard == SHARDS.shard_of(
            hash_key(entry.partition_key, entry.explicit_hash_key)
        )
        assert entry.lane == (entry.shard if ordered else None)
        assert unpacked(entry) == [(key, data) for key, _, data in entry.members]
        assert len(entry.members) == 1 or len(entry.data) <= size
    found: dict[str | None, list[OutgoingRecord]] = {
        shard: [record for entry in group for record in entry.members]
        for shard, group in groupby(entries, key=lambda entry: entry.shard)
    }
    for number in range(4):
        shard = range(number * QUARTER, (number + 1) * QUARTER)
        wanted = [record for record in given if hash_key(record[0], record[1]) in shard]
        assert found.get(f"s{number}", []) == wanted


def test_a_record_too_large_for_an_aggregate_goes_alone_between_those_around_it() -> None:
    rows: list[OutgoingRecord] = [
        ("k", None, bytes([n]) * size) for n, size in enumerate((9, 9, 99, 9))
    ]
    entries = aggregated_entries(rows, SHARDS, 100, ordered=True)
    assert [len(entry.members) for entry in entries] == [2, 1, 1]
    assert [entry.partition_key for entry in entries] == ["a", "k", "k"]
    assert entries[1].data == rows[2][2]
    assert entries[0].explicit_hash_key == str(int.from_bytes(hashlib.md5(b"k").digest(), "big"))


def test_a_partition_key_is_a_lane_only_where_order_is_asked() -> None:
    rows: list[OutgoingRecord] = [("k", "7", b"1"), ("l", None, b"2")]
    assert [entry.lane for entry in plain_entries(rows, ordered=True)] == ["k", "l"]
    assert plain_entries([("", None, b"")], ordered=True)[0].lane is None
    assert [entry.lane for entry in plain_entries(rows, ordered=False)] == [None, None]


@pytest.mark.parametrize(("key", "size"), [("ü", 5), ("", 3)])
def test_an_entry_counts_its_data_and_the_bytes_of_its_key(key: str, size: int) -> None:
    assert plain_entries([(key, None, b"123")], ordered=False)[0].size == size


@pytest.mark.parametrize(
    ("keys", "why", "fitting"),
    [
        (("k", None), None, ("k", None)),
        (("k", "0"), None, ("k", "0")),
        (("\u00e4" * 256, str(2**128 - 1)), None, ("\u00e4" * 256, str(2**128 - 1))),
        (("", None), "has 0 characters", ("7", None)),
        (("x" * 257, None), "has 257 characters", ("x" * 256, None)),
        (("k", str(2**128)), "explicit hash key", ("k", None)),
        (("k", "1" * 5000), "explicit hash key", ("k", None)),
        (("k", "007"), "leading zeros", ("k", "7")),
        (("k", "-1"), "explicit hash key", ("k", None)),
        (("k", ""), "explicit hash key", ("k", None)),
        (("k", "\u0661"), "explicit hash key", ("k", None)),
    ],
)
def test_keys_that_kinesis_refuses_are_known_and_replaced(
    keys: tuple[str, str | None], why: str | None, fitting: tuple[str, str | None]
) -> None:
    found = why_refused(*keys)
    assert (found is None) == (why is None)
    assert (why or "") in (found or "")
    assert fitting_keys(*keys, instead="7") == fitting
    assert why_refused(*fitting) is None
