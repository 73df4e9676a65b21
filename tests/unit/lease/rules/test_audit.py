"""Which hash keys have no reader, and which leases no worker needs any more."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.audit import (
    Confidence,
    Hole,
    audit_needs_them,
    deletable,
    find_hole,
    missing_hash_ranges,
)
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard

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
