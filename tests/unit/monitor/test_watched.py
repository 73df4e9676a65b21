"""What is told of leases: states, renewals seen, and where their lag is measured from."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.monitor.watched import (
    LeaseState,
    WatchedTable,
    lag_position,
    lease_states,
)
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
)

NUMBER = "49680427967624032809415129550245315011402468711309770770"


def lease(key: str, at: str = "5", **given: object) -> Lease:
    return replace(Lease(key, key, ExtendedSequenceNumber(at), owner="w", counter=3), **given)


def test_states() -> None:
    states = lease_states(
        [
            lease("ended", "SHARD_END"),
            lease("free", owner=None),
            lease("read"),
            lease("asked", checkpoint_owner="v"),
            lease("child", "TRIM_HORIZON", parent_ids=("ended", "read")),
            lease("begun", parent_ids=("ended", "read")),
            lease("heir", parent_ids=("ended", "deleted")),
            lease("untaken", parent_ids=("read",), owner=None),
            lease("stopped", owner=None, stopped_by=("v",)),
            lease("stopped elsewhere", stopped_by=("v",)),
            lease("stopped, ended", "SHARD_END", owner=None, stopped_by=("v",)),
        ]
    )
    assert states == {
        "ended": LeaseState.FINISHED,
        "free": LeaseState.UNOWNED,
        "read": LeaseState.HELD,
        "asked": LeaseState.HANDED_OVER,
        "child": LeaseState.WAITING_FOR_PARENTS,
        "begun": LeaseState.HELD,
        "heir": LeaseState.HELD,
        "untaken": LeaseState.UNOWNED,
        "stopped": LeaseState.STOPPED,
        "stopped elsewhere": LeaseState.HELD,
        "stopped, ended": LeaseState.FINISHED,
    }


def test_parents_are_those_of_the_same_stream() -> None:
    one, other = StreamIdentifier("1", "one", 1), StreamIdentifier("1", "other", 1)
    parent = lease("x", shard_id="parent", stream=one)
    child = lease("y", "TRIM_HORIZON", stream=other, parent_ids=("parent",))
    assert lease_states([parent, child])["y"] is LeaseState.HELD
    assert lease_states([replace(parent, stream=other), child])["y"] is (
        LeaseState.WAITING_FOR_PARENTS
    )


def test_a_renewal_is_a_counter_that_moved_between_two_scans() -> None:
    still, lively, late = lease("still"), lease("lively"), lease("late")
    watched = WatchedTable().after_scan([still, lively], 100.0)
    assert watched.seconds == 0
    assert watched.renewed_ago("lively") is None
    watched = watched.after_scan([still, replace(lively, counter=4), late], 101.0)
    watched = watched.after_scan([still, replace(lively, counter=4), late], 103.5)
    assert watched.seconds == 3.5
    assert watched.renewed_ago("lively") == 2.5
    assert watched.renewed_ago("still") is None
    assert watched.renewed_ago("late") is None, "its first scan is no renewal"
    assert [one.key for one in watched.leases] == ["late", "lively", "still"]
    stood = {one.key: watched.still_for(one.key) for one in watched.leases}
    assert stood == {"late": 2.5, "lively": 2.5, "still": 3.5}, "as far as they were watched"


def test_a_lease_that_was_deleted_is_forgotten() -> None:
    watched = WatchedTable().after_scan([lease("a"), lease("b")], 1.0)
    watched = watched.after_scan([lease("a", counter=4), lease("b", counter=4)], 2.0)
    watched = watched.after_scan([lease("a", counter=4)], 3.0)
    assert watched.moved_at == {"a": 2.0}
    assert watched.found_at == {"a": 1.0}


@pytest.mark.parametrize(
    ("at", "timestamp_ms", "position"),
    [
        ("SHARD_END", None, None),
        ("TRIM_HORIZON", None, TRIM_HORIZON),
        ("LATEST", None, LATEST),
        ("LATEST", 7, AtTimestamp(7)),
        ("AT_TIMESTAMP", 7, AtTimestamp(7)),
        ("AT_TIMESTAMP", None, None),
        (NUMBER, 7, AfterRecord(NUMBER)),
    ],
)
def test_where_lag_is_measured_from(
    at: str, timestamp_ms: int | None, position: Position | None
) -> None:
    assert lag_position(lease("s", at, timestamp_ms=timestamp_ms)) == position
