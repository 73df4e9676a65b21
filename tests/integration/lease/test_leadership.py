"""What the leader of a fleet does, and when: heartbeats, balance, the rows beside the leases."""

from __future__ import annotations

import random
import uuid
from time import time as wall_clock
from typing import Any

import pytest

from sparkinesis.events import (
    Event,
    FleetRowsFailed,
    FleetRowsRecovered,
    LeadershipChanged,
)
from sparkinesis.lease.assignment import client_version
from sparkinesis.lease.assignment.assignment import Assignment
from sparkinesis.lease.assignment.coordination import Coordination
from sparkinesis.lease.assignment.leader_lock import encode_lock, new_lock
from sparkinesis.lease.assignment.worker_stats import WorkerStats
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.rules.observations import observe
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Fault, LocalServer
from tests.integration.lease.conftest import IDS, ManualTime, create, lease, lease_of, row_of
from tests.integration.lease.test_assignment import (
    FAILOVER,
    SOON,
    Used,
    owners,
    put_lock,
    put_version,
    share,
    worker,
)
from tests.kcl import create_table

STATES, WORKERS = "-CoordinatorState", "-WorkerMetricStats"


def lock_of(dynamodb: Any, table: LeaseTable) -> str:
    """The version of the leader's lock: new with each heartbeat."""
    version: str = row_of(dynamodb, table, "Leader")["recordVersionNumber"]["S"]
    return version


def report(table: LeaseTable, *names: str) -> None:
    """Workers tell that they live."""
    rows = Coordination.among_leases(table, may_share_table=True)
    for name in names:
        rows.write_stats(WorkerStats(name, round(wall_clock())))


def renew(table: LeaseTable, owner: str) -> None:
    """A worker renews its leases, but releases none."""
    for row in table.leases():
        if row.actual_owner == owner:
            table.write(requests.renew(row))


