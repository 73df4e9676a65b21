"""Workers whose leases a leader assigns, on a lease table over HTTP: who assigns, who adopts."""

from __future__ import annotations

import random
from time import time as wall_clock
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.events import (
    Event,
    FleetRowsFailed,
    FleetRowsRecovered,
    LeadershipChanged,
    LeaseAssigned,
    Listener,
    ignore,
)
from sparkinesis.lease.assignment import coordinator_state
from sparkinesis.lease.assignment.assigner import Balance
from sparkinesis.lease.assignment.assignment import Assignment
from sparkinesis.lease.assignment.coordination import Coordination
from sparkinesis.lease.assignment.worker_stats import WorkerStats
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.stream.address import StreamIdentifier
from tests.integration.lease.conftest import (
    IDS,
    ManualTime,
    create,
    lease,
    lease_of,
    row_of,
    take_rows,
)

FAILOVER = 10.0
SOON = 1.0


def worker(
    table: LeaseTable,
    time: ManualTime,
    who: str,
    balance: Balance = "throughput",
    publish: Listener = ignore,
    *,
    meter: Any = None,
    several_streams: bool = False,
) -> LeaseCoordinator:
    rng = random.Random(who)
    settings = TakeSettings(FAILOVER, 100, 100, handoff_timeout=30.0, scan_interval=1.5)

    def join() -> Assignment:
        return Assignment(
            table,
            table.name,
            who,
            balance=balance,
            settings=settings,
            clock=time,
            wall_clock_ms=lambda: round(wall_clock() * 1000),
            rng=rng,
            meter=meter,
            publish=publish,
        )

    return LeaseCoordinator(
        table,
        LeaseRenewer(table, who, FAILOVER, time),
        who,
        settings=settings,
        clock=time,
        rng=rng,
        publish=publish,
        join=join,
        wants_leader=balance != "count",
        several_streams=several_streams,
    )


Pair = tuple[LeaseCoordinator, LeaseCoordinator, list[Event]]


@pytest.fixture
def pair(table: LeaseTable, time: ManualTime, told: list[Event]) -> Pair:
    """The workers "a", which leads if it scans first, and "b" on four leases; the events of "a"."""
    create(table, *IDS[:4])
    return worker(table, time, "a", publish=told.append), worker(table, time, "b"), told


def owners(table: LeaseTable) -> dict[str, tuple[str | None, str | None]]:
    return {row.key: (row.owner, row.checkpoint_owner) for row in table.leases()}


def release_asked(owner: LeaseCoordinator) -> None:
    owner.renew()  # shows the requests
    for held in owner.held().values():
        if held.handoff_to is not None:
            held.release()


def sharing(
    table: LeaseTable, time: ManualTime, balance: Balance = "throughput"
) -> tuple[LeaseCoordinator, LeaseCoordinator]:
    """The worker "a", which leads, and "b", which has its share of the leases from "a"."""
    leader, other = (worker(table, time, who, balance) for who in "ab")
    leader.take()
    other.take()
    time.now += SOON
    leader.take()
    release_asked(leader)
    time.now += SOON
    other.take()
    return leader, other


def put_version(dynamodb: Any, table: LeaseTable, name: str) -> None:
    dynamodb.put_item(
        TableName=table.name,
        Item={
            "leaseKey": {"S": coordinator_state.VERSION_KEY},
            "entityType": {"S": coordinator_state.VERSION_ENTITY},
            "cv": {"S": name},
            "mb": {"S": "java"},
            "mts": {"N": "1"},
        },
    )


def put_lock(
    dynamodb: Any, table: LeaseTable, owner: str, seconds: int = 120, version: str = "1-2-3"
) -> None:
    dynamodb.put_item(
        TableName=table.name,
        Item={
            "leaseKey": {"S": "Leader"},
            "entityType": {"S": "LEADER"},
            "ownerName": {"S": owner},
            "leaseDuration": {"S": str(seconds * 1000)},
            "recordVersionNumber": {"S": version},
        },
    )


