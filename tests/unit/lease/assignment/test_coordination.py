"""The rows of coordination in a scan of a lease table that a Java KCL 3.5.1 shares."""

from __future__ import annotations

from sparkinesis.lease.assignment.coordination import SeenRows, seen_in
from sparkinesis.lease.assignment.coordinator_state import LeaderLock
from sparkinesis.lease.table.rows import KnownRows, read_rows
from tests.kcl import KCL_3, recorded

JAVAS = recorded("kcl-3.5.1-several-streams.json")["Items"]


def test_the_rows_of_a_java_fleet_come_with_its_leases() -> None:
    scan = KnownRows().read(JAVAS)
    seen = seen_in(scan.coordination)
    assert [one.worker_id for one in seen.stats] == ["j1"]
    assert seen.lock == LeaderLock("j1", 5000, "bc9aaeca-0e55-4c98-b23b-0464e0a3600c")
    assert seen.version is not None
    assert seen.version.now.name == "CLIENT_VERSION_3X"
    assert len(scan.leases) + 3 == len(JAVAS)


def test_a_table_of_leases_alone_has_none() -> None:
    assert seen_in(read_rows(KCL_3).coordination) == SeenRows()
