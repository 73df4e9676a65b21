"""Lease rows, as Java KCLs write them; a real table is in tests/fixtures, builders in tests.kcl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import (
    Lease,
    PendingCheckpoint,
    decode_lease,
    encode_lease,
    leases_by_stream,
)
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    FromApplication,
    Position,
)
from tests.kcl import COORDINATION, KCL_2, KCL_3, java_refuses

FIXTURE = Path(__file__).parents[2] / "fixtures" / "kcl-3.1.3-tables.json"

MANDATORY: dict[str, Any] = {
    "leaseKey": {"S": "shardId-0"},
    "checkpoint": {"S": "5"},
    "leaseCounter": {"N": "0"},
    "ownerSwitchesSinceCheckpoint": {"N": "0"},
}
OWNER = "09f1d43d-cf6f-46f5-9430-8a9fdcca9baa"
HALF = 170141183460469231731687303715884105726
QUARTER = 85070591730234615865843651857942052863
UPPER = (HALF + 1, 2**128 - 1)
SHARDS = [f"shardId-{number:012d}" for number in range(4)]
BEGIN = "49680417772080139964390719"
NEXT = (
    "49680417842751201498534263945896512048397752556341690402",
    "49680417842773502243732794569032003137572327771974139954",
)


def tables() -> Any:
    return json.loads(FIXTURE.read_text())


def lease(number: int, at: str, sub_sequence_number: int = 0, **more: Any) -> Lease:
    place = ExtendedSequenceNumber(at, sub_sequence_number)
    return Lease(SHARDS[number], SHARDS[number], place, **more)


def test_a_real_table_after_a_split() -> None:
    leases = sorted(filter(None, map(decode_lease, tables()["japp"]["Items"])), key=lambda i: i.key)
    old: dict[str, Any] = {"owner": OWNER, "counter": 29, "throughput_kbps": 0.0}
    new: dict[str, Any] = {"owner": OWNER, "counter": 17, "parent_ids": (SHARDS[0],)}
    low, high = (0, QUARTER), (QUARTER + 1, HALF)
    assert leases == [
        lease(0, "SHARD_END", child_ids=tuple(SHARDS[2:]), hash_range=(0, HALF), **old),
        lease(1, f"{BEGIN}210533025828023069882475085842", hash_range=UPPER, **old),
        lease(2, NEXT[0], hash_range=low, throughput_kbps=2.2e-5, **new),
        lease(3, NEXT[1], hash_range=high, throughput_kbps=1.7e-5, **new),
    ]


def test_every_attribute_of_a_table_of_kcl_2_is_read() -> None:
    pending = ExtendedSequenceNumber(f"{BEGIN}210533025828023069882475085850", 3)
    assert [decode_lease(row) for row in KCL_2] == [
        lease(
            0,
            "SHARD_END",
            owner="worker-1",
            counter=412,
            child_ids=tuple(SHARDS[2:]),
            hash_range=(0, HALF),
        ),
        lease(
            1,
            f"{BEGIN}210533025828023069882475085842",
            7,
            owner="worker-2",
            counter=1311,
            owner_switches=2,
            pending=PendingCheckpoint(pending, b"state\x00"),
            hash_range=UPPER,
        ),
        lease(2, "TRIM_HORIZON", parent_ids=(SHARDS[0],)),
    ]


def test_every_attribute_of_a_table_of_kcl_3_is_read() -> None:
    pending = PendingCheckpoint(ExtendedSequenceNumber("49", 2), None)
    assert [decode_lease(row) for row in KCL_3] == [
        lease(
            0,
            "LATEST",
            owner="worker-2",
            counter=40,
            checkpoint_owner="worker-1",
            throughput_kbps=12.345678,
            hash_range=(0, HALF),
        ),
        lease(1, "AT_TIMESTAMP", pending=pending, counter=1, hash_range=UPPER),
    ]
    assert [decode_lease(row) for row in COORDINATION] == [None] * len(COORDINATION)


@pytest.mark.parametrize(
    "kind", ["STREAM", "LEADER", "CLIENT_VERSION_MIGRATION", "WORKER_METRIC_STATS", "new"]
)
def test_an_entity_type_tells_other_rows_even_if_they_look_like_leases(kind: str) -> None:
    assert decode_lease({**MANDATORY, "entityType": {"S": "LEASE"}}) is not None
    assert decode_lease({**MANDATORY, "entityType": {"S": kind}}) is None


def test_the_key_of_an_application_of_several_streams_names_the_stream() -> None:
    stream = StreamIdentifier("123456789012", "flights", 1763700000)
    row = {
        **MANDATORY,
        "leaseKey": {"S": f"{stream}:{SHARDS[1]}"},
        "checkpoint": {"S": "77"},
        "checkpointSubSequenceNumber": {"N": "12"},
        "parentShardId": {"SS": [SHARDS[3], SHARDS[2]]},
        "streamName": {"S": str(stream)},
        "shardId": {"S": SHARDS[1]},
    }
    named = lease(1, "77", 12, stream=stream, parent_ids=(SHARDS[2], SHARDS[3]))
    assert decode_lease(row) == replace(named, key=f"123456789012:flights:1763700000:{SHARDS[1]}")


def test_foreign_attributes_are_of_no_concern_whatever_their_type() -> None:
    foreign = {"pendingCheckpointState": {"N": "3"}, "ours": {"M": {"deep": {"L": []}}}}
    assert decode_lease({**MANDATORY, **foreign}) == Lease(
        "shardId-0", "shardId-0", ExtendedSequenceNumber("5")
    )


@pytest.mark.parametrize("missing", ["leaseKey", "checkpoint", "leaseCounter"])
def test_a_row_without_what_every_kcl_writes_is_no_lease(missing: str) -> None:
    row = {name: value for name, value in MANDATORY.items() if name != missing}
    assert decode_lease(row) is None
    assert decode_lease({**row, missing: {"BOOL": True}}) is None


def test_a_key_that_names_no_stream_properly_is_no_lease() -> None:
    assert decode_lease({**MANDATORY, "leaseKey": {"S": "a:b:shardId-0"}}) is None


@pytest.mark.parametrize("row", [*KCL_2, *KCL_3])
def test_a_new_row_reads_as_the_lease_it_was_made_of_and_satisfies_java(
    row: dict[str, Any],
) -> None:
    decoded = decode_lease(row)
    assert decoded is not None
    # Only what a new lease can have.
    new = replace(decoded, pending=None, checkpoint_owner=None, throughput_kbps=None)
    encoded = encode_lease(new)
    assert decode_lease(encoded) == new
    assert java_refuses(encoded) == []


@pytest.mark.parametrize(
    ("checkpoint", "more", "position"),
    [
        ("TRIM_HORIZON", {}, TRIM_HORIZON),
        ("SHARD_END", {}, SHARD_END),
        ("LATEST", {}, LATEST),
        ("LATEST", {"timestamp_ms": 7}, AtTimestamp(7)),
        ("AT_TIMESTAMP", {"timestamp_ms": 7}, AtTimestamp(7)),
        ("AT_TIMESTAMP", {}, None),
        ("49:3", {}, AfterRecord("49", sub_sequence_number=3)),
        ("49:3", {"known": AfterRecord("49", 5, arrived_ms=6)}, AfterRecord("49", 5, 3, 6)),
        ("TRIM_HORIZON", {"known": AtTimestamp(5)}, TRIM_HORIZON),
    ],
)
def test_the_position_of_a_lease(
    checkpoint: str, more: dict[str, Any], position: Position | None
) -> None:
    at, _, behind = checkpoint.partition(":")
    found = lease(0, at, int(behind or 0), **more)
    assert found.position() == position
    assert found.lacks_instant == (position is None or position is LATEST)
    if position is not None and position is not LATEST and "timestamp_ms" not in more:
        assert not isinstance(position, FromApplication)
        assert ExtendedSequenceNumber.of(position) == found.checkpoint


@pytest.mark.parametrize("checkpoint", ["", "1a", "7:2", "AT_TIMESTAMP:5", "APPLICATION:app"])
def test_a_checkpoint_that_is_none_has_no_position(checkpoint: str) -> None:
    with pytest.raises(ValueError, match="is not a sequence number"):
        Lease("s", "s", ExtendedSequenceNumber(checkpoint)).position()


def test_leases_are_told_apart_by_their_streams() -> None:
    one, other = (StreamIdentifier("123456789012", name, 1) for name in ("one", "other"))
    of = [
        Lease(key=name, shard_id=name, checkpoint=ExtendedSequenceNumber("1")).in_stream(stream)
        for name, stream in [("s1", one), ("s0", other), ("s0", None), ("s0", one)]
    ]
    assert leases_by_stream(of) == {one: [of[0], of[3]], other: [of[1]], None: [of[2]]}
    assert leases_by_stream(iter(())) == {}
