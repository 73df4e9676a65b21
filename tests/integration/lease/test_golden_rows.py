"""Lease rows as version 0.1.0 wrote them: every later version reads them, and writes to them.

Each row of the fixture was made by that version's own calls on a DynamoDB. An application in the
field is updated while such rows are in its table.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import read_row
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.stream.address import StreamIdentifier
from tests.integration.lease.conftest import row_of
from tests.kcl import java_refuses, put_rows, recorded

ROWS: dict[str, dict[str, Any]] = recorded("lease-rows-0.1.0.json")
_RECORD = "49680417772080139964390719210533025828023069882475085842"
_NEXT = "49680417772080139964390719210533025828023069882475085858"
_INSTANT = 1_795_232_870_753
_HALF = (0, 2**127 - 1)
_STREAM = StreamIdentifier("123456789012", "flights", 1_763_700_000)
_UNKNOWN = {"team": {"S": "flights"}, "later": {"M": {"deep": {"L": [{"N": "1"}]}}}}


def _at(sequence_number: str, sub_sequence_number: int = 0) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(sequence_number, sub_sequence_number)


def _lease(number: int, at: ExtendedSequenceNumber, **more: Any) -> Lease:
    shard_id = f"shardId-{number:012d}"
    return Lease(shard_id, shard_id, at, **{"hash_range": _HALF, **more})


EXPECTED: dict[str, Lease] = {
    "new at TRIM_HORIZON": _lease(0, _at("TRIM_HORIZON")),
    "new at LATEST, with its instant": _lease(0, _at("LATEST"), timestamp_ms=_INSTANT),
    "new at AT_TIMESTAMP": _lease(0, _at("AT_TIMESTAMP"), timestamp_ms=_INSTANT),
    "new without hash keys": _lease(0, _at("TRIM_HORIZON"), hash_range=None),
    "child of a split": _lease(
        2,
        _at("TRIM_HORIZON"),
        parent_ids=("shardId-000000000000",),
        hash_range=(0, 2**126 - 1),
    ),
    "child of a merge": _lease(
        7, _at("TRIM_HORIZON"), parent_ids=("shardId-000000000003", "shardId-000000000004")
    ),
    "owned, at LATEST": _lease(
        0, _at("LATEST"), timestamp_ms=_INSTANT, owner="worker-1", counter=1
    ),
    "owned and renewed, with throughput": _lease(
        0, _at("TRIM_HORIZON"), owner="worker-1", counter=2, throughput_kbps=12.345679
    ),
    "checkpoint behind a record": _lease(0, _at(_RECORD), owner="worker-1", counter=2),
    "checkpoint inside of an aggregated record": _lease(
        2, _at(_RECORD, 3), parent_ids=("shardId-000000000000",), owner="worker-1", counter=2
    ),
    "pending checkpoint with state": _lease(
        0,
        _at(_RECORD),
        owner="worker-1",
        counter=3,
        pending=PendingCheckpoint(_at(_NEXT, 2), b"state\x00\xff"),
    ),
    "pending checkpoint without state, before the first checkpoint": _lease(
        0, _at("TRIM_HORIZON"), owner="worker-1", counter=2, pending=PendingCheckpoint(_at(_NEXT))
    ),
    "handoff under way": _lease(
        0, _at(_RECORD), owner="worker-2", checkpoint_owner="worker-1", counter=2
    ),
    "handed over": _lease(0, _at(_RECORD), owner="worker-2", counter=3, owner_switches=1),
    "released": _lease(0, _at(_RECORD), counter=3),
    "finished, with children": _lease(
        0,
        _at("SHARD_END"),
        owner="worker-1",
        counter=3,
        child_ids=("shardId-000000000002", "shardId-000000000003"),
    ),
    "finished and released, without children": _lease(0, _at("SHARD_END"), counter=3),
    "moved to LATEST by its processor": _lease(
        0, _at("LATEST"), timestamp_ms=_INSTANT, owner="worker-1", counter=3
    ),
    "moved to an instant by its processor": _lease(
        0, _at("AT_TIMESTAMP"), timestamp_ms=_INSTANT, owner="worker-1", counter=3
    ),
    "reset to LATEST by an operator": _lease(0, _at("LATEST"), timestamp_ms=_INSTANT, counter=4),
    "reset to TRIM_HORIZON by an operator": _lease(0, _at("TRIM_HORIZON"), counter=4),
    "reset to a place by an operator": _lease(0, _at(_NEXT, 1), counter=3),
    "a KCL's LATEST, with the instant at which it was taken over": _lease(
        0, _at("LATEST"), timestamp_ms=_INSTANT, owner="worker-1", counter=2
    ),
    "hash keys added": _lease(0, _at("TRIM_HORIZON")),
    "of several streams": replace(
        _lease(0, _at("TRIM_HORIZON"), stream=_STREAM), key=f"{_STREAM}:shardId-000000000000"
    ),
}


def test_each_row_is_expected_to_be_some_lease() -> None:
    assert list(ROWS) == list(EXPECTED)


@pytest.mark.parametrize("kind", ROWS)
def test_a_row_of_an_older_version_is_the_same_lease(kind: str) -> None:
    assert read_row(ROWS[kind]) == EXPECTED[kind]
    assert read_row({**ROWS[kind], **_UNKNOWN}) == EXPECTED[kind]


@pytest.mark.parametrize("kind", ROWS)
def test_no_write_to_it_changes_what_this_version_does_not_know(
    table: LeaseTable, dynamodb: Any, kind: str
) -> None:
    put_rows(dynamodb, table.name, [{**ROWS[kind], **_UNKNOWN}])
    row = table.write(requests.take(EXPECTED[kind], "me"))
    row = table.write(requests.with_throughput(requests.renew(row), 1.5))
    row = table.write(requests.add_children(row, ["c1", "c2"]))
    row = table.write(requests.prepare(row, PendingCheckpoint(_at(_NEXT, 4), b"mine")))
    row = table.write(requests.checkpoint(row, _at(_NEXT, 4)))
    row = table.write(requests.initiate_handoff(row, "another"))
    row = table.write(requests.assign(row, "another"))
    row = table.write(requests.reset(row, _at("LATEST"), _INSTANT + 1))
    row = table.write(requests.evict(table.write(requests.take(row, "me"))))
    written = row_of(dynamodb, table, row.key)
    assert {name: written[name] for name in _UNKNOWN} == _UNKNOWN
    assert java_refuses(written) == []
    assert read_row(written) == row
    assert (row.checkpoint, row.timestamp_ms) == (_at("LATEST"), _INSTANT + 1)
    before = EXPECTED[kind]
    assert (row.parent_ids, row.hash_range, row.stream) == (
        before.parent_ids,
        before.hash_range,
        before.stream,
    )