def test_the_first_worker_leads_and_gives_the_second_its_share(
    table: LeaseTable, time: ManualTime, dynamodb: Any, pair: Pair
) -> None:
    first, second, told = pair
    first.take()
    assert set(first.held()) == set(IDS[:4]), "a leader takes what it gives itself"
    assert row_of(dynamodb, table, "Leader")["ownerName"] == {"S": "a"}
    version = row_of(dynamodb, table, coordinator_state.VERSION_KEY)
    assert (version["cv"], version["mb"]) == ({"S": coordinator_state.VERSION_3X}, {"S": "a"})
    second.take()
    assert not second.held()
    assert set(owners(table).values()) == {("a", None)}, "who does not lead asks for nothing"
    time.now += SOON
    first.take()
    asked = {key for key, who in owners(table).items() if who == ("b", "a")}
    assert len(asked) == 2
    release_asked(first)
    time.now += SOON
    second.take()
    assert set(second.held()) == asked
    assert [event.to for event in told if isinstance(event, LeaseAssigned)] == ["b", "b"]
    assert told[0] == LeadershipChanged("a", True)


class Used:
    """The CPU utilization of a host, in place of `CpuMeter`, which measures that of this one."""

    can_measure = True

    def __init__(self, percent: float) -> None:
        self.percent = percent

    def measure(self) -> float:
        return self.percent


@pytest.mark.parametrize(("leases", "given"), [(1, ["b"]), (4, ["a", "b", "b", "b"])])
def test_the_first_leases_go_to_the_hosts_with_room(
    table: LeaseTable, time: ManualTime, leases: int, given: list[str]
) -> None:
    busy = worker(table, time, "a", "load", meter=Used(90.0))
    idle = worker(table, time, "b", "load", meter=Used(10.0))
    busy.take()
    idle.take()
    create(table, *IDS[:leases])
    time.now += SOON
    busy.take()
    assert sorted(str(who) for who, _ in owners(table).values()) == given


def test_a_killed_leader_costs_one_failover_time(table: LeaseTable, time: ManualTime) -> None:
    create(table, *IDS[:4])
    first, second, third = (worker(table, time, who) for who in "abc")
    first.take()
    for one in (second, third):
        one.take()
    time.now += SOON
    first.take()
    release_asked(first)
    for one in (second, third):
        one.take()
    assert len(second.held()) == len(third.held()) == 1
    for _ in range(10):
        time.now += SOON
        for one in (second, third):
            one.renew()
            one.take()
    assert len(first.held()) == 2
    time.now += 0.1
    second.take()
    third.take()
    assert len(second.held()) + len(third.held()) == 4
    assert not first.held()


def test_a_leader_assigns_no_lease_of_a_stream_that_its_application_lacks(
    table: LeaseTable, time: ManualTime
) -> None:
    """A worker that reads the stream all the same, as during a deployment, takes it by itself."""
    kept, left = (StreamIdentifier("123456789012", name, 1_700_000_000) for name in ("a", "b"))
    for stream in (kept, left):
        table.create(replace(lease(lease_key(stream, IDS[0])), stream=stream, shard_id=IDS[0]))
    leader = worker(table, time, "leader", several_streams=True)
    older = worker(table, time, "older", several_streams=True)
    for _ in range(round(3 * FAILOVER / SOON)):
        leader.take(reads=lambda row: row.stream == kept, wants=kept.__eq__)
        leader.renew()
        older.take()
        assert {lease.owner for lease in table.leases() if lease.stream == left} == {None}
        time.now += SOON
    time.now += SOON
    older.take()
    assert {str(stream): set(one.held()) for stream, one in ((kept, leader), (left, older))} == {
        str(stream): {lease_key(stream, IDS[0])} for stream in (kept, left)
    }


