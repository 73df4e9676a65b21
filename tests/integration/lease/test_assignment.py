"""Workers whose leases a leader assigns, on a lease table over HTTP: who assigns, who adopts."""

from __future__ import annotations

from time import time as wall_clock

import pytest
from msgspec.structs import replace

from sparkinesis.events import (
    Event,
    FleetRowsFailed,
    FleetRowsRecovered,
    LeadershipChanged,
    LeaseAssigned,
)
from sparkinesis.lease.assignment import coordinator_state
from sparkinesis.lease.assignment.assigner import Balance
from sparkinesis.lease.assignment.coordination import Coordination
from sparkinesis.lease.assignment.worker_stats import WorkerStats
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.table import requests
from sparkinesis.local import Call, Fault
from sparkinesis.stream.address import StreamIdentifier
from tests.failing import Failing
from tests.integration.lease.conftest import FAILOVER, IDS, SOON, Scene, lease, take_rows

Pair = tuple[LeaseCoordinator, LeaseCoordinator, list[Event]]


@pytest.fixture
def pair(scene: Scene, told: list[Event]) -> Pair:
    """The workers "a", which leads if it scans first, and "b" on four leases; the events of "a"."""
    scene.create(*IDS[:4])
    return scene.worker("a", publish=told.append), scene.worker("b"), told


def release_asked(owner: LeaseCoordinator) -> None:
    owner.renew()  # shows the requests
    for held in owner.held().values():
        if held.handoff_to is not None:
            held.release()


def sharing(
    scene: Scene, balance: Balance = "throughput"
) -> tuple[LeaseCoordinator, LeaseCoordinator]:
    """The worker "a", which leads, and "b", which has its share of the leases from "a"."""
    leader, other = (scene.worker(who, balance) for who in "ab")
    leader.take()
    other.take()
    scene.time.now += SOON
    leader.take()
    release_asked(leader)
    scene.time.now += SOON
    other.take()
    return leader, other


def test_the_first_worker_leads_and_gives_the_second_its_share(scene: Scene, pair: Pair) -> None:
    first, second, told = pair
    first.take()
    assert set(first.held()) == set(IDS[:4]), "a leader takes what it gives itself"
    assert scene.row("Leader")["ownerName"] == {"S": "a"}
    version = scene.row(coordinator_state.VERSION_KEY)
    assert (version["cv"], version["mb"]) == ({"S": coordinator_state.VERSION_3X}, {"S": "a"})
    second.take()
    assert not second.held()
    assert set(scene.owners().values()) == {("a", None)}, "who does not lead asks for nothing"
    scene.time.now += SOON
    first.take()
    asked = {key for key, who in scene.owners().items() if who == ("b", "a")}
    assert len(asked) == 2
    release_asked(first)
    scene.time.now += SOON
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
    scene: Scene, leases: int, given: list[str]
) -> None:
    busy = scene.worker("a", "load", meter=Used(90.0))
    idle = scene.worker("b", "load", meter=Used(10.0))
    busy.take()
    idle.take()
    scene.create(*IDS[:leases])
    scene.time.now += SOON
    busy.take()
    assert sorted(str(who) for who, _ in scene.owners().values()) == given


def test_a_killed_leader_costs_one_failover_time(scene: Scene) -> None:
    scene.create(*IDS[:4])
    first, second, third = (scene.worker(who) for who in "abc")
    first.take()
    for one in (second, third):
        one.take()
    scene.time.now += SOON
    first.take()
    release_asked(first)
    for one in (second, third):
        one.take()
    assert len(second.held()) == len(third.held()) == 1
    for _ in range(10):
        scene.time.now += SOON
        for one in (second, third):
            one.renew()
            one.take()
    assert len(first.held()) == 2
    scene.time.now += 0.1
    second.take()
    third.take()
    assert len(second.held()) + len(third.held()) == 4
    assert not first.held()


def test_a_leader_assigns_no_lease_of_a_stream_that_its_application_lacks(scene: Scene) -> None:
    """A worker that reads the stream all the same, as during a deployment, takes it by itself."""
    kept, left = (StreamIdentifier("123456789012", name, 1_700_000_000) for name in ("a", "b"))
    for stream in (kept, left):
        scene.table.create(
            replace(lease(lease_key(stream, IDS[0])), stream=stream, shard_id=IDS[0])
        )
    leader = scene.worker("leader", several_streams=True)
    older = scene.worker("older", several_streams=True)
    for _ in range(round(3 * FAILOVER / SOON)):
        leader.take(reads=lambda row: row.stream == kept, wants=kept.__eq__)
        leader.renew()
        older.take()
        assert {lease.owner for lease in scene.table.leases() if lease.stream == left} == {None}
        scene.time.now += SOON
    scene.time.now += SOON
    older.take()
    assert {str(stream): set(one.held()) for stream, one in ((kept, leader), (left, older))} == {
        str(stream): {lease_key(stream, IDS[0])} for stream in (kept, left)
    }


