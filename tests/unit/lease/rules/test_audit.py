"""Who audits, which hash keys have no reader, and which leases and streams no worker needs.

The auditor is the worker that Java workers elect as a leader; the numbers are those of a JVM's
Random.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.audit import (
    Confidence,
    Hole,
    audit_needs_them,
    auditor,
    audits,
    deletable,
    deletable_streams,
    find_hole,
    java_numbers,
    java_order,
    java_shuffle,
    left_streams,
    missing_hash_ranges,
    observe_former,
    unread_former_streams,
)
from sparkinesis.lease.rules.observations import Snapshot
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard
from tests.unit.lease.rules.several import lease_of


@pytest.mark.parametrize(
    ("seed", "bounds", "numbers"),
    [
        (42, [10] * 12, [0, 3, 8, 4, 0, 5, 5, 8, 9, 3, 2, 2]),
        (1947, [100] * 8, [63, 25, 95, 69, 2, 18, 61, 0]),
        (1947, [16] * 8, [10, 5, 0, 4, 7, 7, 11, 7]),
        (1947, [1, 2, 4, 1 << 30], [0, 0, 0, 276436584]),
        (-5, [7] * 8, [5, 6, 2, 6, 1, 5, 5, 5]),
        # Every second draw is rejected for this bound.
        (0, [(1 << 30) + 1] * 5, [516548029, 663681053, 251269761, 715581077, 542832677]),
    ],
)
def test_numbers_are_javas(seed: int, bounds: list[int], numbers: list[int]) -> None:
    assert list(java_numbers(seed, bounds)) == numbers


@pytest.mark.parametrize(
    ("count", "order"),
    [
        (1, [0]),
        (2, [0, 1]),
        (3, [2, 0, 1]),
        (5, [4, 0, 2, 1, 3]),
        (8, [2, 3, 0, 6, 4, 7, 1, 5]),
        (13, [12, 2, 6, 8, 0, 4, 11, 3, 7, 9, 5, 1, 10]),
    ],
)
def test_shuffles_are_javas(count: int, order: list[int]) -> None:
    assert java_shuffle(range(count), 1947) == order


def test_java_sorts_by_utf_16_units() -> None:
    assert sorted(["\uff5e", "\U0001f600", "a"], key=java_order) == ["a", "\U0001f600", "\uff5e"]


def owned(key: str, owner: str | None, checkpoint: str = "5") -> Lease:
    return Lease(key, key, ExtendedSequenceNumber(checkpoint), owner=owner)


def test_the_leader_is_that_of_java_workers() -> None:
    leases = [owned(f"s{i}", f"w{i % 3:02d}") for i in reversed(range(9))]
    assert auditor(leases) == "w02"
    assert auditor([*leases, owned("t", "w03"), owned("u", "w04"), owned("v", None)]) == "w04"


def test_nobody_audits_by_a_lease_that_may_be_a_dead_workers() -> None:
    leases = [owned("s0", "w00"), owned("s1", "w01"), owned("s2", "w02", SHARD_END)]
    assert auditor([*leases, owned("s3", "w02")]) == "w02"
    assert auditor(leases) == "w00"
    assert auditor(leases, expired={"s0"}) == "w01"


def test_any_may_lead_where_nothing_is_owned() -> None:
    assert auditor([]) is None
    assert auditor([owned("s", None), owned("t", "w", SHARD_END)]) is None


MAX = MAX_HASH_KEY


def covering(first: int | None, last: int = MAX, checkpoint: str = "5") -> Lease:
    key = f"{first}-{last}"
    hash_range = None if first is None else (first, last)
    return Lease(key, key, ExtendedSequenceNumber(checkpoint), hash_range=hash_range)


@pytest.mark.parametrize(
    ("leases", "hole"),
    [
        ([covering(0)], None),
        ([covering(100), covering(0, 99)], None),
        ([covering(0, 99), covering(0, 49), covering(50, 99), covering(100)], None),
        ([covering(0), covering(10, 20), covering(30, 40)], None),
        ([], Hole(0, MAX)),
        ([covering(0, MAX, SHARD_END)], Hole(0, MAX)),
        ([covering(1)], Hole(0, 0)),
        ([covering(0, 99), covering(101)], Hole(100, 100)),
        ([covering(0, 99), covering(100, 199, SHARD_END), covering(200)], Hole(100, 199)),
        ([covering(0, MAX - 1)], Hole(MAX, MAX)),
        ([covering(0, 9), covering(20, 29), covering(40)], Hole(10, 19)),
        ([covering(None)], Hole(0, MAX)),
    ],
)
def test_holes(leases: list[Lease], hole: Hole | None) -> None:
    assert find_hole(leases) == hole


def test_only_the_same_hole_again_counts() -> None:
    a, b = Hole(0, 9), Hole(0, 8)
    confidence = Confidence()
    seen = []
    for hole in (a, a, b, b, b, None, b):
        confidence = confidence.after(hole)
        seen.append(confidence.audits)
    assert seen == [1, 2, 1, 2, 3, 0, 1]


def test_ranges_are_filled_in_from_the_shards() -> None:
    old, done = covering(None, 1), covering(None, 2, SHARD_END)
    gone, known = covering(None, 3), covering(0, 4)
    shards = [Shard(each.shard_id, hash_range=(5, 6)) for each in (old, done, known)]
    assert missing_hash_ranges([old, done, gone, known], shards) == [(old, (5, 6))]


def lease(shard_id: str, at: str, parents: str = "", children: str = "") -> Lease:
    return Lease(
        shard_id,
        shard_id,
        ExtendedSequenceNumber(at),
        parent_ids=tuple(parents.split()),
        child_ids=tuple(children.split()),
    )


PARENT = lease("0", SHARD_END, children="1 2")


@pytest.mark.parametrize(
    ("leases", "deleted"),
    [
        ([PARENT, lease("1", "5", "0"), lease("2", "LATEST", "0")], "0"),
        ([PARENT, lease("1", "5", "0"), lease("2", "TRIM_HORIZON", "0")], ""),
        ([PARENT, lease("1", "5", "0"), lease("2", "AT_TIMESTAMP", "0")], ""),
        ([PARENT, lease("1", "5", "0")], ""),
        ([PARENT, lease("1", SHARD_END, "0", "3"), lease("2", "5"), lease("3", "5", "1")], "0"),
        ([lease("1", SHARD_END, "0", "3"), lease("2", "5"), lease("3", "5", "1")], "1"),
        ([replace(PARENT, checkpoint=ExtendedSequenceNumber("7"))], ""),
        ([lease("0", SHARD_END)], ""),
    ],
)
def test_a_finished_lease_goes_once_its_children_are_read(
    leases: list[Lease], deleted: str
) -> None:
    assert [row.shard_id for row in deletable(leases, None)] == deleted.split()


def test_children_that_only_the_service_tells_of() -> None:
    leases = [lease("0", SHARD_END), lease("1", "5"), lease("2", "5")]
    shards = [Shard("0", is_open=False), Shard("1", ("0",)), Shard("2", ("0",))]
    assert deletable(leases, shards) == leases[:1]
    assert deletable(leases[:2], shards) == []
    assert deletable(leases, None) == []


def test_leases_of_shards_that_are_kept_no_more() -> None:
    ended, unread, child = lease("0", SHARD_END), lease("1", "5"), Shard("2", ("0",))
    other = Shard("9")
    assert deletable([ended, unread], [other]) == [ended]
    # It is kept still, and its child is not read yet.
    kept = [Shard("0", is_open=False), child]
    assert deletable([ended, lease("2", "TRIM_HORIZON", "0")], kept) == []
    # Its child would be forgotten.
    assert deletable([ended, unread], [other, child]) == []
    assert deletable([ended, lease("2", "TRIM_HORIZON", "0")], [other, child]) == [ended]
    # Not a single shard: something else is wrong.
    assert deletable([ended, unread], []) == []
    assert deletable([ended, unread], None) == []


def test_a_lease_goes_whose_relatives_are_neither_listed_nor_leased() -> None:
    other = Shard("9")
    for alone in (lease("1", SHARD_END, children="2"), lease("1", SHARD_END, "0")):
        assert deletable([alone], [other]) == [alone]
    circle = [lease("0", SHARD_END, "1"), lease("1", SHARD_END, "0"), lease("2", SHARD_END, "0")]
    assert deletable(circle, [other]) == circle, "rows that nobody can trust end no search"


def test_a_listing_that_is_behind_does_not_make_young_shards_old() -> None:
    """Shards expire oldest first: one that is missing, and its ancestor not, is not listed yet."""
    grandparent, parent = lease("0", SHARD_END, "", "1"), lease("1", SHARD_END, "0", "2")
    child, open_ = lease("2", SHARD_END, "1", "3"), lease("3", "TRIM_HORIZON", "2")
    listed = [Shard("0", is_open=False)]
    assert deletable([grandparent, parent, child, open_], listed) == [grandparent]
    # A shard's lease whose parent's is gone already.
    assert deletable([parent, lease("2", "TRIM_HORIZON", "1")], listed) == []
    # So it is if a younger one is listed: by another page, which is not behind.
    assert deletable([grandparent, parent, child, open_], [*listed, Shard("9")]) == [grandparent]


def test_an_audit_needs_finished_leases_while_hash_keys_have_no_reader() -> None:
    ended = replace(PARENT, hash_range=(0, MAX_HASH_KEY))
    low = replace(lease("1", "TRIM_HORIZON"), hash_range=(0, 9))
    high = replace(lease("2", "5"), hash_range=(10, MAX_HASH_KEY))
    assert audit_needs_them([ended])
    assert audit_needs_them([ended, low])
    assert not audit_needs_them([ended, low, high])


A, B, C = (StreamIdentifier("1", name, 5) for name in "abc")


def test_only_streams_that_nobody_wants_or_reads_are_former() -> None:
    leases = [lease_of(A), lease_of(B, "other"), lease_of(C, "dead")]
    dead = {leases[2].key}
    assert unread_former_streams(leases, lambda _: False, dead) == {A, C}
    assert unread_former_streams(leases, {A}.__contains__, dead) == {C}
    assert unread_former_streams(leases, lambda _: False) == {A}


def test_one_shard_that_is_read_keeps_the_stream_and_a_finished_one_does_not() -> None:
    finished = lease_of(A, "other", is_finished=True)
    assert unread_former_streams([finished], lambda _: False) == {A}
    read = lease_of(A, "other", "shardId-000000000001")
    assert unread_former_streams([read, finished], lambda _: False) == frozenset()
    assert unread_former_streams([finished, read], lambda _: False) == frozenset()


def test_the_time_counts_from_when_nobody_reads_the_stream_and_begins_anew() -> None:
    since = observe_former({}, {A}, 1.0)
    assert observe_former(since, {A, B}, 5.0) == {A: 1.0, B: 5.0}
    assert observe_former(observe_former(since, {B}, 5.0), {A}, 9.0) == {A: 9.0}


@pytest.mark.parametrize(
    ("after", "now", "expected"),
    [(None, 1e9, []), (0, 9.9, []), (0, 10.0, [A]), (30, 29.0, []), (30, 30.0, [A])],
)
def test_leases_go_after_the_wait_but_not_before_others_could_take_them(
    after: float | None, now: float, expected: list[StreamIdentifier]
) -> None:
    assert deletable_streams({A: 0.0}, now, grace=10.0, delete_after=after) == expected


def test_only_those_that_the_user_names() -> None:
    since = {A: 0.0, B: 0.0, C: 0.0}
    given = {"b", "1:c:5", "1:a:4"}
    assert deletable_streams(since, 99.0, grace=1.0, delete_after=0, only=given) == [B, C]
    assert left_streams({A: 0.0, B: 95.0}, 99.0, 10.0) == {A}


def test_each_stream_is_led_by_one_of_its_own_readers() -> None:
    a, b = lease_of(A, "x"), lease_of(B, "y")
    seen = Snapshot((a, b))
    assert audits("x", [a], seen)
    assert not audits("y", [a], seen)
    assert sum(audits(worker, [a, b], seen) for worker in "xy") == 1
    dead = Snapshot((a, b), expired=frozenset({a.key}))
    assert audits("y", [a], dead), "the owner is dead: any worker may lead"
    assert audits("y", [a], Snapshot((a, b), audits=True)), "who audits the whole table"
    assert not audits("x", [a], Snapshot((a, b), audits=False))