def test_a_dead_worker_that_is_given_a_lease_is_given_no_more(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    """The lease that it was given before anybody could know is young, and proves nothing."""
    put_version(dynamodb, table, coordinator_state.VERSION_3X)
    create(table, *IDS[:4])
    leader, dead = sharing(table, time, "count")
    before = dead.held().keys()
    assert len(before) == 2
    time.now += FAILOVER / 2
    create(table, *IDS[4:], "another")
    release_asked(leader)
    leader.take()
    given = {key for key, who in owners(table).items() if who == ("b", None)} - before
    assert given, "nobody can know yet"
    for number in range(int(FAILOVER) + 2):
        time.now += SOON
        release_asked(leader)
        create(table, f"new-{number}")
        leader.take()
        if leader.snapshot.expired:
            assert owners(table)[f"new-{number}"] == ("a", None)
    assert leader.snapshot.expired


def test_a_dead_java_leader_is_not_waited_for(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    """Its lock holds for two minutes."""
    put_version(dynamodb, table, coordinator_state.VERSION_3X)
    put_lock(dynamodb, table, "java")
    create(table, *IDS[:2], owner="java")
    me = worker(table, time, "me", "count")
    me.take()
    time.now += FAILOVER
    me.take()
    assert not me.held()
    time.now += 0.1
    me.take()
    assert set(me.held()) == set(IDS[:2])
    assert row_of(dynamodb, table, "Leader")["ownerName"] == {"S": "java"}


def test_what_a_leader_gives_is_adopted_at_once(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    put_version(dynamodb, table, coordinator_state.VERSION_3X)
    put_lock(dynamodb, table, "java")
    create(table, "new")
    create(table, "old", owner="java")
    me = worker(table, time, "me", "count")
    me.take()
    assert not me.held(), "the leader assigns even a lease that nobody has"
    assert "lut" in row_of(dynamodb, table, "me")
    table.write(requests.assign(lease_of(table, "new"), "me"))
    table.write(requests.initiate_handoff(lease_of(table, "old"), "me"))
    time.now += SOON
    me.take()
    assert set(me.held()) == {"new"}
    table.write(requests.assign(lease_of(table, "old"), "me"))
    time.now += SOON
    me.take()
    assert set(me.held()) == {"new", "old"}


@pytest.mark.parametrize(
    ("version", "tells"),
    [
        (coordinator_state.VERSION_2X, False),
        (coordinator_state.INIT, False),
        (coordinator_state.UPGRADE_FROM_2X, True),
    ],
)
def test_beside_java_workers_of_2x_each_worker_takes(
    table: LeaseTable, time: ManualTime, dynamodb: Any, version: str, tells: bool
) -> None:
    put_version(dynamodb, table, version)
    create(table, *IDS[:4], owner="java")
    me = worker(table, time, "me")
    me.take()
    assert ("me", "java") in owners(table).values(), "it requests what it steals"
    rows = dynamodb.scan(TableName=table.name)["Items"]
    keys = {row["leaseKey"]["S"] for row in rows}
    assert ("me" in keys) is tells, "a fleet under upgrade waits for the metrics of each worker"
    assert "Leader" not in keys


def test_who_ends_because_of_a_twin_leaves_it_its_leases(
    table: LeaseTable, time: ManualTime
) -> None:
    create(table, "x", "y")
    _, me = sharing(table, time)
    (mine,) = me.held()
    twin = LeaseRenewer(table, "b", FAILOVER, time)
    take_rows(twin, table, time, [lease_of(table, mine)], who="b")
    me.renew()
    time.now += SOON
    me.take()
    assert me.duplicate_worker_leases == (mine,)
    me.withdraw_requests()
    assert owners(table)[mine] == ("b", None)


def test_a_worker_that_counts_makes_no_fleet_with_a_leader(
    table: LeaseTable, time: ManualTime, server: LocalServer
) -> None:
    create(table, "a")
    me = worker(table, time, "host-1-0123456789ab", "count")
    me.take()
    assert set(me.held()) == {"a"}
    assert len(table.scan().coordination) == 0
    asked = {call.stream for call in server.kinesis.calls}
    assert f"{table.name}-CoordinatorState" not in asked
    assert table.name in asked


def test_who_leaves_is_no_member_and_leads_no_more(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    create(table, *IDS[:2])
    told: list[Event] = []
    first, second = worker(table, time, "a", publish=told.append), worker(table, time, "b")
    first.take()
    second.take()
    first.leave()
    assert told[-1] == LeadershipChanged("a", False)
    keys = {row["leaseKey"]["S"] for row in dynamodb.scan(TableName=table.name)["Items"]}
    assert keys == {*IDS[:2], "b", coordinator_state.VERSION_KEY}
    for held in first.held().values():
        held.release()
    time.now += SOON
    second.take()
    assert set(second.held()) == set(IDS[:2])


def test_who_leaves_is_gone_before_its_lock_is_released(
    table: LeaseTable, time: ManualTime, dynamodb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next leader counts it in, and gives it leases."""
    create(table, *IDS[:2])
    leader = worker(table, time, "a")
    leader.take()
    locked: list[bool] = []
    delete = Coordination.delete_stats

    def noted(self: Coordination, stats: WorkerStats) -> None:
        locked.append("isReleased" not in row_of(dynamodb, table, "Leader"))
        delete(self, stats)

    monkeypatch.setattr(Coordination, "delete_stats", noted)
    leader.leave()
    assert locked == [True]


def test_who_ends_withdraws_what_it_was_given_during_its_last_scan(
    table: LeaseTable, time: ManualTime, pair: Pair
) -> None:
    first, second, _ = pair
    first.take()
    second.take()
    second.take(is_leaving=lambda: True)
    time.now += SOON
    first.take()
    assert ("b", "a") in owners(table).values()
    second.leave()
    second.withdraw_requests()
    assert set(owners(table).values()) == {("a", None)}


def test_who_releases_its_leases_is_not_given_them_back(
    table: LeaseTable, time: ManualTime, pair: Pair
) -> None:
    first, second, _ = pair
    for one in (first, second, first):
        one.take()
        time.now += SOON
    release_asked(first)
    second.take()
    assert len(second.held()) == 2
    time.now += SOON
    first.take()
    for held in second.held().values():
        held.release()
    time.now += SOON
    first.take()
    assert set(owners(table).values()) == {("a", None)}, "its row is still there"


def test_a_leader_that_slept_assigns_nothing(
    table: LeaseTable, time: ManualTime, pair: Pair
) -> None:
    first, second, told = pair
    first.take()
    second.take()
    for _ in range(2):
        time.now += FAILOVER / 2 + 0.1
        second.take()
    assert set(second.held()) == set(IDS[:4])
    before = owners(table)
    first.take()
    leads = [event.leads for event in told if isinstance(event, LeadershipChanged)]
    assert leads == [True, False]
    assert owners(table) == before


def test_a_leader_whose_heartbeat_took_too_long_assigns_nothing(
    table: LeaseTable, time: ManualTime, server: LocalServer, dynamodb: Any, pair: Pair
) -> None:
    """The others count from the moment when the heartbeat reached the table."""
    first, second, told = pair
    first.take()
    second.take()
    before = owners(table)
    time.now += FAILOVER / 2
    lock = row_of(dynamodb, table, "Leader")

    def slow(call: Call) -> None:
        if call.operation == "UpdateItem":
            server.kinesis.faults = None
            time.now += FAILOVER + 0.1

    server.kinesis.faults = slow
    first.take()
    assert row_of(dynamodb, table, "Leader") != lock
    assert [one for one in told if isinstance(one, LeadershipChanged)] == [
        LeadershipChanged("a", True),
        LeadershipChanged("a", False),
    ]
    assert owners(table) == before


def test_a_lease_that_its_owner_has_renewed_is_not_assigned(
    table: LeaseTable, time: ManualTime
) -> None:
    """The owner was late: its renewal comes between the leader's scan and the leader's write."""
    create(table, "x", owner="late")
    create(table, "y")
    told: list[Event] = []
    leader, other = worker(table, time, "a", publish=told.append), worker(table, time, "b")
    leader.take()
    assert set(leader.held()) == {"y"}, "so that the other lease is for the other worker"
    other.take()
    for seconds in (FAILOVER / 2, FAILOVER / 2 + 0.1):
        time.now += seconds
        leader.renew()

    def renew() -> bool:
        """Is asked after the scan, and ahead of the writes, whether the leader is leaving."""
        table.write(requests.renew(lease_of(table, "x")))
        return False

    leader.take(is_leaving=renew)
    assert owners(table)["x"] == ("late", None)
    leader.take()  # sees that the owner is alive
    for seconds in (FAILOVER / 2, FAILOVER / 2 + 0.1):
        time.now += seconds
        leader.renew()
        leader.take()
    assert owners(table)["x"] == ("b", None)
    assert sum(isinstance(event, LeaseAssigned) for event in told) == 1


def test_trouble_with_the_rows_is_told_once_and_stops_nothing(
    table: LeaseTable, time: ManualTime, server: LocalServer
) -> None:
    create(table, "x")
    told: list[Event] = []
    me = worker(table, time, "a", publish=told.append)
    me.take()
    table.create(Lease("y", "y", lease_of(table, "x").checkpoint))
    for _ in range(2):
        time.now += 3.1
        me.renew()
        server.kinesis.faults = lambda call: (
            Fault.error("ValidationException") if call.operation == "UpdateItem" else None
        )
        me.take()
        server.kinesis.faults = None
    failed = [event for event in told if isinstance(event, FleetRowsFailed)]
    assert len(failed) == 1
    assert "x" in me.held()
    time.now += 3.1
    me.renew()
    me.take()
    assert any(isinstance(event, FleetRowsRecovered) for event in told)
    assert set(me.held()) == {"x", "y"}


def test_a_lease_that_has_moved_rests(table: LeaseTable, time: ManualTime) -> None:
    create(table, *IDS[:4])
    workers = {who: worker(table, time, who) for who in "abcd"}

    def looks(*names: str, after: float = SOON) -> None:
        time.now += after
        for who in names:
            workers[who].renew()
            workers[who].take()
            release_asked(workers[who])

    def counts() -> list[int]:
        return [len(one.held()) for one in workers.values()]

    for names in ("a", "ab", "ab", "abc", "abc", "abc"):
        looks(*names)
    assert counts() == [1, 2, 1, 0]
    for _ in range(14):
        looks(*"abcd", after=4 * SOON)
        assert counts() == [1, 2, 1, 0], "what b has has moved"
    for _ in range(16):
        looks(*"abcd", after=4 * SOON)
    assert counts() == [1, 1, 1, 1]


def test_leases_are_taken_if_nobody_can_become_the_leader(
    table: LeaseTable, time: ManualTime, dynamodb: Any, server: LocalServer
) -> None:
    put_version(dynamodb, table, coordinator_state.VERSION_3X)
    put_lock(dynamodb, table, "gone", seconds=20)
    create(table, "x")
    me = worker(table, time, "me")
    me.take()
    time.now += 20.1
    server.kinesis.faults = lambda call: (
        Fault.error("ValidationException") if call.operation == "PutItem" else None
    )
    me.take()
    server.kinesis.faults = None
    assert set(me.held()) == {"x"}


def test_the_load_is_told_every_half_a_minute(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    me = worker(table, time, "me")
    me.take()
    row = row_of(dynamodb, table, "me")
    assert row["sts"] == {"M": {}}, "throughput is in the leases"
    dynamodb.delete_item(TableName=table.name, Key={"leaseKey": {"S": "me"}})
    time.now += 29.0
    me.take()
    assert len(dynamodb.scan(TableName=table.name)["Items"]) == 2, "lock and version"
    time.now += 1.0
    me.take()
    assert row_of(dynamodb, table, "me")["entityType"] == {"S": "WORKER_METRIC_STATS"}


@pytest.mark.parametrize(
    "version", [coordinator_state.VERSION_2X, coordinator_state.UPGRADE_FROM_2X]
)
def test_a_fleet_that_goes_back_to_2x_has_no_leader(
    table: LeaseTable, time: ManualTime, dynamodb: Any, version: str, pair: Pair
) -> None:
    put_version(dynamodb, table, coordinator_state.VERSION_3X_WITH_ROLLBACK)
    first, second, told = pair
    first.take()
    assert told[0] == LeadershipChanged("a", True)
    put_version(dynamodb, table, version)
    time.now += SOON
    first.take()
    assert told[-1] == LeadershipChanged("a", False)
    assert "Leader" not in {
        row["leaseKey"]["S"] for row in dynamodb.scan(TableName=table.name)["Items"]
    }
    second.take()
    assert ("b", "a") in owners(table).values(), "it requests its share"


def test_a_leader_deletes_the_rows_of_workers_that_ended_a_day_ago(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    now = round(wall_clock())
    for who, updated in (("killed", now - 86_500), ("yesterday", now - 80_000)):
        Coordination.among_leases(table, may_share_table=True).write_stats(
            WorkerStats(who, updated)
        )
    create(table, "x")
    worker(table, time, "me").take()
    worker(table, time, "other").take()
    rows = {row["leaseKey"]["S"] for row in dynamodb.scan(TableName=table.name)["Items"]}
    assert rows == {"x", "yesterday", "me", "other", "Leader", coordinator_state.VERSION_KEY}


def test_a_dead_worker_gets_nothing_although_its_row_is_young(
    table: LeaseTable, time: ManualTime, pair: Pair
) -> None:
    first, second, told = pair
    for one in (first, second, first):
        one.take()
        time.now += SOON
    release_asked(first)
    second.take()
    assert len(second.held()) == 2
    del told[:]
    for _ in range(80):
        time.now += SOON
        first.renew()
        first.take()
    assert set(first.held()) == set(IDS[:4])
    assert not any(isinstance(event, LeaseAssigned) for event in told)


def test_a_new_leader_gives_nothing_to_a_worker_that_may_be_dead(
    table: LeaseTable, time: ManualTime
) -> None:
    create(table, *IDS[:4])
    rows = Coordination.find(table, table.name, may_share_table=True)
    rows.write_stats(WorkerStats("b", round(wall_clock()) - 15))
    leader = worker(table, time, "a")
    leader.take()
    assert set(leader.held()) == set(IDS[:4]), "what the leader before knew of b, nobody knows"
    rows.write_stats(WorkerStats("b", round(wall_clock())))
    time.now += SOON
    leader.take()
    assert list(owners(table).values()).count(("b", "a")) == 2


def test_who_may_not_look_for_tables_of_a_kcl_3_counts_as_before(
    table: LeaseTable, time: ManualTime, server: LocalServer
) -> None:
    create(table, "x")
    told: list[Event] = []
    me = worker(table, time, "by hand", "count", publish=told.append)
    beside = f"{table.name}-CoordinatorState"
    create(table, "foreign", owner="somebody")
    server.kinesis.faults = lambda call: (
        Fault.error("AccessDeniedException") if call.stream == beside else None
    )
    me.take()
    server.kinesis.faults = None
    assert any(call.stream == beside for call in server.kinesis.calls)
    assert "x" in me.held()
    assert not any(isinstance(event, FleetRowsFailed) for event in told)


def test_a_lease_that_named_the_worker_before_it_started_waits(
    table: LeaseTable, time: ManualTime, dynamodb: Any
) -> None:
    """Another process with its worker id may be alive."""
    put_version(dynamodb, table, coordinator_state.VERSION_3X)
    put_lock(dynamodb, table, "java")
    create(table, "x", owner="me")
    me = worker(table, time, "me", "count")
    me.take()
    time.now += SOON
    me.take()
    assert not me.held()
    time.now += FAILOVER * 2 / 3
    me.take()
    assert set(me.held()) == {"x"}


def test_who_cannot_tell_its_load_sees_that_the_leader_lives(
    table: LeaseTable, time: ManualTime, dynamodb: Any, server: LocalServer
) -> None:
    put_version(dynamodb, table, coordinator_state.VERSION_3X)
    create(table, "x")
    me = worker(table, time, "me", "count")
    server.kinesis.faults = lambda call: (
        Fault.error("ValidationException") if call.operation == "UpdateItem" else None
    )
    for beat in range(10):
        put_lock(dynamodb, table, "java", seconds=10, version=str(beat))
        me.take()
        time.now += 5.0
    assert not me.held()
    time.now += 5.1
    me.take()
    server.kinesis.faults = None
    me.take()
    assert set(me.held()) == {"x"}
