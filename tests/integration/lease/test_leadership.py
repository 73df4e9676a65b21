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
from sparkinesis.lease.assignment import coordinator_state
from sparkinesis.lease.assignment.assignment import Assignment
from sparkinesis.lease.assignment.coordination import Coordination
from sparkinesis.lease.assignment.worker_stats import WorkerStats
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.rules.observations import observe
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.local import Fault
from tests.failing import Failing
from tests.integration.lease.conftest import FAILOVER, IDS, SOON, Scene, lease
from tests.integration.lease.test_assignment import Used, sharing

STATES = "-CoordinatorState"


def lock_of(scene: Scene) -> str:
    """The version of the leader's lock: new with each heartbeat."""
    version: str = scene.row("Leader")["recordVersionNumber"]["S"]
    return version


def report(scene: Scene, *names: str) -> None:
    """Workers tell that they live."""
    rows = Coordination.among_leases(scene.table, may_share_table=True)
    for name in names:
        rows.write_stats(WorkerStats(name, round(wall_clock())))


def renew(scene: Scene, owner: str) -> None:
    """A worker renews its leases, but releases none."""
    for row in scene.table.leases():
        if row.actual_owner == owner:
            scene.table.write(requests.renew(row))


def test_a_leader_gives_a_sign_of_life_three_times_in_a_failover_time(scene: Scene) -> None:
    me = scene.worker("me")
    me.take()
    first = lock_of(scene)
    assert uuid.UUID(first).version == 4
    scene.time.now += 0.3 * FAILOVER - 0.1
    me.take()
    assert lock_of(scene) == first
    scene.time.now += 0.1
    me.take()
    second = lock_of(scene)
    assert second != first
    scene.time.now += 0.3 * FAILOVER
    me.take()
    assert lock_of(scene) not in {first, second}


def test_a_leader_goes_on_after_a_heartbeat_without_an_answer(scene: Scene) -> None:
    scene.create("x")
    told: list[Event] = []
    me = scene.worker("me", publish=told.append)
    me.take()
    scene.time.now += 0.3 * FAILOVER
    with scene.faults(Fault.dropped("after"), "UpdateItem"):
        me.take()
    scene.create("y")
    scene.time.now += SOON
    me.take()
    assert set(me.held()) == {"x", "y"}
    scene.time.now += SOON
    me.take()  # tells nothing
    kinds = (LeadershipChanged, FleetRowsFailed, FleetRowsRecovered)
    assert [type(one) for one in told if isinstance(one, kinds)] == list(kinds)


def test_leases_are_balanced_at_once_for_a_new_worker_and_then_every_six_failover_times(
    scene: Scene,
) -> None:
    scene.create(*IDS[:4])
    leader, other = sharing(scene)
    began = scene.time.now - SOON
    assert len(leader.held()) == len(other.held()) == 2
    for row in other.held().values():
        row.checkpoint(ExtendedSequenceNumber(SHARD_END))
    while scene.time.now < began + 6 * FAILOVER - SOON:
        scene.time.now += SOON
        leader.renew()
        leader.take()
        other.renew()
        other.take()
        assert ("b", "a") not in scene.owners().values()
    scene.time.now = began + 6 * FAILOVER
    leader.renew()
    leader.take()
    assert list(scene.owners().values()).count(("b", "a")) == 1


def test_a_handoff_that_does_not_end_is_ended_by_the_leader(scene: Scene) -> None:
    """Its owner renews the lease, but never hears that it is to release it."""
    scene.create(*IDS[:3], owner="deaf")
    scene.put_version()
    report(scene, "deaf", "idle")
    leader = scene.worker("me", "count")
    leader.take()
    given = {key: who for key, who in scene.owners().items() if who[1] is not None}
    assert set(given.values()) == {("me", "deaf"), ("idle", "deaf")}
    asked = next(key for key, who in given.items() if who[0] == "idle")
    scene.time.now += SOON
    leader.take()  # sees the request
    began = scene.time.now
    for seconds in (10, 20, 30, 40, 50):
        scene.time.now = began + seconds
        renew(scene, "deaf")
        leader.renew()
        leader.take()
        assert scene.owners()[asked] == ("idle", "deaf"), seconds
    scene.time.now += 0.1
    leader.take()
    assert scene.owners()[asked][1] is None


