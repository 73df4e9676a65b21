"""What a sample of records shows of their producers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest

from sparkinesis import aggregate
from sparkinesis.monitor.doctor import record_checks
from sparkinesis.monitor.doctor.judge import State
from sparkinesis.monitor.doctor.record_checks import RecordSample, findings
from sparkinesis.stream.kpl.magic import MAGIC
from sparkinesis.stream.kpl.message_types import AggregatedRecord
from sparkinesis.stream.page import Record
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard, hash_key

EVERYTHING = Shard("shard", hash_range=(0, MAX_HASH_KEY))
OF_A = Shard("shard", hash_range=(hash_key("a", None), hash_key("a", None)))


def record(data: bytes, key: str = "outer") -> Record:
    return Record(data=data, partition_key=key, sequence_number="1")


def packed(users: Sequence[tuple[str, str | None, bytes]], key: str = "outer") -> Record:
    (one,) = aggregate(users, max_size=2**20)
    return record(one.data, key)


def without_checks(key: str, hash_key: str | None) -> Record:
    """An aggregate of one user record, by a packer that accepts any keys."""
    message = AggregatedRecord()
    message.partition_key_table.append(key)
    user = message.records.add(partition_key_index=0, data=b"1")
    if hash_key is not None:
        message.explicit_hash_key_table.append(hash_key)
        user.explicit_hash_key_index = 0
    body = message.SerializeToString()
    return record(MAGIC + body + hashlib.md5(body, usedforsecurity=False).digest())


def sample_of(records: Sequence[Record], shard: Shard = EVERYTHING) -> RecordSample:
    sample = RecordSample(shards=1, of_shards=1)
    sample.add(records, shard)
    return sample


def notes(sample: RecordSample) -> list[str]:
    """What is found beside what was read."""
    first, *others = findings("records s", sample)
    assert (first.state, first.mend) == (State.OK, "")
    assert {one.state for one in others} <= {State.NOTE}
    assert all(one.mend for one in others)
    assert ("nothing is wrong" in first.what) is (not others and sample.records > 0)
    return [one.what for one in others]


def test_records_that_are_well_are_counted() -> None:
    sample = sample_of([record(b"1"), record(b"2"), packed([("a", None, b"3"), ("b", None, b"4")])])
    assert notes(sample) == []
    (first,) = findings("records s", sample)
    assert first.what == (
        "read 3 records of 1 shard, of the last hour; 1 aggregate of 2 user records; nothing is "
        "wrong with them"
    )


def test_no_record_at_all_is_said() -> None:
    (first,) = findings("records s", RecordSample(shards=2, of_shards=300))
    assert first.what == "read 0 records of 2 shards of 300, of the last hour"


def test_an_aggregate_with_a_key_elsewhere_is_dropped_by_a_kcl_as_a_whole() -> None:
    users: list[tuple[str, str | None, bytes]] = [("a", None, b"1"), ("b", None, b"2")]
    (what,) = notes(sample_of([packed(users), packed([("a", None, b"3")], "x")], OF_A))
    assert what.startswith("aggregates with keys of other shards: 1, of 2 user records")
    assert notes(sample_of([packed(users)])) == []
    assert notes(sample_of([packed(users)], Shard("shard"))) == [], "its range is not known"


def test_an_explicit_hash_key_says_where_a_user_record_belongs() -> None:
    here = str(hash_key("a", None))
    assert notes(sample_of([packed([("b", here, b"1")])], OF_A)) == []
    assert notes(sample_of([packed([("a", "0", b"1")])], OF_A)) != []


def test_what_a_kpl_puts_again_is_said_with_the_option_that_drops_it() -> None:
    users = [(key, None, key.encode()) for key in "abc"]
    sample = sample_of([packed(users, "a")], OF_A)
    (what,) = notes(sample)
    assert what.startswith("user records of other shards, in aggregates of a KPL: 2")
    assert any("hash_range_filter" in one.mend for one in findings("records s", sample))


def test_an_aggregate_that_was_damaged_is_told_from_others() -> None:
    whole = packed([("a", None, b"1")]).data
    (what,) = notes(sample_of([record(whole[:-1]), record(MAGIC), record(whole)]))
    assert what.startswith("records that begin like an aggregate, and are none: 1")


@pytest.mark.parametrize(("less", "count"), [(20_000, 0), (2_000, 1)])
def test_a_full_aggregate_may_have_lost_a_record(less: int, count: int) -> None:
    sample = sample_of([packed([("a", None, bytes(2**20 - less))])])
    assert ["within 10 KiB of the limit" in what for what in notes(sample)] == [True] * count


@pytest.mark.parametrize(
    ("key", "hash_key", "what"),
    [
        ("", None, "without a partition key: 1"),
        ("a", "late", "with an explicit hash key that no shard has: 1"),
        ("a", str(2**128), "with an explicit hash key that no shard has: 1"),
        ("a", "-1", "with an explicit hash key that no shard has: 1"),
        ("a", str(2**128 - 1), None),
        ("a", "0", None),
    ],
)
def test_keys_that_no_producer_should_write(
    key: str, hash_key: str | None, what: str | None
) -> None:
    found = notes(sample_of([without_checks(key, hash_key)]))
    assert found == ([] if what is None else [f"user records in aggregates {what}"])


def test_a_repeat_has_the_key_and_the_data_of_another_record() -> None:
    assert notes(sample_of([record(b"1", "a"), record(b"1", "b"), record(b"2", "a")])) == []
    assert notes(sample_of([record(b"c", "ab"), record(b"bc", "a")])) == []
    same = [record(b"1", "a"), packed([("a", None, b"1"), ("a", None, b"2")]), record(b"2", "a")]
    (what,) = notes(sample_of(same))
    assert what.startswith("user records with the key and the data of an earlier one: 2")


def test_the_memory_for_repeats_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_checks, "_MOST_DIGESTS", 1)
    sample = sample_of([record(b"1"), record(b"2"), record(b"2"), record(b"1")])
    assert sample.odd.repeated == 1


def test_one_key_in_aggregates_of_many_keys_is_none() -> None:
    def aggregates(users: int, key: str = "a") -> list[Record]:
        every = [[(key, None, b"%d.%d" % (at, n)) for n in range(users)] for at in range(2)]
        return [packed(each, f"random {at}") for at, each in enumerate(every)]

    (what,) = notes(sample_of(aggregates(50)))
    assert what.startswith("all user records in aggregates have the key 'a', and their aggregates")
    assert notes(sample_of(aggregates(49))) == [], "too few to say so"
    assert notes(sample_of([*aggregates(50), packed([("b", None, b"1")])])) == []
    assert notes(sample_of([packed([("a", None, b"%d" % n) for n in range(100)])])) == []
