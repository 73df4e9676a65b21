"""When a worker looks at its lease table again, how it reads, and what it finds at its start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from sparkinesis.errors import DuplicateWorkerIdError, LeaseTableNotFoundError
from sparkinesis.events import Event, LeaseReadable, LeaseUnreadable, OwnerSilent
from sparkinesis.lease.assignment.assigner import Balance
from sparkinesis.lease.extended_sequence_number import SHARD_END
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import TableScan, read_rows
from sparkinesis.lease.table.statements import BATCH
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Call
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests.integration.lease.conftest import (
    FAILOVER,
    Scene,
    lease,
)
from tests.integration.lease.test_coordinator import take_unanswered

INTERVAL = 1.5
"""Seconds between two scans while leases are to move: half a renew interval."""


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each scan is consistent, which costs twice as much."""
    found: list[bool] = []
    scan = LeaseTable.scan

    def noted(
        self: LeaseTable,
        retry: Backoff | None = None,
        *,
        consistent: bool = True,
        read: Callable[[Iterable[Mapping[str, Any]]], TableScan] = read_rows,
    ) -> TableScan:
        found.append(consistent)
        return scan(self, retry, consistent=consistent, read=read)

    monkeypatch.setattr(LeaseTable, "scan", noted)
    return found


def test_who_has_no_lease_waits_for_nothing_at_its_start(scene: Scene, scans: list[bool]) -> None:
    scene.create("a", owner="other")
    scene.create("b")
    waits: list[float] = []
    scene.coordinator().require_unique_worker_id(waits.append)
    assert (waits, scans) == ([], [True])


def test_a_twin_is_found_at_the_start_by_the_leases_that_it_renews(
    scene: Scene, scans: list[bool]
) -> None:
    scene.create("a", "b", "c", owner="me")
    scene.create("d", owner="other")
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        for key in "acd":
            scene.table.write(requests.renew(scene.lease(key)))

    with pytest.raises(DuplicateWorkerIdError, match="it renews a, c in the"):
        scene.coordinator().require_unique_worker_id(wait)
    assert (waits, scans) == ([FAILOVER / 2], [True, True])


def test_the_time_of_a_start_counts_for_leases_that_nobody_renews(scene: Scene) -> None:
    scene.create("a", owner="dead")
    scene.create("b", owner="me")
    me = scene.coordinator()
    me.require_unique_worker_id(lambda _: None)
    scene.time.now += FAILOVER + 0.1
    me.take()
    assert set(me.held()) == {"a", "b"}


def test_a_scan_is_consistent_only_while_a_write_is_in_doubt(
    scene: Scene, scans: list[bool]
) -> None:
    scene.create("a")
    me = scene.coordinator()
    me.take()
    me.take()
    assert scans == [False, False]
    me.streams_of_others()
    assert scans == [False, False, True]
    scene.create("b")
    take_unanswered(scene.server, me)
    me.take()
    me.take()
    assert scans[3:] == [False, True, False]


def test_who_has_all_leases_scans_every_four_intervals(scene: Scene) -> None:
    scene.create("a")
    me = scene.coordinator()
    assert me.due_in() <= 0, "at once"
    me.take()
    assert me.due_in() == INTERVAL, "the lease was nobody's"
    scene.time.now += INTERVAL
    me.take()
    assert me.due_in() == 4 * INTERVAL
    scene.time.now += 1.0
    assert me.due_in() == 4 * INTERVAL - 1.0
    me.held()["a"].release()
    assert me.due_in() == INTERVAL - 1.0, "the shard may have ended, and children follow"


def test_a_lease_that_waits_for_this_worker_is_looked_for_soon(scene: Scene) -> None:
    scene.create("a", "b", owner="old")
    me = scene.coordinator()
    assert me.take()
    assert me.due_in() == INTERVAL / 3


def test_the_pause_counts_from_the_begin_of_a_scan_and_ages_from_its_end(scene: Scene) -> None:
    scene.create("a", owner="dead")
    me = scene.coordinator()

    def slow(call: Call) -> None:
        scene.time.now += 1.0 * (call.operation == "Scan")

    with scene.faults(slow):
        me.take()
    assert me.due_in() == INTERVAL - 1.0, "midway between two rounds of renewals"
    scene.time.now += FAILOVER
    me.take()
    assert me.held() == {}, "the lease was first seen when the slow answer came"
    scene.time.now += 0.1
    me.take()
    with scene.faults(slow):
        me.take()
    me.held()["a"].release()
    assert me.due_in() == INTERVAL - 1.0


