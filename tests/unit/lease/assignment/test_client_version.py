"""The mode of a fleet: who shares out the leases, by the row that a KCL 3.x keeps."""

from __future__ import annotations

import pytest

from sparkinesis.lease.assignment.client_version import (
    Sharing,
    Version,
    VersionRow,
    decode_version,
    encode_version,
    missing_row,
    sharing_of,
)
from tests.kcl import COORDINATION, recorded

BESIDE = recorded("kcl-3.1.3-tables.json")["japp-CoordinatorState"]["Items"][1]
AMONG = next(
    row
    for row in recorded("kcl-3.5.1-several-streams.json")["Items"]
    if row["leaseKey"]["S"] == "Migration3.0"
)


def row_of(name: str) -> VersionRow:
    return VersionRow(Version(name, "w", 1))


@pytest.mark.parametrize(
    ("name", "sharing"),
    [
        ("CLIENT_VERSION_INIT", Sharing.TAKEN),
        ("CLIENT_VERSION_2X", Sharing.TAKEN),
        ("CLIENT_VERSION_UPGRADE_FROM_2X", Sharing.TAKEN),
        ("CLIENT_VERSION_3X_WITH_ROLLBACK", Sharing.ASSIGNED),
        ("CLIENT_VERSION_3X", Sharing.ASSIGNED),
        ("CLIENT_VERSION_4X", Sharing.ASSIGNED),
        ("", Sharing.ASSIGNED),
    ],
)
def test_the_row_decides(name: str, sharing: Sharing) -> None:
    assert sharing_of(row_of(name)) is sharing
    for by_load in (True, False):
        assert missing_row(row_of(name), "me", 5, by_load=by_load) is None


def test_without_a_row_nobody_leads_and_who_wants_a_leader_makes_one() -> None:
    assert sharing_of(None) is Sharing.TAKEN
    assert missing_row(None, "me", 5, by_load=False) is None
    made = missing_row(None, "me", 5, by_load=True)
    assert made is not None
    assert sharing_of(made) is Sharing.ASSIGNED


def test_the_row_that_is_made_is_javas() -> None:
    """A Java worker of KCL 3.5.1 in 3.x mode has made the other one."""
    made = missing_row(None, "j1", 1795435006038, by_load=True)
    assert made is not None
    row = {"leaseKey": {"S": "Migration3.0"}, **encode_version(made)}
    (before,) = row["h"]["L"]
    assert before["M"]["mts"] == row["mts"]
    before["M"]["mts"] = {"N": "1795435006036"}  # Java took two milliseconds
    assert row == AMONG


@pytest.mark.parametrize(("row", "key"), [(BESIDE, "key"), (AMONG, "leaseKey")])
def test_rows_of_java_are_read_and_written_as_they_were(row: dict[str, object], key: str) -> None:
    found = decode_version(row, key)
    assert found is not None
    assert found.now.name == "CLIENT_VERSION_3X"
    assert [one.name for one in found.earlier] == ["CLIENT_VERSION_INIT"]
    ours = {key: {"S": "Migration3.0"}, **encode_version(found)}
    assert ours == {"entityType": {"S": "CLIENT_VERSION_MIGRATION"}, **row}


def test_other_rows_are_none() -> None:
    assert [decode_version(row) is not None for row in COORDINATION] == [False, True, False, False]
    assert decode_version({"key": {"S": "Migration3.0"}}) is None


def test_a_damaged_row_is_not_as_if_there_were_none() -> None:
    row = {"leaseKey": {"S": "Migration3.0"}, "mts": {"S": "x"}, "h": {"L": [{"S": "x"}]}}
    found = decode_version(row)
    assert found == VersionRow(Version("", "", 0), (Version("", "", 0),))
    assert sharing_of(found) is Sharing.ASSIGNED


def test_ten_earlier_versions_are_kept() -> None:
    row = row_of("0")
    for number in range(1, 13):
        row = row.changed(str(number), "w", number)
    assert row.now == Version("12", "w", 12)
    assert [int(one.name) for one in row.earlier] == list(range(11, 1, -1))
