"""Lease rows, as Java KCLs write them; a real table is in tests/fixtures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.lease.lease import Lease, StreamIdentifier, decode_lease

FIXTURE = Path(__file__).parents[2] / "fixtures" / "kcl-3.1.3-tables.json"


def tables() -> Any:
    return json.loads(FIXTURE.read_text())


def test_a_real_table_after_a_split() -> None:
    leases = sorted(filter(None, map(decode_lease, tables()["japp"]["Items"])), key=lambda i: i.key)
    assert leases == [
        Lease("shardId-000000000000", "shardId-000000000000", None, "SHARD_END", 0, ()),
        Lease(
            "shardId-000000000001",
            "shardId-000000000001",
            None,
            "49680417772080139964390719210533025828023069882475085842",
            0,
            (),
        ),
        Lease(
            "shardId-000000000002",
            "shardId-000000000002",
            None,
            "49680417842751201498534263945896512048397752556341690402",
            0,
            ("shardId-000000000000",),
        ),
        Lease(
            "shardId-000000000003",
            "shardId-000000000003",
            None,
            "49680417842773502243732794569032003137572327771974139954",
            0,
            ("shardId-000000000000",),
        ),
    ]


def test_the_real_rows_of_coordination_are_no_leases() -> None:
    items = [
        {**item, "leaseKey": next(iter(item.values()))}
        for name, table in tables().items()
        if name != "japp"
        for item in table["Items"]
    ]
    assert len(items) >= 3
    assert [decode_lease(item) for item in items] == [None] * len(items)


@pytest.mark.parametrize(
    "kind", ["STREAM", "LEADER", "CLIENT_VERSION_MIGRATION", "WORKER_METRIC_STATS", "new"]
)
def test_an_entity_type_tells_other_rows_even_if_they_look_like_leases(kind: str) -> None:
    row = {"leaseKey": {"S": "shardId-0"}, "checkpoint": {"S": "5"}}
    assert decode_lease({**row, "entityType": {"S": "LEASE"}}) is not None
    assert decode_lease({**row, "entityType": {"S": kind}}) is None


def test_the_key_of_an_application_of_several_streams_names_the_stream() -> None:
    lease = decode_lease(
        {
            "leaseKey": {"S": "123456789012:flights:1763700000:shardId-000000000007"},
            "checkpoint": {"S": "77"},
            "checkpointSubSequenceNumber": {"N": "12"},
            "parentShardId": {"SS": ["shardId-000000000003", "shardId-000000000002"]},
            "streamName": {"S": "123456789012:flights:1763700000"},
            "shardId": {"S": "shardId-000000000007"},
        }
    )
    assert lease == Lease(
        "123456789012:flights:1763700000:shardId-000000000007",
        "shardId-000000000007",
        StreamIdentifier("123456789012", "flights", 1763700000),
        "77",
        12,
        ("shardId-000000000002", "shardId-000000000003"),
    )


def test_foreign_attributes_are_of_no_concern_whatever_their_type() -> None:
    lease = decode_lease(
        {
            "leaseKey": {"S": "shardId-0"},
            "checkpoint": {"S": "5"},
            "pendingCheckpointState": {"N": "3"},
            "ours": {"M": {"deep": {"L": []}}},
        }
    )
    assert lease == Lease("shardId-0", "shardId-0", None, "5", 0, ())


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"leaseKey": {"S": "shardId-0"}},
        {"checkpoint": {"S": "5"}},
        {"leaseKey": {"S": "shardId-0"}, "checkpoint": {"N": "5"}},
        {"leaseKey": {"S": "a:b:shardId-0"}, "checkpoint": {"S": "5"}},
    ],
)
def test_a_row_without_key_or_checkpoint_is_no_lease(row: dict[str, Any]) -> None:
    assert decode_lease(row) is None
