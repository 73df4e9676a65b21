"""Entries land in their shards, with every user record once and in order; a queue calls for them.

Its calls are within their limits and in the order of each lane, and it loses nothing.
"""

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
    MAX_CALL_SIZE,
    PutEntry,
    PutQueue,
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


lanes = st.one_of(st.none(), st.sampled_from("abc"))
DATA = {size: bytes(size) for size in (0, 1, 1000, 1 << 20, 3 << 20, 6 << 20)}
sizes = st.sampled_from(list(DATA))


def entry(number: int, lane: str | None, size: int = 0) -> PutEntry:
    return PutEntry(f"{number}", None, DATA[size], (), lane)


@settings(deadline=None)
@given(
    st.lists(st.tuples(lanes, sizes), max_size=60),
    st.integers(0, 700),
    st.randoms(use_true_random=True),
)
def test_every_entry_goes_out_until_accepted_within_limits_and_in_order(rows, small, rng) -> None:  # type: ignore[no-untyped-def]
    entries = [entry(n, lane, size) for n, (lane, size) in enumerate(rows)]
    entries += [entry(len(rows) + n, None) for n in range(small)]
    queue = PutQueue()
    queue.add(entries)
    taken: list[list[PutEntry]] = []
    stored: list[PutEntry] = []
    now = 0.0
    while queue or taken:
        call = queue.take(now)
        if call:
            assert len(call) <= 500
            assert len(call) == 1 or sum(e.size for e in call) <= MAX_CALL_SIZE
            taken.append(call)
            under_way = [e.lane for calls in taken for e in calls if e.lane is not None]
            assert len(under_way) == len(set(under_way))
        if taken and (not call or rng.random() < 0.5):
            answered = taken.pop(rng.randrange(len(taken)))
            refused = []
            for e in answered:
                if rng.random() < 0.3:
                    refused.append(e)
                else:
                    stored.append(e)
                    queue.accepted(e)
            if refused:
                queue.refused(refused, now, lambda _: 1.0)
        elif not call:
            now = queue.next_due() or now
    assert sorted(map(id, stored)) == sorted(map(id, entries))
    assert queue.size == 0
    for lane in "abc":
        assert [e for e in stored if e.lane == lane] == [e for e in entries if e.lane == lane]


def test_refused_entries_wait_for_the_pause_of_the_least_refused_of_them_then_go_first() -> None:
    queue = PutQueue()
    unlucky, fresh, other = entry(1, None), entry(2, None), entry(3, None)
    unlucky.attempts = 5
    queue.add([unlucky, fresh])
    queue.refused(queue.take(0.0), 10.0, lambda attempt: [2.0, 100.0][attempt])
    queue.add([other])
    assert queue.next_due() == 12.0
    assert [unlucky.attempts, fresh.attempts] == [6, 1]
    assert len(queue) == 3
    queue_now = queue.take(12.0)
    assert queue_now == [unlucky, fresh, other]


def test_until_the_pause_is_over_only_others_go() -> None:
    queue = PutQueue()
    queue.add([entry(1, "a"), entry(2, "a"), entry(3, None)])
    first = queue.take(0.0)
    assert [e.partition_key for e in first] == ["1", "3"]
    queue.accepted(first[1])
    queue.refused(first[:1], 0.0, lambda _: 1.0)
    assert queue.take(0.9) == []
    assert queue.take(1.0) == first[:1]
    assert queue.take(2.0) == []


def test_what_is_taken_out_for_packing_anew_is_in_the_order_of_its_lane() -> None:
    queue = PutQueue()
    queue.add([entry(1, "a"), entry(2, "a"), entry(3, "b"), entry(4, "a"), entry(5, "b")])
    queue.refused(queue.take(0.0), 0.0, lambda _: 1.0)
    found = [(e.lane, e.partition_key) for e in queue.take_all()]
    assert [key for lane, key in found if lane == "a"] == ["1", "2", "4"]
    assert [key for lane, key in found if lane == "b"] == ["3", "5"]
    assert not queue
    assert queue.size == 0
    assert queue.next_due() is None