def test_a_dead_worker_that_is_given_a_lease_is_given_no_more(scene: Scene) -> None:
    """The lease that it was given before anybody could know is young, and proves nothing."""
    scene.put_version()
    scene.create(*IDS[:4])
    leader, dead = sharing(scene, "count")
    before = dead.held().keys()
    assert len(before) == 2
    scene.time.now += FAILOVER / 2
    scene.create(*IDS[4:], "another")
    release_asked(leader)
    leader.take()
    given = {key for key, who in scene.owners().items() if who == ("b", None)} - before
    assert given, "nobody can know yet"
    for number in range(int(FAILOVER) + 2):
        scene.time.now += SOON
        release_asked(leader)
        scene.create(f"new-{number}")
        leader.take()
        if leader.snapshot.expired:
            assert scene.owners()[f"new-{number}"] == ("a", None)
    assert leader.snapshot.expired


def test_a_dead_java_leader_is_not_waited_for(scene: Scene) -> None:
    """Its lock holds for two minutes."""
    scene.java_leads()
    scene.create(*IDS[:2], owner="java")
    me = scene.worker("me", "count")
    me.take()
    scene.time.now += FAILOVER
    me.take()
    assert not me.held()
    scene.time.now += 0.1
    me.take()
    assert set(me.held()) == set(IDS[:2])
    assert scene.row("Leader")["ownerName"] == {"S": "java"}


def test_what_a_leader_gives_is_adopted_at_once(scene: Scene) -> None:
    scene.java_leads()
    scene.create("new")
    scene.create("old", owner="java")
    me = scene.worker("me", "count")
    me.take()
    assert not me.held(), "the leader assigns even a lease that nobody has"
    assert "lut" in scene.row("me")
    scene.table.write(requests.assign(scene.lease("new"), "me"))
    scene.table.write(requests.initiate_handoff(scene.lease("old"), "me"))
    scene.time.now += SOON
    me.take()
    assert set(me.held()) == {"new"}
    scene.table.write(requests.assign(scene.lease("old"), "me"))
    scene.time.now += SOON
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
    scene: Scene, version: str, tells: bool
) -> None:
    scene.put_version(version)
    scene.create(*IDS[:4], owner="java")
    me = scene.worker("me")
    me.take()
    assert ("me", "java") in scene.owners().values(), "it requests what it steals"
    rows = scene.dynamodb.scan(TableName=scene.table.name)["Items"]
    keys = {row["leaseKey"]["S"] for row in rows}
    assert ("me" in keys) is tells, "a fleet under upgrade waits for the metrics of each worker"
    assert "Leader" not in keys


def test_who_ends_because_of_a_twin_leaves_it_its_leases(scene: Scene) -> None:
    scene.create("x", "y")
    _, me = sharing(scene)
    (mine,) = me.held()
    twin = LeaseRenewer(scene.table, "b", FAILOVER, scene.time)
    take_rows(twin, scene.table, scene.time, [scene.lease(mine)], who="b")
    me.renew()
    scene.time.now += SOON
    me.take()
    assert me.duplicate_worker_leases == (mine,)
    me.withdraw_requests()
    assert scene.owners()[mine] == ("b", None)


def test_a_worker_that_counts_makes_no_fleet_with_a_leader(scene: Scene) -> None:
    scene.create("a")
    me = scene.worker("host-1-0123456789ab", "count")
    me.take()
    assert set(me.held()) == {"a"}
    assert len(scene.table.scan().coordination) == 0
    asked = {call.stream for call in scene.server.kinesis.calls}
    assert f"{scene.table.name}-CoordinatorState" not in asked
    assert scene.table.name in asked


def test_who_leaves_is_no_member_and_leads_no_more(scene: Scene) -> None:
    scene.create(*IDS[:2])
    told: list[Event] = []
    first, second = scene.worker("a", publish=told.append), scene.worker("b")
    first.take()
    second.take()
    first.leave()
    assert told[-1] == LeadershipChanged("a", False)
    keys = scene.row_keys()
    assert keys == {*IDS[:2], "b", coordinator_state.VERSION_KEY}
    for held in first.held().values():
        held.release()
    scene.time.now += SOON
    second.take()
    assert set(second.held()) == set(IDS[:2])


