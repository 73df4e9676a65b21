"""The map of a stream's shards: who follows whom, where, and since when."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.local.model.sequence import SequenceNumber
from sparkinesis.stream.routing import MAX_HASH_KEY
from sparkinesis.stream.shard import Shard
from sparkinesis.ui.shard_map import MappedShard, born, shard_map

HALF = (MAX_HASH_KEY + 1) // 2
BEGAN = 1_795_000_000


def number(created: int, index: int = 0, counter: int = 0) -> str:
    return str(SequenceNumber(created, index, counter, created))


def lease(shard_id: str, at: str = "TRIM_HORIZON", **given: object) -> Lease:
    return replace(Lease(shard_id, shard_id, ExtendedSequenceNumber(at)), **given)


SPLIT = [
    Shard("s-0", (), False, (0, MAX_HASH_KEY), number(BEGAN)),
    Shard("s-1", ("s-0",), True, (0, HALF - 1), number(BEGAN + 60, 1)),
    Shard("s-2", ("s-0",), True, (HALF, MAX_HASH_KEY), number(BEGAN + 60, 2)),
]


def test_a_split() -> None:
    assert shard_map([lease("s-0"), lease("s-1")], SPLIT) == [
        MappedShard("s-0", "s-0", (), ("s-1", "s-2"), (0, 1), 0, BEGAN, BEGAN + 60, False),
        MappedShard("s-1", "s-1", ("s-0",), (), (0, 0.5), 1, BEGAN + 60, None, True),
        MappedShard("s-2", None, ("s-0",), (), (0.5, 1), 1, BEGAN + 60, None, True),
    ]


def test_a_merge_by_leases_alone() -> None:
    """The stream could not be listed; checkpoints tell when a shard was made."""
    rows = [
        lease("s-1", number(BEGAN, 1, 7), hash_range=(0, HALF - 1)),
        lease("s-2", "SHARD_END", hash_range=(HALF, MAX_HASH_KEY)),
        lease("s-3", number(BEGAN + 9, 3), parent_ids=("s-1", "s-2"), hash_range=(0, MAX_HASH_KEY)),
    ]
    left, right, merged = shard_map(rows, [])
    assert (left.began, left.ended, left.is_open) == (BEGAN, BEGAN + 9, False)
    assert (right.began, right.ended, right.is_open) == (None, BEGAN + 9, False)
    assert (merged.parents, merged.generation, merged.is_open) == (("s-1", "s-2"), 1, True)


def test_a_closed_shard_whose_children_are_not_listed_yet() -> None:
    (one,) = shard_map([lease("s-0")], SPLIT[:1])
    assert (one.is_open, one.ended, one.children) == (False, None, ())
    (by_children,) = shard_map([lease("s-0", child_ids=("s-1",), hash_range=(0, 9))], [])
    assert (by_children.is_open, by_children.children) == (False, ("s-1",))


def test_a_finished_lease_is_of_a_closed_shard() -> None:
    (one,) = shard_map([lease("s-0", "SHARD_END", hash_range=(0, 9))], [])
    assert not one.is_open


def test_a_shard_of_unknown_hash_keys_has_no_place() -> None:
    assert shard_map([lease("s-9")], []) == []


def test_grandchildren_come_after_children() -> None:
    chain = [Shard(f"s-{n}", (f"s-{n - 1}",) if n else (), n == 2, (0, 1)) for n in range(3)]
    assert [one.generation for one in shard_map([], reversed(chain))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "second"),
    [
        # From AWS' documentation of PutRecord and GetRecords.
        ("49590338271490256608559692538361571095921575989136588898", 1_542_776_258),
        (number(BEGAN, 5, 3), BEGAN),
        ("49545115243490985018280067714973144582180062593244200961", None),  # of version 1
        ("7", None),
        ("9" * 300, None),
        ("LATEST", None),
        (number(12), None),
    ],
)
def test_the_second_in_a_sequence_number(text: str, second: int | None) -> None:
    assert born(text) == second