def test_a_leader_gives_a_sign_of_life_three_times_in_a_failover_time(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    me = worker(table, time, "me")
    me.take()
    first = lock_of(dynamodb, table)
    assert uuid.UUID(first).version == 4
    time.now += 0.3 * FAILOVER - 0.1
    me.take()
    assert lock_of(dynamodb, table) == first
    time.now += 0.1
    me.take()
    second = lock_of(dynamodb, table)
    assert second != first
    time.now += 0.3 * FAILOVER
    me.take()
    assert lock_of(dynamodb, table) not in {first, second}


def test_a_leader_goes_on_after_a_heartbeat_without_an_answer(
    table: LeaseTable, time: ManualTime, server: LocalServer
) -> None:
    create(table, "x")
    told: list[Event] = []
    me = worker(table, time, "me", tell=told.append)
    me.take()
    time.now += 0.3 * FAILOVER
    server.kinesis.faults = lambda call: (
        Fault.dropped("after") if call.operation == "UpdateItem" else None
    )
    me.take()
    server.kinesis.faults = None
    create(table, "y")
    time.now += SOON
    me.take()
    assert set(me.held()) == {"x", "y"}
    time.now += SOON
    me.take()  # tells nothing
    kinds = (LeadershipChanged, FleetRowsFailed, FleetRowsRecovered)
    assert [type(one) for one in told if isinstance(one, kinds)] == list(kinds)


def test_leases_are_balanced_at_once_for_a_new_worker_and_then_every_six_failover_times(
    table: LeaseTable, time: ManualTime
) -> None:
    create(table, *IDS[:4])
    leader, other = worker(table, time, "a", "throughput"), worker(table, time, "b", "throughput")
    share(leader, other, time)
    began = time.now - SOON
    assert len(leader.held()) == len(other.held()) == 2
    for row in other.held().values():
        row.checkpoint(ExtendedSequenceNumber(SHARD_END))
    while time.now < began + 6 * FAILOVER - SOON:
        time.now += SOON
        leader.renew()
        leader.take()
        other.renew()
        other.take()
        assert ("b", "a") not in owners(table).values()
    time.now = began + 6 * FAILOVER
    leader.renew()
    leader.take()
    assert list(owners(table).values()).count(("b", "a")) == 1


def test_a_handoff_that_does_not_end_is_ended_by_the_leader(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    """Its owner renews the lease, but never hears that it is to release it."""
    create(table, *IDS[:3], owner="deaf")
    put_version(dynamodb, table, client_version.VERSION_3X)
    report(table, "deaf", "idle")
    leader = worker(table, time, "me", "count")
    leader.take()
    given = {key: who for key, who in owners(table).items() if who[1] is not None}
    assert set(given.values()) == {("me", "deaf"), ("idle", "deaf")}
    asked = next(key for key, who in given.items() if who[0] == "idle")
    time.now += SOON
    leader.take()  # sees the request
    began = time.now
    for seconds in (10, 20, 30, 40, 50):
        time.now = began + seconds
        renew(table, "deaf")
        leader.renew()
        leader.take()
        assert owners(table)[asked] == ("idle", "deaf"), seconds
    time.now += 0.1
    leader.take()
    assert owners(table)[asked][1] is None


@pytest.mark.parametrize("failover", [5.0, 20.0])
def test_the_load_is_told_at_least_every_half_a_minute_with_what_was_measured(
    table: LeaseTable, time: ManualTime, dynamodb: Any, failover: float
) -> None:
    meter = Used(40.0)
    rows = assignment(table, time, failover=failover, meter=meter)
    second = 1_800_000_000
    put_version(dynamodb, table, client_version.VERSION_3X)
    put_lock(dynamodb, table, "java")

    def told(after: float) -> dict[str, Any]:
        time.now += after
        scan = table.scan()
        rows.after_scan(TableScan(scan.leases, coordination=scan.coordination), {}, (), time.now)
        return row_of(dynamodb, table, "me")

    row = told(0.0)
    assert row["lut"] == {"N": str(second)}, "by the worker's clock, if the service tells no time"
    assert row["sts"] == {"M": {"C": {"L": [{"N": "40.000000"}]}}}
    assert row["opr"] == {"M": {"C": {"L": [{"N": "100"}]}}}
    meter.percent = 50.0
    every = min(30.0, 3 * failover)
    assert told(every - 0.1) == row
    assert told(0.1)["sts"] == {"M": {"C": {"L": [{"N": "40.000000"}, {"N": "50.000000"}]}}}


def test_who_can_measure_nothing_tells_no_load(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    meter = Used(40.0)
    meter.can_measure = False
    assignment(table, time, meter=meter).after_scan(table.scan(), {}, (), time.now)
    assert row_of(dynamodb, table, "me")["sts"] == {"M": {}}


def test_a_leader_gives_no_worker_more_than_it_may_have(
    table: LeaseTable, time: ManualTime
) -> None:
    create(table, *IDS[:4])
    scan = table.scan()
    seen = observe({}, scan.leases, time.now, "me")
    state = assignment(table, time, max_leases=3).after_scan(scan, seen, (), time.now)
    assert [move.to for move in state.moves] == ["me"] * 3


def assignment(
    table: LeaseTable,
    time: ManualTime,
    *,
    failover: float = FAILOVER,
    meter: Any = None,
    max_leases: int = 100,
) -> Assignment:
    return Assignment(
        table,
        table.name,
        "me",
        balance="load",
        settings=TakeSettings(failover, max_leases, 100, handoff_timeout=30.0, scan_interval=1.5),
        clock=time,
        wall_clock_ms=lambda: 1_800_000_000_000,
        rng=random.Random(1),
        meter=meter,
    )


def test_who_never_looked_leaves_without_a_call(
    table: LeaseTable, time: ManualTime, server: LocalServer
) -> None:
    server.kinesis.calls.clear()
    assignment(table, time).leave()
    assert len(server.kinesis.calls) == 0


def test_who_cannot_delete_its_row_gives_up_the_leadership_all_the_same(
    table: LeaseTable,
    time: ManualTime,
    server: LocalServer,
    dynamodb: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create(table, "x")
    told: list[Event] = []
    me = worker(table, time, "me", tell=told.append)
    me.take()
    denied = iter([Fault.error("AccessDeniedException")])
    server.kinesis.faults = lambda call: (
        next(denied, None) if call.operation == "DeleteItem" else None
    )
    me.leave()
    server.kinesis.faults = None
    assert "Leaving the fleet failed" in caplog.text
    assert told[-1] == LeadershipChanged("me", False)
    keys = {row["leaseKey"]["S"] for row in dynamodb.scan(TableName=table.name)["Items"]}
    assert keys == {"x", "me", client_version.KEY}
    me.leave()
    assert "me" in {row["leaseKey"]["S"] for row in dynamodb.scan(TableName=table.name)["Items"]}


def test_rows_beside_the_leases_are_looked_for_every_minute(
    table: LeaseTable, time: ManualTime, server: LocalServer, dynamodb: Any
) -> None:
    """As while a fleet goes back to a KCL 3.4, or on to a KCL 3.5."""
    create(table, "x")
    me, began = worker(table, time, "me"), time.now
    me.take()
    create_table(dynamodb, f"{table.name}{STATES}", "key")
    create_table(dynamodb, f"{table.name}{WORKERS}", "wid")

    def beside() -> set[str]:
        return {
            row[key]["S"]
            for name, key in ((STATES, "key"), (WORKERS, "wid"))
            for row in dynamodb.scan(TableName=f"{table.name}{name}")["Items"]
        }

    server.kinesis.calls.clear()
    for _ in range(6):
        time.now += 9.9
        me.renew()
        me.take()
    assert beside() == set()
    assert not server.kinesis.calls.select(stream=f"{table.name}{STATES}")[1:], "our own scan"
    time.now = began + 60.0
    for _ in range(3):  # the lock that it has is not there
        me.take()
        time.now += 30.0
    assert beside() == {"me", "Leader"}


def put_beside(dynamodb: Any, table: LeaseTable) -> None:
    """The rows of a fleet of KCL 3.0 to 3.4 that a Java worker leads."""
    create_table(dynamodb, f"{table.name}{STATES}", "key")
    create_table(dynamodb, f"{table.name}{WORKERS}", "wid")
    states = Coordination.find(table).states
    version = {"cv": {"S": client_version.VERSION_3X}, "mb": {"S": "java"}, "mts": {"N": "1"}}
    assert states.put(client_version.KEY, version, None)
    assert states.put("Leader", encode_lock(new_lock("java", 120.0, "v-1")), None)


def test_a_java_leader_beside_the_leases_is_followed(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    put_beside(dynamodb, table)
    create(table, "x")
    create(table, "y", owner="java")
    me = worker(table, time, "me", "count")
    me.take()
    assert owners(table) == {"x": (None, None), "y": ("java", None)}
    rows = dynamodb.scan(TableName=f"{table.name}{WORKERS}")["Items"]
    assert [row["wid"]["S"] for row in rows] == ["me"]


def test_a_leader_without_leases_or_with_one_that_lives_is_alive(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    put_version(dynamodb, table, client_version.VERSION_3X)
    put_lock(dynamodb, table, "java")
    create(table, "x")
    me = worker(table, time, "me", "count")
    me.take()
    assert not me.held()
    create(table, "y", "z", owner="java")
    me.take()
    time.now += FAILOVER + 0.1
    table.write(requests.renew(lease_of(table, "y")))
    me.take()
    assert not me.held()


@pytest.mark.parametrize(("age", "takes"), [(50, False), (70, True)])
def test_a_leader_that_ended_long_ago_is_not_waited_for(
    table: LeaseTable, time: ManualTime, dynamodb: Any, *, age: int, takes: bool
) -> None:
    """Its lock holds for two minutes from the first look at it, but the row of its load is old."""
    put_version(dynamodb, table, client_version.VERSION_3X)
    put_lock(dynamodb, table, "java")
    rows = Coordination.among_leases(table, may_share_table=True)
    rows.write_stats(WorkerStats("java", round(wall_clock()) - age))
    rows.write_stats(WorkerStats("other", round(wall_clock()) - (120 - age)))
    create(table, "x")
    me = worker(table, time, "me", "count")
    me.take()
    assert bool(me.held()) is takes


def test_who_ends_in_a_leaders_fleet_withdraws_nothing_that_it_holds(
    table: LeaseTable, time: ManualTime
) -> None:
    """It releases that itself, once its record processors have ended."""
    create(table, *IDS[:4])
    table.create(lease("ended", owner="b", checkpoint=SHARD_END))
    first, second = worker(table, time, "a"), worker(table, time, "b")
    share(first, second, time)
    before = table.leases()
    second.withdraw_requests()
    assert table.leases() == before
    for held in second.held().values():
        held.checkpoint(ExtendedSequenceNumber("500"))
    assert len(second.held()) == 2


def test_trouble_with_the_rows_makes_nobody_steal_from_a_leaders_fleet(
    table: LeaseTable, time: ManualTime, server: LocalServer, dynamodb: Any
) -> None:
    """And what the leader gives is adopted at once."""
    put_version(dynamodb, table, client_version.VERSION_3X)
    put_lock(dynamodb, table, "java")
    create(table, "a", "b", "c", owner="java")
    create(table, "new")
    told: list[Event] = []
    me = worker(table, time, "me", "count", tell=told.append)
    me.take()
    table.write(requests.assign(lease_of(table, "new"), "me"))
    time.now += 30.0
    renew(table, "java")
    failed = iter([Fault.error("ValidationException")])
    server.kinesis.faults = lambda call: (
        next(failed, None) if call.operation == "UpdateItem" else None
    )
    me.take()
    server.kinesis.faults = None
    assert any(isinstance(event, FleetRowsFailed) for event in told)
    assert owners(table) == {**dict.fromkeys("abc", ("java", None)), "new": ("me", None)}
    assert set(me.held()) == {"new"}


def test_who_may_not_look_for_the_rows_steals_as_in_a_fleet_without_a_leader(
    table: LeaseTable, time: ManualTime, server: LocalServer
) -> None:
    create(table, "a", "b", owner="other")
    told: list[Event] = []
    me = worker(table, time, "me", tell=told.append)
    server.kinesis.faults = lambda call: (
        Fault.error("AccessDeniedException") if call.stream == f"{table.name}{STATES}" else None
    )
    me.take()
    server.kinesis.faults = None
    assert any(isinstance(event, FleetRowsFailed) for event in told)
    assert ("me", "other") in owners(table).values()


def test_who_counts_and_may_not_look_for_tables_of_a_kcl_3_0_tells_its_load(
    table: LeaseTable, time: ManualTime, server: LocalServer, dynamodb: Any
) -> None:
    put_version(dynamodb, table, client_version.VERSION_3X)
    put_lock(dynamodb, table, "java")
    me = worker(table, time, "me", "count")
    server.kinesis.faults = lambda call: (
        Fault.error("AccessDeniedException") if call.stream == f"{table.name}{STATES}" else None
    )
    me.take()
    assert "lut" in row_of(dynamodb, table, "me")


def test_a_shard_that_has_ended_says_nothing_of_its_reader_and_is_given_to_nobody(
    table: LeaseTable, time: ManualTime
) -> None:
    for key, owner in (("read", "b"), ("left", None)):
        table.create(lease(key, owner=owner, checkpoint=SHARD_END))
    report(table, "b")
    leader = worker(table, time, "a")
    leader.take()
    time.now += FAILOVER + 0.1
    create(table, *IDS[:4])
    leader.take()
    found = owners(table)
    assert (found.pop("read"), found.pop("left")) == (("b", None), (None, None))
    assert sorted(str(who) for who, _ in found.values()) == ["a", "a", "b", "b"]


def test_who_leads_again_balances_at_once(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    create(table, *IDS[:4])
    put_version(dynamodb, table, client_version.VERSION_3X)
    report(table, "b")
    told: list[Event] = []
    me = worker(table, time, "a", "count", tell=told.append)
    me.take()
    assert sorted(str(who) for who, _ in owners(table).values()) == ["a", "a", "b", "b"]
    put_lock(dynamodb, table, "java", seconds=4)
    create(table, *IDS[4:], "s6", "s7", owner="b")

    def changes() -> list[bool]:
        return [event.leads for event in told if isinstance(event, LeadershipChanged)]

    while changes() != [True, False, True]:
        assert ("a", "b") not in owners(table).values()
        time.now += SOON
        me.renew()
        renew(table, "b")
        me.take()
    assert list(owners(table).values()).count(("a", "b")) == 2
