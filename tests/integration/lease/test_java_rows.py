"""The lease table of a real Java KCL 3.5.1 that reads three streams: all of its rows are accepted.

`make interop ARGS="--scenario 3 --record"` wrote the fixture while the Java worker ran. The stream
web had a split, mobile a merge. Of tv, one shard is checkpointed inside an aggregated record, and
for the other a checkpoint is prepared.
"""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.errors import LeaseTableError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint, encode_lease
from sparkinesis.lease.rules.other_workers import java_kcl_may_read
from sparkinesis.lease.rules.row_streams import (
    require_several_streams,
    require_single_stream,
)
from sparkinesis.lease.table.rows import read_rows
from tests.kcl import recorded

ROWS: list[dict[str, Any]] = recorded("kcl-3.5.1-several-streams.json")["Items"]
_HALF = 2**127
_END = ExtendedSequenceNumber("SHARD_END")


LEASES = {
    f"{one.stream.name} {one.shard_id[-1]}": one for one in read_rows(ROWS).leases if one.stream
}


def _row(lease: Lease) -> dict[str, Any]:
    return next(row for row in ROWS if row["leaseKey"]["S"] == lease.key)


def test_all_leases_are_read_and_nothing_else_is_taken_for_one() -> None:
    scan = read_rows(ROWS)
    assert list(LEASES) == [
        "mobile 0", "mobile 1", "mobile 2", "tv 0", "tv 1", "web 0", "web 1", "web 2", "web 3"
    ]  # fmt: skip
    assert len(scan.leases) == len(LEASES)
    assert scan.broken == ()
    others = {row["entityType"]["S"] for row in ROWS if row["entityType"]["S"] != "LEASE"}
    assert others == {"LEADER", "CLIENT_VERSION_MIGRATION", "WORKER_METRIC_STATS"}


def test_a_split_and_a_merge() -> None:
    parent, left, right = LEASES["web 0"], LEASES["web 2"], LEASES["web 3"]
    assert parent.checkpoint == _END
    assert parent.child_ids == (left.shard_id, right.shard_id)
    assert left.parent_ids == right.parent_ids == (parent.shard_id,)
    assert left.parent_keys == (parent.key,)
    assert parent.hash_range == (0, _HALF - 1)
    first, second, merged = LEASES["mobile 0"], LEASES["mobile 1"], LEASES["mobile 2"]
    assert merged.parent_ids == (first.shard_id, second.shard_id)
    assert first.child_ids == second.child_ids == (merged.shard_id,)
    assert merged.hash_range == (0, 2**128 - 1)


def test_checkpoints_inside_of_aggregated_records() -> None:
    cut, prepared = LEASES["tv 0"], LEASES["tv 1"]
    assert cut.checkpoint == ExtendedSequenceNumber(_row(cut)["checkpoint"]["S"], 4)
    assert prepared.checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")
    at = ExtendedSequenceNumber(_row(prepared)["pendingCheckpoint"]["S"], 5)
    assert prepared.pending == PendingCheckpoint(at, b"half done")


def test_it_is_a_table_of_several_streams_that_a_java_kcl_may_share() -> None:
    scan = read_rows(ROWS)
    require_several_streams(scan, "lease table t")
    with pytest.raises(LeaseTableError, match=r"several streams \(mobile, tv, web\)"):
        require_single_stream(scan, "lease table t")
    assert java_kcl_may_read(scan, "w1")


@pytest.mark.parametrize("name", LEASES)
def test_our_row_of_the_same_lease_is_javas_but_for_its_type(name: str) -> None:
    lease = LEASES[name]
    theirs = {
        attribute: value
        for attribute, value in _row(lease).items()
        # A lease is made without these.
        if not attribute.startswith("pending") and attribute != "throughputKBps"
    }
    assert theirs.pop("entityType") == {"S": "LEASE"}
    assert _sorted(encode_lease(lease)) == _sorted(theirs)


def _sorted(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {
            kind: sorted(content) if kind == "SS" else content for kind, content in value.items()
        }
        for name, value in row.items()
    }
