"""One worker's looks at a lease table over HTTP: what it takes, and when it looks again soon."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from sparkinesis.errors import LeaseTableError, LeaseTableUnavailableError
from sparkinesis.events import Event, LegacyWorkerSeen
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.statements import BATCH
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.update import Update
from sparkinesis.local import Fault, LocalServer
from sparkinesis.stream.address import StreamIdentifier, StreamMark
from tests.failing import Failing
from tests.integration.lease.conftest import (
    FAILOVER,
    Scene,
    by_key,
    lease,
)


def asked_of(table: LeaseTable, owner: str) -> Lease:
    """The only lease that this worker is to hand over."""
    (asked,) = [row for row in table.leases() if row.checkpoint_owner == owner]
    return asked


def test_a_shard_that_nobody_will_read_does_not_keep_others_from_being_shared(scene: Scene) -> None:
    scene.create("a", "b", "c", "d", owner="old")
    scene.create("poison")
    new = scene.coordinator("new")
    # on_error stopped the one that is nobody's, on this worker as on the other.
    assert new.take({"poison"})
    asked = asked_of(scene.table, "old")
    scene.table.write(requests.assign(asked, "new"))
    assert not new.take({"poison"})
    assert set(new.held()) == {asked.key}


def test_a_shard_that_ends_while_it_is_asked_for_is_not_waited_for(scene: Scene) -> None:
    scene.create("a", "b", owner="old")
    new = scene.coordinator("new")
    assert new.take()
    asked = asked_of(scene.table, "old")
    ended = scene.table.write(requests.checkpoint(asked, ExtendedSequenceNumber(SHARD_END)))
    scene.table.write(requests.assign(ended, "new"))
    assert not new.take()
    assert new.held() == {}


@pytest.mark.parametrize("max_leases", [1, 3])
def test_who_has_no_room_does_not_scan_again_soon(scene: Scene, max_leases: int) -> None:
    scene.create("a", "b", "c")
    me = scene.coordinator("me", max_leases=max_leases)
    scene.time.now += 5
    for _ in range(3):
        me.take()
    assert len(me.held()) == max_leases
    assert not me.take()


@pytest.mark.parametrize(("owner", "most"), [(None, BATCH), ("old", 1)])
def test_who_is_told_to_leave_while_it_takes_many_leases_takes_and_requests_no_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, owner: str | None, most: int
) -> None:
    """A worker that ends waits for its taker only for a while, and then for one call at most."""
    scene.create(*(f"s{n}" for n in range(60)), owner=owner)
    told = threading.Event()
    write, write_batch = LeaseTable.write, LeaseTable.write_batch

    def write_and_tell(at: LeaseTable, update: Update, *, in_doubt: bool = False) -> Lease:
        written = write(at, update, in_doubt=in_doubt)
        told.set()
        return written

    def write_batch_and_tell(at: LeaseTable, updates: Sequence[Update]) -> Any:
        results = write_batch(at, updates)
        if len(updates) > 1:  # no probe
            told.set()
        return results

    monkeypatch.setattr(LeaseTable, "write", write_and_tell)
    monkeypatch.setattr(LeaseTable, "write_batch", write_batch_and_tell)
    me = scene.coordinator("me")
    scene.time.now += 5
    me.take((), told.is_set)
    assert [row.owner for row in scene.table.leases()].count("me") == most
    me.take((), told.is_set)
    assert [row.owner for row in scene.table.leases()].count("me") == most


def test_a_broken_row_keeps_no_other_from_being_declined(scene: Scene) -> None:
    for n in range(6):
        scene.table.create(lease(f"shardId-{n}", owner="old"))
    new = scene.coordinator("new")
    assert new.take()
    asked = sorted(row.key for row in scene.table.leases() if row.checkpoint_owner == "old")
    assert len(asked) == 2
    scene.break_row(asked[0])
    with pytest.raises(LeaseTableError, match=asked[0]):
        new.withdraw_requests()
    row = scene.lease(asked[1])
    assert (row.owner, row.checkpoint_owner) == ("old", None)


@pytest.mark.parametrize("has_noticed", [False, True])
def test_what_a_worker_that_leaves_had_asked_for_stays_its_owners(
    scene: Scene, has_noticed: bool
) -> None:
    """Both leave at once: what is given to somebody who has left would have to expire."""
    scene.create("a", "b")
    old = scene.coordinator("old")
    scene.time.now += 5
    for _ in range(2):
        old.take()
    assert len(old.held()) == 2
    new = scene.coordinator("new")
    new.take()
    asked = asked_of(scene.table, "old")
    held = old.held()[asked.key]
    if has_noticed:
        held.observe(asked)
        assert held.handoff_to == "new"
    new.withdraw_requests()
    assert scene.table.get(asked.key) == replace(asked, owner="old", checkpoint_owner=None)
    old.renew()
    assert held.is_held()
    held.checkpoint(ExtendedSequenceNumber("107"))
    assert held.handoff_to is None
    held.release()
    assert scene.owners()[asked.key] == (None, None)


def take_unanswered(
    server: LocalServer, worker: LeaseCoordinator, when: Literal["before", "after"] = "after"
) -> None:
    """A round of taking whose updates are cut off, before they take effect or only thereafter."""
    server.kinesis.faults = Failing("UpdateItem", then=Fault.dropped(when))
    with pytest.raises(LeaseTableUnavailableError):
        worker.take()
    server.kinesis.faults = None


@pytest.mark.parametrize("was_given", [False, True])
def test_a_handoff_whose_answer_was_lost_is_withdrawn_by_a_worker_that_leaves(
    scene: Scene, was_given: bool
) -> None:
    scene.create("a", "b", owner="old")
    new = scene.coordinator("new")
    take_unanswered(scene.server, new)
    asked = asked_of(scene.table, "old")
    if was_given:
        scene.table.write(requests.assign(asked, "new"))
    new.withdraw_requests()
    assert scene.owners()[asked.key] == (None if was_given else "old", None)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_lease_taken_without_an_answer_is_released_at_the_end_or_adopted_at_the_next_scan(
    scene: Scene, leaves: bool
) -> None:
    scene.create("a")
    new = scene.coordinator("new")
    take_unanswered(scene.server, new)
    assert scene.lease("a").owner == "new"
    if leaves:
        new.withdraw_requests()
        assert scene.lease("a").owner is None
    else:
        assert not new.take()
        assert set(new.held()) == {"a"}


def test_writes_without_an_answer_are_not_taken_for_those_of_another_worker(scene: Scene) -> None:
    """The table is slow: what this worker writes takes effect, but it never hears of that."""
    scene.create("a")
    slow = scene.coordinator("slow")
    with scene.faults(Fault.dropped("after"), "UpdateItem"):
        for _ in range(6):
            with pytest.raises(LeaseTableUnavailableError):
                slow.take()
            scene.time.now += FAILOVER  # long enough to adopt a lease that names this worker
        assert slow.duplicate_worker_leases == ()
    slow.take()
    assert set(slow.held()) == {"a"}


def test_renewals_between_two_scans_are_not_taken_for_those_of_another_worker(scene: Scene) -> None:
    """A worker takes a lease, renews it and loses it, and scans the table only then."""
    scene.create("a")
    slow = scene.coordinator("slow")
    for _ in range(6):
        slow.take()
        scene.time.now += FAILOVER / 3
        slow.renew()
        scene.time.now += FAILOVER / 3
        with scene.faults(Fault.dropped("after"), "UpdateItem"):
            slow.renew()  # no answer comes
        scene.time.now += FAILOVER
        slow.renew()  # drops the lease, which has expired
        assert slow.held() == {}
    (row,) = scene.table.leases()
    assert row.counter > 6
    assert slow.duplicate_worker_leases == ()


def test_another_worker_of_the_same_id_is_noticed_though_it_goes_on_from_own_writes(
    scene: Scene,
) -> None:
    """What this worker wrote itself does not hide what another process writes behind it."""
    scene.create("a")
    one, other = scene.coordinator("same"), scene.coordinator("same")
    one.take()
    scene.time.now += 2 * FAILOVER  # it stands still
    other.take()
    scene.time.now += FAILOVER
    other.take()
    assert set(other.held()) == {"a"}
    for _ in range(3):
        one.take(busy={"a"})
        scene.time.now += FAILOVER / 3
        other.renew()
    one.take(busy={"a"})
    assert one.duplicate_worker_leases == ("a",)


def test_what_was_asked_for_in_vain_is_not_waited_for(scene: Scene) -> None:
    scene.create("a", "b", owner="old")
    new = scene.coordinator("new")
    take_unanswered(scene.server, new, "before")
    scene.create("c", "d", owner="new")
    assert not new.take()
    assert [row.owner for row in by_key(scene.table)][:2] == ["old"] * 2


def test_who_is_named_by_finished_leases_only_does_not_go_on(scene: Scene) -> None:
    for key, owner, checkpoint in (
        ("a", "me", "100"),
        ("b", "reader", "100"),
        ("c", "dead", SHARD_END),
        ("d", None, "100"),
    ):
        stream = StreamIdentifier("123456789012", key, 1_700_000_000)
        scene.table.create(lease(key, owner=owner, checkpoint=checkpoint).in_stream(stream))
    me = scene.worker("me", "count", several_streams=True)
    assert {str(stream.name) for stream in me.streams_of_others() if stream} == {"b"}


def test_a_worker_that_ignores_a_handoff_is_waited_for_only_until_it_is_known(scene: Scene) -> None:
    """A KCL 2.x renews by the counter alone, and never writes throughputKBps."""
    scene.create(*"abcd", owner="java")
    told: list[Event] = []
    new = scene.coordinator("new", publish=told.append)

    def renew_as_java(checkpoint: int) -> None:
        for key in sorted(set("abcd") - new.held().keys()):
            scene.dynamodb.update_item(
                TableName=scene.table.name,
                Key={"leaseKey": {"S": key}},
                UpdateExpression="SET checkpoint = :at ADD leaseCounter :one",
                ExpressionAttributeValues={":one": {"N": "1"}, ":at": {"S": str(checkpoint)}},
            )

    new.take()
    asked = asked_of(scene.table, "java")
    began = scene.time.now
    while not new.held():
        scene.time.now += 1.5
        renew_as_java(round(scene.time.now))
        new.take()
    assert scene.time.now - began < FAILOVER + 3.0, (
        "not handoff_timeout and a failover time, which are 40"
    )
    assert asked.key in new.held()
    assert len(new.held()) == 2, "the rest of the share is taken without asking"
    assert {row.checkpoint_owner for row in scene.table.leases()} == {None}
    scene.create(*"efgh", owner="java")
    new.take()
    assert len(new.held()) == 4
    assert {row.checkpoint_owner for row in scene.table.leases()} == {None}
    seen = [event for event in told if isinstance(event, LegacyWorkerSeen)]
    assert seen == [LegacyWorkerSeen("java", str(scene.table))]


def test_of_many_leases_taken_in_a_call_those_that_another_worker_took_are_not_held(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.create(*(f"s{n}" for n in range(12)))
    me = scene.coordinator("me")
    write_batch = LeaseTable.write_batch

    def too_late(at: LeaseTable, updates: Sequence[Update]) -> Any:
        if len(updates) > 1:
            monkeypatch.undo()
            for update in updates[:2]:
                scene.table.write(requests.take(lease(update.key), "other"))
        return write_batch(at, updates)

    monkeypatch.setattr(LeaseTable, "write_batch", too_late)
    me.take()
    assert {row.key for row in scene.table.leases() if row.owner == "me"} == me.held().keys()
    assert len(me.held()) == 6
    assert len([row for row in scene.table.leases() if row.owner == "other"]) == 2


def test_a_row_that_names_no_stream_gets_that_of_the_application_when_it_is_taken(
    scene: Scene,
) -> None:
    scene.create("a")
    mark = StreamMark("us-east-1", "123456789012", "s", 1_700_000_000_123)
    scene.coordinator().take(mark=mark)
    assert scene.lease("a").mark == mark
