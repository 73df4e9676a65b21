"""The rows that a KCL 3.x keeps: who assigns the leases, and the leader's lock.

The lock's attributes and conditions were compared with ``AmazonDynamoDBLockClient`` (1.4.0, which
KCL 3.5.1 uses) by reading it: all values are texts; a lock is put, not updated, on condition that
there is no row (``attribute_not_exists``), or that ``isReleased`` is "1", or that
``recordVersionNumber`` is as observed; a heartbeat sets ``leaseDuration`` and
``recordVersionNumber``, expecting version and owner; a release deletes the row, expecting the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.assignment.coordinator_state import (
    HeldLock,
    LeaderLock,
    SeenLock,
    Sharing,
    Version,
    VersionRow,
    acquire_expects,
    can_acquire,
    decode_lock,
    decode_version,
    encode_lock,
    encode_version,
    heartbeat,
    missing_row,
    new_lock,
    observe,
    owner_expects,
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
def test_modes_of_java_are_read_and_written_as_they_were(row: dict[str, object], key: str) -> None:
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


# --- the lock

LOCK_BESIDE = recorded("kcl-3.1.3-tables.json")["japp-CoordinatorState"]["Items"][0]
LOCK_AMONG = next(
    row
    for row in recorded("kcl-3.5.1-several-streams.json")["Items"]
    if row["leaseKey"]["S"] == "Leader"
)
JAVAS = LeaderLock("java", 120_000, "v-1")
OURS = new_lock("me", 10.0, "v-1")


@pytest.mark.parametrize(
    ("row", "key", "ms"), [(LOCK_BESIDE, "key", 120_000), (LOCK_AMONG, "leaseKey", 5000)]
)
def test_locks_of_java_are_read_and_written_as_they_were(
    row: dict[str, Any], key: str, ms: int
) -> None:
    lock = decode_lock(row, key)
    assert lock == LeaderLock(row["ownerName"]["S"], ms, row["recordVersionNumber"]["S"])
    ours = {key: {"S": "Leader"}, **encode_lock(lock)}
    assert ours == {"entityType": {"S": "LEADER"}, **row}


def test_a_released_lock_is_one_with_the_attribute_whatever_its_value() -> None:
    row = {**LOCK_AMONG, "isReleased": {"S": "1"}}
    lock = decode_lock(row)
    assert lock is not None
    assert lock.is_released
    assert {"leaseKey": {"S": "Leader"}, **encode_lock(lock)} == row
    other = decode_lock({**LOCK_AMONG, "isReleased": {"N": "0"}})
    assert other is not None
    assert other.is_released


@pytest.mark.parametrize("change", [{"leaseDuration": {"S": "x"}}, {"leaseDuration": {"N": "5"}}])
def test_a_broken_lock_is_none(change: dict[str, Any]) -> None:
    assert decode_lock({**LOCK_AMONG, **change}) is None
    assert decode_lock({"leaseKey": {"S": "Leader"}}) is None
    assert [decode_lock(row) is not None for row in COORDINATION] == [True, False, False, False]


@pytest.mark.parametrize(("lock", "seconds"), [(JAVAS, 120), (OURS, 10)])
def test_a_lock_expires_once_its_version_has_stood_for_its_own_duration(
    lock: LeaderLock, seconds: int
) -> None:
    seen = observe(None, lock, 1000.0)
    assert not can_acquire(seen, 1000.0 + seconds)
    assert can_acquire(seen, 1000.1 + seconds)
    again = observe(seen, lock, 1000.0 + seconds)
    assert again is not None
    assert again.since == 1000.0
    moved = observe(seen, replace(lock, version="v-2"), 1000.0 + seconds)
    assert not can_acquire(moved, 1000.0 + 2 * seconds)
    assert can_acquire(moved, 1000.1 + 2 * seconds)


def test_a_lock_that_was_never_seen_before_is_not_old() -> None:
    assert not can_acquire(observe(None, JAVAS, 1e9), 1e9)


def test_no_lock_or_a_released_one_can_be_acquired_at_once() -> None:
    assert observe(SeenLock(JAVAS, 0.0), None, 5.0) is None
    assert can_acquire(None, 5.0)
    seen = observe(SeenLock(JAVAS, 5.0), replace(JAVAS, is_released=True), 6.0)
    assert can_acquire(seen, 6.0)


def test_a_leader_stops_before_any_observer_sees_its_lock_expired() -> None:
    """It counts from before its heartbeat was sent, an observer from after it has seen it."""
    sent, seen_at = 100.0, 100.2
    held, seen = HeldLock(OURS, sent), observe(None, OURS, seen_at)
    for now in (100.2, 105.0, 110.0, 110.1, 110.2, 110.3):
        assert not (held.leads(now) and can_acquire(seen, now)), now
    assert held.leads(110.0)
    assert can_acquire(seen, 110.3)


def test_a_heartbeat_writes_a_new_version_and_the_duration() -> None:
    assert heartbeat(OURS, "v-2") == {
        "leaseDuration": {"S": "10000"},
        "recordVersionNumber": {"S": "v-2"},
    }


def test_what_the_row_must_have() -> None:
    assert acquire_expects(None) is None
    assert acquire_expects(JAVAS) == {"recordVersionNumber": {"S": "v-1"}}
    assert acquire_expects(replace(JAVAS, is_released=True)) == {"isReleased": {"S": "1"}}
    assert owner_expects(OURS) == {
        "recordVersionNumber": {"S": "v-1"},
        "ownerName": {"S": "me"},
        "isReleased": None,
    }
