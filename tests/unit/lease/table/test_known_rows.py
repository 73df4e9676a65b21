"""Rows that are read only as far as they have changed mean the same as rows that are read whole."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkinesis.lease.table.rows import KnownRows, TableScan, read_rows
from tests.examples import examples

TEXTS = st.sampled_from(["worker-1", "worker-2", "TRIM_HORIZON", "SHARD_END", "12345", "x", ""])
NUMBERS = st.sampled_from(["0", "1", "7", "-1", "1.5", "1E3", "x", "", "9" * 30, "\u0661"])


def values(strings: st.SearchStrategy[str], kind: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda text: {kind: text}, strings)


ATTRIBUTES: dict[str, st.SearchStrategy[Any]] = {
    "leaseCounter": values(NUMBERS, "N") | values(TEXTS, "S"),
    "throughputKBps": values(NUMBERS, "N"),
    "checkpoint": values(TEXTS, "S"),
    "checkpointSubSequenceNumber": values(NUMBERS, "N"),
    "leaseOwner": values(TEXTS, "S"),
    "checkpointOwner": values(TEXTS, "S"),
    "ownerSwitchesSinceCheckpoint": values(NUMBERS, "N"),
    "checkpointTimestamp": values(NUMBERS, "N"),
    "entityType": values(st.sampled_from(["LEASE", "LEADER", "STREAM"]), "S"),
    "convertedTo": values(TEXTS, "S"),
    "foreign": values(TEXTS, "S"),
}
SOUND = {"leaseCounter": {"N": "1"}, "checkpoint": {"S": "TRIM_HORIZON"}}


@st.composite
def scans(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Return scans in which rows come and go, and some attributes change from one to the next."""
    rows: dict[str, dict[str, Any]] = {}
    found = []
    for _ in range(draw(st.integers(2, 6))):
        for shard in draw(st.sets(st.sampled_from(["shardId-1", "shardId-2", "other"]))):
            if shard in rows and draw(st.integers(0, 9)) == 0:
                del rows[shard]
                continue
            row = dict(rows.get(shard, {"leaseKey": {"S": shard}, **SOUND}))
            for name in draw(st.sets(st.sampled_from(sorted(ATTRIBUTES)), max_size=2)):
                row[name] = draw(ATTRIBUTES[name])
            for name in draw(st.sets(st.sampled_from(sorted(ATTRIBUTES)), max_size=1)):
                row.pop(name, None)
            rows[shard] = row
        found.append([dict(row) for row in rows.values()])
    return found


@given(scans())
@settings(max_examples=examples(400), deadline=None)
def test_a_known_row_means_what_it_says(tables: list[list[dict[str, Any]]]) -> None:
    known = KnownRows()
    for items in tables:
        assert known.read(items) == read_rows(items)


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
