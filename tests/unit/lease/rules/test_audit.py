from __future__ import annotations

import pytest

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.audit import Confidence, Hole, find_hole, missing_hash_ranges
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard

MAX = MAX_HASH_KEY


def lease(first: int | None, last: int = MAX, checkpoint: str = "5") -> Lease:
    key = f"{first}-{last}"
    hash_range = None if first is None else (first, last)
    return Lease(key, key, ExtendedSequenceNumber(checkpoint), hash_range=hash_range)


@pytest.mark.parametrize(
    ("leases", "hole"),
    [
        ([lease(0)], None),
        ([lease(100), lease(0, 99)], None),
        ([lease(0, 99), lease(0, 49), lease(50, 99), lease(100)], None),
        ([lease(0), lease(10, 20), lease(30, 40)], None),
        ([], Hole(0, MAX)),
        ([lease(0, MAX, SHARD_END)], Hole(0, MAX)),
        ([lease(1)], Hole(0, 0)),
        ([lease(0, 99), lease(101)], Hole(100, 100)),
        ([lease(0, 99), lease(100, 199, SHARD_END), lease(200)], Hole(100, 199)),
        ([lease(0, MAX - 1)], Hole(MAX, MAX)),
        ([lease(0, 9), lease(20, 29), lease(40)], Hole(10, 19)),
        ([lease(None)], Hole(0, MAX)),
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
    old, done = lease(None, 1), lease(None, 2, SHARD_END)
    gone, known = lease(None, 3), lease(0, 4)
    shards = [Shard(each.shard_id, hash_range=(5, 6)) for each in (old, done, known)]
    assert missing_hash_ranges([old, done, gone, known], shards) == [(old, (5, 6))]