def test_a_shard_waits_until_each_parent_is_finished_or_has_no_lease(scene: Scene) -> None:
    scene.create("open")
    scene.table.create(lease("done", checkpoint=SHARD_END))
    finished = scene.coordinator().are_finished
    assert all(map(finished, ([], ["done"], ["gone"], ["done", "gone"])))
    assert not any(map(finished, (["open"], ["done", "open"], ["open", "gone"])))


@pytest.mark.parametrize("case", ["leads", "has a peer", "reads several streams"])
def test_who_is_not_alone_or_leads_scans_every_two_intervals(scene: Scene, case: str) -> None:
    """A leader proves that it is alive; and leases of another stream may appear."""
    if case != "reads several streams":
        scene.create("a")
        me = scene.worker("me", "throughput" if case == "leads" else "count")
        if case == "has a peer":
            scene.create("b", owner="host-1-0123456789ab")
    else:
        stream = StreamIdentifier("123456789012", "s", 1_700_000_000)
        scene.table.create(lease("a").in_stream(stream))
        me = scene.worker("me", "count", several_streams=True)
    me.take()
    scene.time.now += INTERVAL
    me.take()
    assert me.due_in() == 2 * INTERVAL


def test_scans_come_midway_between_two_rounds_of_renewals(scene: Scene) -> None:
    scene.create("a")
    me = scene.coordinator()
    for _ in range(2):
        me.take()
        scene.time.now += INTERVAL
    scene.time.now += 1.0
    me.renew()
    renewed = scene.time.now
    scene.time.now += 2.0
    me.take()
    assert scene.time.now + me.due_in() == renewed + 5 * INTERVAL


def test_a_lease_that_nobody_here_can_read_or_that_has_ended_is_not_waited_for(
    scene: Scene,
) -> None:
    scene.create("a")
    scene.table.create(lease("b", checkpoint=SHARD_END))
    me = scene.coordinator()
    assert not me.take(reads=lambda row: row.key != "a")
    assert me.held() == {}


@pytest.mark.parametrize("balance", ["count", "throughput"])
def test_who_leaves_makes_no_call_after_its_scan(scene: Scene, balance: Balance) -> None:
    """Nor does it tell its load to a leader, who would give it leases."""
    scene.create("a", "b", "c")
    scene.create("d", "e", owner="host-1-0123456789ab")
    me = scene.worker("host-1-0123456789ab", balance)
    me.require_unique_worker_id(lambda _: None)
    scene.time.now += FAILOVER
    scene.server.kinesis.calls.clear()
    me.take(is_leaving=lambda: True)
    assert [call.operation for call in scene.server.kinesis.calls] == ["Scan"]


@pytest.mark.parametrize("owner", [None, "me"])
def test_many_leases_are_taken_in_few_calls(scene: Scene, *, owner: str | None) -> None:
    scene.create(*(f"s{n}" for n in range(BATCH + 5)), owner=owner)
    me = scene.coordinator()
    me.require_unique_worker_id(lambda _: None)
    scene.time.now += FAILOVER
    scene.server.kinesis.calls.clear()
    me.take()
    assert len(me.held()) == BATCH + 5
    made = Counter(call.operation for call in scene.server.kinesis.calls)
    assert made == {"Scan": 1, "BatchExecuteStatement": 3}, "one of them is the probe"
    tokens = [held.fencing_token for held in me.held().values()]
    assert min(tokens) >= 1_700_000_000 * 1_000_000, "the time, by the table's clock"


def test_a_lease_that_is_lost_during_a_scan_keeps_no_other_from_being_taken(scene: Scene) -> None:
    """The look may show it as it was; nor has another process of this worker's id renewed it."""
    scene.create("a")
    me = scene.coordinator()
    me.take()
    scene.create("b")
    held = me.held()["a"]
    with scene.faults(lambda _: held.lose("the test says so")):
        me.take()
    assert set(me.held()) == {"b"}


def test_a_twin_is_noticed_by_a_row_that_was_deleted_and_made_again(scene: Scene) -> None:
    """The counters begin anew; this worker has written higher ones."""
    scene.create("a")
    me = scene.coordinator()
    me.take()
    for _ in range(9):
        me.renew()
    me.held()["a"].release()
    assert scene.table.delete(scene.lease("a"))
    me.take()
    scene.create("a", owner="me")
    for _ in range(3):
        me.take()
        scene.table.write(requests.renew(scene.lease("a")))
    assert me.duplicate_worker_leases == ("a",)


def test_the_leases_of_a_twin_are_told_in_order(scene: Scene) -> None:
    keys = tuple(f"s{n}" for n in range(6))
    scene.create(*keys)
    me = scene.coordinator()
    while len(me.held()) < 6:
        me.take()
        scene.time.now += INTERVAL
        me.renew()
    for key in keys:
        scene.table.write(requests.take(scene.lease(key), "me"))
    me.renew()
    me.take()
    assert me.duplicate_worker_leases == keys


