"""Rows that are read only as far as they have changed mean the same as rows that are read whole."""

from __future__ import annotations

import random
from typing import Any

from sparkinesis.lease.table.rows import KnownRows, TableScan, read_rows

TEXTS = ["worker-1", "worker-2", "TRIM_HORIZON", "SHARD_END", "12345", "x", ""]
NUMBERS = ["0", "1", "7", "-1", "1.5", "1E3", "x", "", "9" * 30, "\u0661"]
ATTRIBUTES = {
    "leaseCounter": "NS",
    "throughputKBps": "N",
    "checkpoint": "S",
    "checkpointSubSequenceNumber": "N",
    "leaseOwner": "S",
    "checkpointOwner": "S",
    "ownerSwitchesSinceCheckpoint": "N",
    "checkpointTimestamp": "N",
    "entityType": "S",
    "convertedTo": "S",
    "foreign": "S",
}
"""The types in which each attribute may come."""
SOUND = {"leaseCounter": {"N": "1"}, "checkpoint": {"S": "TRIM_HORIZON"}}


def drawn_scans(rng: random.Random) -> list[list[dict[str, Any]]]:
    """Return scans in which rows come and go, and some attributes change from one to the next."""
    rows: dict[str, dict[str, Any]] = {}
    found = []
    for _ in range(rng.randint(2, 6)):
        for shard in rng.sample(["shardId-1", "shardId-2", "other"], rng.randint(0, 3)):
            if shard in rows and rng.random() < 0.1:
                del rows[shard]
                continue
            row = dict(rows.get(shard, {"leaseKey": {"S": shard}, **SOUND}))
            for name in rng.sample(list(ATTRIBUTES), rng.randint(0, 2)):
                kind = rng.choice(ATTRIBUTES[name])
                texts = ["LEASE", "LEADER", "STREAM"] if name == "entityType" else TEXTS
                row[name] = {kind: rng.choice(NUMBERS if kind == "N" else texts)}
            if rng.random() < 0.5:
                row.pop(rng.choice(list(ATTRIBUTES)), None)
            rows[shard] = row
        found.append([dict(row) for row in rows.values()])
    return found


def test_a_known_row_means_what_it_says() -> None:
    for seed in range(400):
        known = KnownRows()
        for items in drawn_scans(random.Random(seed)):
            assert known.read(items) == read_rows(items), seed


def row(**attributes: dict[str, str]) -> dict[str, Any]:
    return {"leaseKey": {"S": "shardId-1"}, **SOUND, **attributes}


def test_a_row_that_is_the_same_is_not_read_again() -> None:
    known = KnownRows()
    (first,) = known.read([row()]).leases
    (second,) = known.read([row()]).leases
    assert second is first


def test_a_row_that_is_missing_is_forgotten() -> None:
    known = KnownRows()
    (first,) = known.read([row()]).leases
    assert known.read([]).leases == ()
    (second,) = known.read([row()]).leases
    assert second == first
    assert second is not first


def test_rows_of_coordination_come_with_a_scan() -> None:
    """Rows that are neither leases nor of a KCL are none of either."""
    beside = {"leaseKey": {"S": "w-1"}, "entityType": {"S": "WORKER_METRIC_STATS"}}
    broken = {"leaseKey": {"S": "shardId-2"}, "entityType": {"S": "LEASE"}}
    strange = [
        {"leaseKey": {"S": "x"}},
        {"leaseKey": {"S": "x"}, "entityType": {"S": "LEASE"}},
    ]
    known = KnownRows()
    for second in ("1", "1", "2"):
        stats = {**beside, "lut": {"N": second}}
        for read in (known.read, read_rows):
            scan = read([row(), stats, broken, *strange])
            assert scan.coordination == (stats,)
            assert scan.single_stream.coordination == (stats,)
            assert len(scan.leases) == len(scan.broken) == 1
    assert known.read([row()]).coordination == ()


def test_the_time_of_a_scan_is_that_of_all_its_parts() -> None:
    scan = TableScan(second=7, has_entities=True)
    assert scan.several_streams == scan.single_stream == scan