@pytest.mark.parametrize("failover", [5.0, 20.0])
def test_the_load_is_told_at_least_every_half_a_minute_with_what_was_measured(
    scene: Scene, failover: float
) -> None:
    meter = Used(40.0)
    rows = assignment(scene, failover=failover, meter=meter)
    second = 1_800_000_000
    scene.java_leads()

    def told(after: float) -> dict[str, Any]:
        scene.time.now += after
        scan = scene.table.scan()
        rows.after_scan(
            TableScan(scan.leases, coordination=scan.coordination), {}, (), scene.time.now
        )
        return scene.row("me")

    row = told(0.0)
    assert row["lut"] == {"N": str(second)}, "by the worker's clock, if the service tells no time"
    assert row["sts"] == {"M": {"C": {"L": [{"N": "40.000000"}]}}}
    assert row["opr"] == {"M": {"C": {"L": [{"N": "100"}]}}}
    meter.percent = 50.0
    every = min(30.0, 3 * failover)
    assert told(every - 0.1) == row
    assert told(0.1)["sts"] == {"M": {"C": {"L": [{"N": "40.000000"}, {"N": "50.000000"}]}}}


def test_who_can_measure_nothing_tells_no_load(scene: Scene) -> None:
    meter = Used(40.0)
    meter.can_measure = False
    assignment(scene, meter=meter).after_scan(scene.table.scan(), {}, (), scene.time.now)
    assert scene.row("me")["sts"] == {"M": {}}


def test_a_leader_gives_no_worker_more_than_it_may_have(scene: Scene) -> None:
    scene.create(*IDS[:4])
    scan = scene.table.scan()
    seen = observe({}, scan.leases, scene.time.now, "me")
    state = assignment(scene, max_leases=3).after_scan(scan, seen, (), scene.time.now)
    assert [move.to for move in state.moves] == ["me"] * 3


def assignment(
    scene: Scene,
    *,
    failover: float = FAILOVER,
    meter: Any = None,
    max_leases: int = 100,
) -> Assignment:
    return Assignment(
        scene.table,
        scene.table.name,
        "me",
        balance="load",
        settings=TakeSettings(failover, max_leases, 100, handoff_timeout=30.0, scan_interval=1.5),
        clock=scene.time,
        wall_clock_ms=lambda: 1_800_000_000_000,
        rng=random.Random(1),
        meter=meter,
    )


def test_who_never_scanned_leaves_without_a_call(scene: Scene) -> None:
    scene.server.kinesis.calls.clear()
    assignment(scene).leave()
    assert len(scene.server.kinesis.calls) == 0