def test_workers_that_fall_silent_are_told_in_order_with_their_longest_silence(
    scene: Scene,
) -> None:
    told: list[Event] = []
    names = [f"dead-{n}" for n in range(6)]
    for name in names:
        scene.create(f"{name}-1", f"{name}-2", owner=name)
    me = scene.coordinator(publish=told.append)
    me.take()
    scene.time.now += 1.0
    for name in names:
        scene.table.write(requests.renew(scene.lease(f"{name}-2")))
    me.take()
    scene.time.now += FAILOVER + 0.5
    me.take()
    silent = [event for event in told if isinstance(event, OwnerSilent)]
    assert [event.owner for event in silent] == names
    assert {event.silent_for for event in silent} == {FAILOVER + 1.5}


def test_a_row_that_has_not_changed_is_not_read_anew(scene: Scene) -> None:
    scene.create("a", owner="other")
    me = scene.coordinator()
    me.take()
    (before,) = me.snapshot.leases
    me.take()
    assert me.snapshot.leases[0] is before


def test_who_never_joined_a_fleet_leaves_without_a_call(scene: Scene) -> None:
    me = scene.coordinator()
    me.take()
    scene.server.kinesis.calls.clear()
    me.leave()
    me.withdraw_requests()
    assert len(scene.server.kinesis.calls) == 0


def test_a_lease_that_was_given_since_the_start_is_adopted_at_the_first_scan(scene: Scene) -> None:
    scene.java_leads()
    scene.create("new")
    scene.create("before", owner="me")
    me = scene.worker("me", "count")
    me.require_unique_worker_id(lambda _: None)
    scene.table.write(requests.assign(scene.lease("new"), "me"))
    scene.time.now += 1.0
    me.take()
    assert set(me.held()) == {"new"}, "the other may be a twin's, which renews it"


def test_a_lease_that_a_twin_has_taken_is_not_adopted_at_once(scene: Scene) -> None:
    """Without a leader nobody gives leases that were not asked for."""
    me, twin = scene.coordinator(), scene.coordinator()
    me.take()
    scene.create("a")
    twin.take()
    scene.time.now += INTERVAL
    me.take()
    assert me.held() == {}
    twin.renew()
    assert set(twin.held()) == {"a"}


def test_the_leases_of_a_stream_that_the_application_lacks_worry_nobody(scene: Scene) -> None:
    kept, left = (StreamIdentifier("123456789012", name, 1_700_000_000) for name in ("k", "l"))
    for stream in (kept, left):
        scene.table.create(lease("a").in_stream(stream))
    me = scene.worker("me", "count", several_streams=True)
    for seconds in (0.0, INTERVAL):
        scene.time.now += seconds
        me.take(reads=lambda row: row.stream == kept, wants=kept.__eq__)
    assert me.unread_shards() == {}
    assert me.due_in() == 2 * INTERVAL


def test_who_leaves_half_of_the_new_leases_to_others_scans_again_soon(scene: Scene) -> None:
    scene.create("a", "b", "c", "d")
    me = scene.coordinator()
    assert me.take()
    assert len(me.held()) == 2
    assert me.due_in() == INTERVAL / 3


def test_a_scan_shows_the_owner_that_a_lease_is_asked_for(scene: Scene) -> None:
    scene.create("a", "b")
    old = scene.coordinator("old")
    scene.time.now += INTERVAL
    for _ in range(2):
        old.take()
    scene.coordinator("new").take()
    old.take()
    assert sorted(str(held.handoff_to) for held in old.held().values()) == ["None", "new"]


def test_a_table_that_was_deleted_is_not_made_again(scene: Scene) -> None:
    """Its checkpoints are gone: all would be read again, or nothing of what came since."""
    scene.create("a")
    me = scene.coordinator()
    me.take()
    scene.table.drop()
    with pytest.raises(LeaseTableNotFoundError):
        me.take()
    with pytest.raises(LeaseTableNotFoundError):
        scene.table.provision(LeaseTableOptions())


def test_a_row_that_cannot_be_read_is_told_until_it_can(scene: Scene) -> None:
    told: list[Event] = []
    key = "shardId-000000000000"
    scene.create(key)
    scene.break_row(key)
    me = scene.coordinator(publish=told.append)
    me.take()
    me.take()
    scene.dynamodb.delete_item(TableName=scene.table.name, Key={"leaseKey": {"S": key}})
    me.take()
    assert [type(event) for event in told] == [LeaseUnreadable, LeaseReadable]