def test_who_leaves_is_gone_before_its_lock_is_released(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next leader counts it in, and gives it leases."""
    scene.create(*IDS[:2])
    leader = scene.worker("a")
    leader.take()
    locked: list[bool] = []
    delete = Coordination.delete_stats

    def noted(self: Coordination, stats: WorkerStats) -> None:
        locked.append("isReleased" not in scene.row("Leader"))
        delete(self, stats)

    monkeypatch.setattr(Coordination, "delete_stats", noted)
    leader.leave()
    assert locked == [True]


def test_who_ends_withdraws_what_it_was_given_during_its_last_scan(
    scene: Scene, pair: Pair
) -> None:
    first, second, _ = pair
    first.take()
    second.take()
    second.take(is_leaving=lambda: True)
    scene.time.now += SOON
    first.take()
    assert ("b", "a") in scene.owners().values()
    second.leave()
    second.withdraw_requests()
    assert set(scene.owners().values()) == {("a", None)}


def test_who_releases_its_leases_is_not_given_them_back(scene: Scene, pair: Pair) -> None:
    first, second, _ = pair
    for one in (first, second, first):
        one.take()
        scene.time.now += SOON
    release_asked(first)
    second.take()
    assert len(second.held()) == 2
    scene.time.now += SOON
    first.take()
    for held in second.held().values():
        held.release()
    scene.time.now += SOON
    first.take()
    assert set(scene.owners().values()) == {("a", None)}, "its row is still there"


def test_a_leader_that_slept_assigns_nothing(scene: Scene, pair: Pair) -> None:
    first, second, told = pair
    first.take()
    second.take()
    for _ in range(2):
        scene.time.now += FAILOVER / 2 + 0.1
        second.take()
    assert set(second.held()) == set(IDS[:4])
    before = scene.owners()
    first.take()
    leads = [event.leads for event in told if isinstance(event, LeadershipChanged)]
    assert leads == [True, False]
    assert scene.owners() == before


def test_a_leader_whose_heartbeat_took_too_long_assigns_nothing(scene: Scene, pair: Pair) -> None:
    """The others count from the moment when the heartbeat reached the table."""
    first, second, told = pair
    first.take()
    second.take()
    before = scene.owners()
    scene.time.now += FAILOVER / 2
    lock = scene.row("Leader")

    def slow(call: Call) -> None:
        if call.operation == "UpdateItem":
            scene.server.kinesis.faults = None
            scene.time.now += FAILOVER + 0.1

    scene.server.kinesis.faults = slow
    first.take()
    assert scene.row("Leader") != lock
    assert [one for one in told if isinstance(one, LeadershipChanged)] == [
        LeadershipChanged("a", True),
        LeadershipChanged("a", False),
    ]
    assert scene.owners() == before


def test_a_lease_that_its_owner_has_renewed_is_not_assigned(scene: Scene) -> None:
    """The owner was late: its renewal comes between the leader's scan and the leader's write."""
    scene.create("x", owner="late")
    scene.create("y")
    told: list[Event] = []
    leader, other = scene.worker("a", publish=told.append), scene.worker("b")
    leader.take()
    assert set(leader.held()) == {"y"}, "so that the other lease is for the other worker"
    other.take()
    for seconds in (FAILOVER / 2, FAILOVER / 2 + 0.1):
        scene.time.now += seconds
        leader.renew()

    def renew() -> bool:
        """Is asked after the scan, and ahead of the writes, whether the leader is leaving."""
        scene.table.write(requests.renew(scene.lease("x")))
        return False

    leader.take(is_leaving=renew)
    assert scene.owners()["x"] == ("late", None)
    leader.take()  # sees that the owner is alive
    for seconds in (FAILOVER / 2, FAILOVER / 2 + 0.1):
        scene.time.now += seconds
        leader.renew()
        leader.take()
    assert scene.owners()["x"] == ("b", None)
    assert sum(isinstance(event, LeaseAssigned) for event in told) == 1


def test_trouble_with_the_rows_is_told_once_and_stops_nothing(scene: Scene) -> None:
    scene.create("x")
    told: list[Event] = []
    me = scene.worker("a", publish=told.append)
    me.take()
    scene.table.create(Lease("y", "y", scene.lease("x").checkpoint))
    for _ in range(2):
        scene.time.now += 3.1
        me.renew()
        with scene.faults(Fault.error("ValidationException"), "UpdateItem"):
            me.take()
    failed = [event for event in told if isinstance(event, FleetRowsFailed)]
    assert len(failed) == 1
    assert "x" in me.held()
    scene.time.now += 3.1
    me.renew()
    me.take()
    assert any(isinstance(event, FleetRowsRecovered) for event in told)
    assert set(me.held()) == {"x", "y"}


def test_a_lease_that_has_moved_rests(scene: Scene) -> None:
    scene.create(*IDS[:4])
    workers = {who: scene.worker(who) for who in "abcd"}

    def looks(*names: str, after: float = SOON) -> None:
        scene.time.now += after
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


def test_leases_are_taken_if_nobody_can_become_the_leader(scene: Scene) -> None:
    scene.put_version()
    scene.put_lock("gone", seconds=20)
    scene.create("x")
    me = scene.worker("me")
    me.take()
    scene.time.now += 20.1
    with scene.faults(Fault.error("ValidationException"), "PutItem"):
        me.take()
    assert set(me.held()) == {"x"}


@pytest.mark.parametrize(
    "version", [coordinator_state.VERSION_2X, coordinator_state.UPGRADE_FROM_2X]
)
def test_a_fleet_that_goes_back_to_2x_has_no_leader(scene: Scene, version: str, pair: Pair) -> None:
    scene.put_version(coordinator_state.VERSION_3X_WITH_ROLLBACK)
    first, second, told = pair
    first.take()
    assert told[0] == LeadershipChanged("a", True)
    scene.put_version(version)
    scene.time.now += SOON
    first.take()
    assert told[-1] == LeadershipChanged("a", False)
    assert "Leader" not in scene.row_keys()
    second.take()
    assert ("b", "a") in scene.owners().values(), "it requests its share"


def test_a_leader_deletes_the_rows_of_workers_that_ended_a_day_ago(scene: Scene) -> None:
    now = round(wall_clock())
    for who, updated in (("killed", now - 86_500), ("yesterday", now - 80_000)):
        Coordination.among_leases(scene.table, may_share_table=True).write_stats(
            WorkerStats(who, updated)
        )
    scene.create("x")
    scene.worker("me").take()
    scene.worker("other").take()
    rows = scene.row_keys()
    assert rows == {"x", "yesterday", "me", "other", "Leader", coordinator_state.VERSION_KEY}


def test_a_dead_worker_gets_nothing_although_its_row_is_young(scene: Scene, pair: Pair) -> None:
    first, second, told = pair
    for one in (first, second, first):
        one.take()
        scene.time.now += SOON
    release_asked(first)
    second.take()
    assert len(second.held()) == 2
    del told[:]
    for _ in range(80):
        scene.time.now += SOON
        first.renew()
        first.take()
    assert set(first.held()) == set(IDS[:4])
    assert not any(isinstance(event, LeaseAssigned) for event in told)


def test_a_new_leader_gives_nothing_to_a_worker_that_may_be_dead(scene: Scene) -> None:
    scene.create(*IDS[:4])
    rows = Coordination.find(scene.table, scene.table.name, may_share_table=True)
    rows.write_stats(WorkerStats("b", round(wall_clock()) - 15))
    leader = scene.worker("a")
    leader.take()
    assert set(leader.held()) == set(IDS[:4]), "what the leader before knew of b, nobody knows"
    rows.write_stats(WorkerStats("b", round(wall_clock())))
    scene.time.now += SOON
    leader.take()
    assert list(scene.owners().values()).count(("b", "a")) == 2


def test_who_may_not_look_for_tables_of_a_kcl_3_counts_as_before(scene: Scene) -> None:
    scene.create("x")
    told: list[Event] = []
    me = scene.worker("by hand", "count", publish=told.append)
    beside = f"{scene.table.name}-CoordinatorState"
    scene.create("foreign", owner="somebody")
    with scene.faults(Failing(None, then=Fault.error("AccessDeniedException"), stream=beside)):
        me.take()
    assert any(call.stream == beside for call in scene.server.kinesis.calls)
    assert "x" in me.held()
    assert not any(isinstance(event, FleetRowsFailed) for event in told)


def test_a_lease_that_named_the_worker_before_it_started_waits(scene: Scene) -> None:
    """Another process with its worker id may be alive."""
    scene.java_leads()
    scene.create("x", owner="me")
    me = scene.worker("me", "count")
    me.take()
    scene.time.now += SOON
    me.take()
    assert not me.held()
    scene.time.now += FAILOVER * 2 / 3
    me.take()
    assert set(me.held()) == {"x"}


def test_who_cannot_tell_its_load_sees_that_the_leader_lives(scene: Scene) -> None:
    scene.put_version()
    scene.create("x")
    me = scene.worker("me", "count")
    with scene.faults(Fault.error("ValidationException"), "UpdateItem"):
        for beat in range(10):
            scene.put_lock("java", seconds=10, version=str(beat))
            me.take()
            scene.time.now += 5.0
        assert not me.held()
        scene.time.now += 5.1
        me.take()
    me.take()
    assert set(me.held()) == {"x"}
