"""Rows of one stream become rows of several: what is kept, and which leases are refused."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparkinesis.errors import InconsistentShardsError, LeaseTableError, OptionError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.moving.conversion import (
    Conversion,
    is_same,
    plan_conversion,
    require_unmoved,
)
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.shard import MAX_HASH_KEY, Shard

WEB = StreamIdentifier("123456789012", "web", 1_790_000_000)
CREATED_MS = WEB.creation_epoch * 1000
SHARDS = [Shard(f"shardId-{n}", (), True, (n * 10, n * 10 + 9), str(n)) for n in (1, 2)]
ROWS = [
    Lease(
        shard.id,
        shard.id,
        ExtendedSequenceNumber("5", 3),
        owner="w",
        counter=3,
        hash_range=shard.hash_range,
        made_ms=CREATED_MS,
    )
    for shard in SHARDS
]


def plan(*leases: Lease) -> Conversion:
    return plan_conversion(leases, WEB, SHARDS, CREATED_MS, to_several=True)


@pytest.mark.parametrize(
    ("change", "kind", "why"),
    [
        ({"hash_range": (0, MAX_HASH_KEY)}, OptionError, "is not of this stream"),
        ({"made_ms": CREATED_MS - 3_600_000}, OptionError, "is older than the stream"),
        ({"shard_id": "shardId-9"}, InconsistentShardsError, "newer than all listed shards"),
        ({"stream": WEB}, OptionError, "is not one of the application's only stream"),
    ],
)
def test_leases_of_another_stream_are_refused(
    change: dict[str, object], kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        plan(ROWS[0], replace(ROWS[1], **change))


def test_a_lease_that_moves_between_two_scans_has_a_worker() -> None:
    require_unmoved(ROWS, ROWS)
    require_unmoved(ROWS, ROWS[:1])
    moved = replace(ROWS[1], counter=4, checkpoint_owner="alive")
    with pytest.raises(LeaseTableError, match=r"run: shardId-2 was renewed or created by alive\."):
        require_unmoved(ROWS, [ROWS[0], moved])
    with pytest.raises(LeaseTableError, match=r"run: shardId-2 was renewed or created\."):
        require_unmoved(ROWS[:1], [ROWS[0], replace(ROWS[1], owner=None)])


def test_a_row_that_a_worker_had_meanwhile_is_the_same_but_for_its_checkpoint() -> None:
    row = {"leaseKey": {"S": "s"}, "checkpoint": {"S": "7"}, "fencingToken": {"N": "1"}}
    had = {"leaseOwner": {"S": "w"}, "leaseCounter": {"N": "9"}, "fencingToken": {"N": "2"}}
    assert is_same(row, {**row, **had})
    assert not is_same(row, {**row, **had, "checkpoint": {"S": "8"}})