def test_who_cannot_delete_its_row_gives_up_the_leadership_all_the_same(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.create("x")
    told: list[Event] = []
    me = scene.worker("me", publish=told.append)
    me.take()
    with scene.faults(Failing("DeleteItem", Fault.error("AccessDeniedException"))):
        me.leave()
    assert "Leaving the fleet failed" in caplog.text
    assert told[-1] == LeadershipChanged("me", False)
    keys = scene.row_keys()
    assert keys == {"x", "me", coordinator_state.VERSION_KEY}
    me.leave()
    assert "me" in scene.row_keys()


def test_a_leader_without_leases_or_with_one_that_lives_is_alive(scene: Scene) -> None:
    scene.java_leads()
    scene.create("x")
    me = scene.worker("me", "count")
    me.take()
    assert not me.held()
    scene.create("y", "z", owner="java")
    me.take()
    scene.time.now += FAILOVER + 0.1
    scene.table.write(requests.renew(scene.lease("y")))
    me.take()
    assert not me.held()


@pytest.mark.parametrize(("age", "takes"), [(50, False), (70, True)])
def test_a_leader_that_ended_long_ago_is_not_waited_for(
    scene: Scene, *, age: int, takes: bool
) -> None:
    """Its lock holds for two minutes from the first scan of it, but the row of its load is old."""
    scene.java_leads()
    rows = Coordination.among_leases(scene.table, may_share_table=True)
    rows.write_stats(WorkerStats("java", round(wall_clock()) - age))
    rows.write_stats(WorkerStats("other", round(wall_clock()) - (120 - age)))
    scene.create("x")
    me = scene.worker("me", "count")
    me.take()
    assert bool(me.held()) is takes


def test_who_ends_in_a_leaders_fleet_withdraws_nothing_that_it_holds(scene: Scene) -> None:
    """It releases that itself, once its record processors have ended."""
    scene.create(*IDS[:4])
    scene.table.create(lease("ended", owner="b", checkpoint=SHARD_END))
    _, second = sharing(scene)
    before = scene.table.leases()
    second.withdraw_requests()
    assert scene.table.leases() == before
    for held in second.held().values():
        held.checkpoint(ExtendedSequenceNumber("500"))
    assert len(second.held()) == 2


def test_trouble_with_the_rows_makes_nobody_steal_from_a_leaders_fleet(scene: Scene) -> None:
    """And what the leader gives is adopted at once."""
    scene.java_leads()
    scene.create("a", "b", "c", owner="java")
    scene.create("new")
    told: list[Event] = []
    me = scene.worker("me", "count", publish=told.append)
    me.take()
    scene.table.write(requests.assign(scene.lease("new"), "me"))
    scene.time.now += 30.0
    renew(scene, "java")
    with scene.faults(Failing("UpdateItem", Fault.error("ValidationException"))):
        me.take()
    assert any(isinstance(event, FleetRowsFailed) for event in told)
    assert scene.owners() == {**dict.fromkeys("abc", ("java", None)), "new": ("me", None)}
    assert set(me.held()) == {"new"}


def test_who_may_not_look_for_the_rows_steals_as_in_a_fleet_without_a_leader(scene: Scene) -> None:
    scene.create("a", "b", owner="other")
    told: list[Event] = []
    me = scene.worker("me", publish=told.append)
    denied = Fault.error("AccessDeniedException")
    with scene.faults(Failing(None, then=denied, stream=f"{scene.table.name}{STATES}")):
        me.take()
    assert any(isinstance(event, FleetRowsFailed) for event in told)
    assert ("me", "other") in scene.owners().values()


def test_who_counts_and_may_not_look_for_tables_of_a_kcl_3_0_tells_its_load(scene: Scene) -> None:
    scene.java_leads()
    me = scene.worker("me", "count")
    denied = Fault.error("AccessDeniedException")
    scene.server.kinesis.faults = Failing(None, then=denied, stream=f"{scene.table.name}{STATES}")
    me.take()
    assert "lut" in scene.row("me")


def test_a_shard_that_has_ended_says_nothing_of_its_reader_and_is_given_to_nobody(
    scene: Scene,
) -> None:
    for key, owner in (("read", "b"), ("left", None)):
        scene.table.create(lease(key, owner=owner, checkpoint=SHARD_END))
    report(scene, "b")
    leader = scene.worker("a")
    leader.take()
    scene.time.now += FAILOVER + 0.1
    scene.create(*IDS[:4])
    leader.take()
    found = scene.owners()
    assert (found.pop("read"), found.pop("left")) == (("b", None), (None, None))
    assert sorted(str(who) for who, _ in found.values()) == ["a", "a", "b", "b"]


def test_who_leads_again_balances_at_once(scene: Scene) -> None:
    scene.create(*IDS[:4])
    scene.put_version()
    report(scene, "b")
    told: list[Event] = []
    me = scene.worker("a", "count", publish=told.append)
    me.take()
    assert sorted(str(who) for who, _ in scene.owners().values()) == ["a", "a", "b", "b"]
    scene.put_lock("java", seconds=4)
    scene.create(*IDS[4:], "s6", "s7", owner="b")

    def changes() -> list[bool]:
        return [event.leads for event in told if isinstance(event, LeadershipChanged)]

    while changes() != [True, False, True]:
        assert ("a", "b") not in scene.owners().values()
        scene.time.now += SOON
        me.renew()
        renew(scene, "b")
        me.take()
    assert list(scene.owners().values()).count(("a", "b")) == 2
