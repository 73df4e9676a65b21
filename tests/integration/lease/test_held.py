"""Leases in a worker's hands, against a DynamoDB over HTTP: renewed, checkpointed, lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from sparkinesis.errors import (
    LeaseLostError,
    LeaseTableUnavailableError,
    SparkinesisError,
)
from sparkinesis.events import Event, LeaseEnd, RenewalFailed, RenewalRecovered
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import MAX_TRIES, HeldLease
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.lease_start import KNOWN_EVERY_MS
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.update import Update
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.local import Call, Fault
from sparkinesis.metrics.health.liveness import SignOfLife
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.position import AfterRecord, AtTimestamp
from tests.failing import Failing
from tests.integration.lease.conftest import (
    FAILOVER,
    Scene,
    by_key,
    lease,
    take,
    take_rows,
)

AT = ExtendedSequenceNumber("500", 3)
LATER = ExtendedSequenceNumber("600")


WRITES: dict[str, Callable[[HeldLease], None]] = {
    "checkpoint": lambda held: held.checkpoint(AT),
    "prepare": lambda held: held.prepare(PendingCheckpoint(AT, b"x")),
    "add children": lambda held: held.add_children(["c1", "c2"]),
    "reset": lambda held: held.move(AT, 5_000),
    "write elsewhere": lambda held: held.confirm("write elsewhere"),
}
DOING = {"prepare": "prepare a checkpoint"}
"""How errors call a write, if it has another name here."""


def test_writes_and_renewals_follow_each_other(scene: Scene) -> None:
    one, two = scene.acquire("a", "b")
    one.prepare(PendingCheckpoint(AT, b"x"))
    assert scene.lease("a").pending == PendingCheckpoint(AT, b"x")
    one.drop_pending()
    assert scene.lease("a").pending is None
    one.drop_pending()  # writes nothing
    one.prepare(PendingCheckpoint(AT, b"x"))
    scene.renewer.renew_all()
    one.add_children(["c1"])
    assert one.lease.child_ids == ("c1",)
    one.checkpoint(AT)
    scene.renewer.renew_all()
    one.throughput_kbps = 1.5
    one.checkpoint(ExtendedSequenceNumber("LATEST"), 1_800_000_000_000)
    assert scene.lease("a").throughput_kbps == 1.5
    one.throughput_kbps = 2.5
    scene.renewer.renew_all()
    # Taken, prepared, dropped, prepared, two checkpoints, three renewals.
    assert scene.lease("a") == one.lease
    assert one.lease == replace(
        lease("a", "me", "LATEST"),
        counter=9,
        timestamp_ms=1_800_000_000_000,
        child_ids=("c1",),
        throughput_kbps=2.5,
        fencing_token=674,
    )
    assert scene.lease("b") == two.lease
    assert two.lease.counter == 4
    assert scene.renewer.held() == {"a": one, "b": two}


def test_a_shard_that_is_moved_is_not_taken_for_quiet_by_what_was_known_before(
    scene: Scene,
) -> None:
    """Every instant has the same name in a checkpoint."""
    (held,) = scene.acquire("a")
    instant = ExtendedSequenceNumber("AT_TIMESTAMP")
    now_ms = 1_800_000_000_000
    earlier_ms = now_ms - 3_600_000
    held.checkpoint(instant, now_ms - KNOWN_EVERY_MS)
    held.known = instant, AtTimestamp(now_ms)
    scene.renewer.renew_all()
    assert scene.lease("a").known == AtTimestamp(now_ms)
    held.checkpoint(instant, earlier_ms, moved_ms=now_ms)
    scene.renewer.renew_all()
    row = scene.lease("a")
    assert (row.timestamp_ms, row.known, row.made_ms) == (earlier_ms, None, now_ms)
    known = AfterRecord("500", now_ms)
    held.checkpoint(AT, known=known)
    assert scene.lease("a").known == known


def test_a_shard_is_moved_back_and_an_instant_fixed(scene: Scene) -> None:
    (held,) = scene.acquire("a")
    held.move(AT, 5_000)
    assert scene.lease("a").checkpoint == AT
    latest = ExtendedSequenceNumber("LATEST")
    held.known = latest, AtTimestamp(1_800_000_000_000)
    held.move(latest, 6_000)
    row = scene.lease("a")
    assert (row.checkpoint.is_latest, row.made_ms) == (True, 6_000)
    scene.renewer.renew_all()
    assert scene.lease("a").known is None, "nothing is known behind another place"
    held.fix_instant(7_000)
    row = scene.lease("a")
    assert (row.checkpoint.is_latest, row.timestamp_ms) == (True, 7_000)
    of_stream = lease("b").in_stream(StreamIdentifier("1", "web", 7))
    scene.table.create(of_stream)
    other = take(scene.renewer, scene.table, of_stream.key)
    assert (other.key, other.shard_id, other.stream) == (of_stream.key, "b", of_stream.stream)
    assert held.lease == row


def test_a_release_tells_the_row_and_who_has_stopped_the_shard(scene: Scene) -> None:
    one, two = scene.acquire("a", "b")
    one.release(LeaseEnd.STOPPED)
    two.release()
    assert [held.released for held in (one, two)] == by_key(scene.table)
    assert [row.stopped_by for row in by_key(scene.table)] == [("me",), ()]


@pytest.mark.parametrize("name", WRITES)
def test_what_was_taken_by_another_is_refused_and_lost(scene: Scene, name: str) -> None:
    one, two = scene.acquire("a", "b")
    taken = scene.table.write(requests.take(one.lease, "other"))
    if name == "add children":
        scene.renewer.renew_all()
    began = re.escape(f"Cannot {DOING.get(name, name)} for shard a in the {scene.table}: ")
    with pytest.raises(LeaseLostError, match=rf"{began}.*worker other has taken it.*Stop process"):
        WRITES[name](one)
    assert not one.is_held()
    assert scene.lease("a") == taken
    scene.renewer.renew_all()
    assert scene.renewer.held() == {"b": two}
    assert scene.renewer.duplicate_worker_leases == frozenset()


@pytest.mark.parametrize("alone", [True, False])
def test_a_lease_not_renewed_in_time_is_lost_though_the_table_would_accept(
    scene: Scene, alone: bool
) -> None:
    held = scene.acquire(*(["a"] if alone else ["a", "b"]))[0]
    scene.time.now += FAILOVER
    assert held.is_held()
    scene.time.now += 0.001
    assert not held.is_held()
    for write in WRITES.values():
        with pytest.raises(LeaseLostError, match="could not be renewed for 10 s"):
            write(held)
    before = scene.lease("a")
    scene.renewer.renew_all()
    assert scene.renewer.held() == {}
    assert scene.lease("a") == before
    # The clock of one that was lost cannot bring it back.
    scene.time.now -= 5
    assert not held.is_held()


def test_time_counts_from_before_a_write_was_sent(scene: Scene) -> None:
    (held,) = scene.acquire("a")

    def slow(call: Call) -> None:
        scene.time.now += 4

    scene.server.kinesis.faults = slow
    sent = scene.time.now
    scene.renewer.renew_all()
    assert held.renewed_at == sent
    sent = scene.time.now
    held.checkpoint(AT)
    assert held.renewed_at == sent
    assert scene.time.now == sent + 4


@pytest.mark.parametrize("count", [1, 3])
def test_an_outage_loses_nothing_until_time_runs_out(scene: Scene, count: int) -> None:
    told: list[Event] = []
    renewer = LeaseRenewer(scene.table, "me", FAILOVER, scene.time, told.append)
    held = scene.acquire(*(f"s{i}" for i in range(count)), renewer=renewer)
    with scene.faults(Fault.error("ServiceUnavailable", status=503)):
        for _ in range(2):
            scene.time.now += 4
            renewer.renew_all()
            assert len(renewer.held()) == count
        failed = [event for event in told if isinstance(event, RenewalFailed)]
        assert [(one.leases, one.of) for one in failed] == [(count, count)], "the same is told once"
        assert all("ServiceUnavailable" in one.error for one in failed)
        before = held[0].lease
        with pytest.raises(LeaseTableUnavailableError):
            held[0].checkpoint(AT)
        assert held[0].lease == before
    held[0].checkpoint(AT)
    renewer.renew_all()
    renewer.renew_all()
    assert told[len(failed) :] == [RenewalRecovered(4)], "once, since the first failure"
    scene.time.now += FAILOVER
    assert len(renewer.held()) == count
    assert all(scene.lease(one.key) == one.lease for one in held)


@pytest.mark.parametrize("doing", ["checkpoint", "prepare"])
def test_a_checkpoint_whose_answer_never_came_is_not_taken_back(scene: Scene, doing: str) -> None:
    held = scene.acquire("a")[0]
    with scene.faults(Fault.dropped("after")), pytest.raises(LeaseTableUnavailableError):
        held.checkpoint(LATER)
    # What failed is processed again, and a record in between checkpointed.
    WRITES[doing](held)
    row = scene.lease("a")
    assert row.checkpoint == LATER
    assert row.pending is None
    assert held.lease == row
    last = ExtendedSequenceNumber("700")
    held.checkpoint(last)
    assert scene.lease("a").checkpoint == last
    held.checkpoint(ExtendedSequenceNumber("TRIM_HORIZON"))
    assert scene.lease("a").checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")


@pytest.mark.parametrize("count", [1, 2])
def test_a_second_worker_of_the_same_id_is_noticed(scene: Scene, count: int) -> None:
    held = scene.acquire(*(f"s{i}" for i in range(count)))
    twin = LeaseRenewer(scene.table, "me", FAILOVER, scene.time)
    take_rows(twin, scene.table, scene.time, scene.table.leases())
    scene.renewer.renew_all()
    assert scene.renewer.held() == {}
    assert scene.renewer.duplicate_worker_leases == {one.key for one in held}
    with pytest.raises(LeaseLostError, match="another process writes to it as worker me too"):
        held[0].require_held("write")
    twin.renew_all()
    assert len(twin.held()) == count
    assert twin.duplicate_worker_leases == frozenset()


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_checkpoint_notices_an_impostor_too(scene: Scene, is_forgotten: bool) -> None:
    (held,) = scene.acquire("a")
    scene.table.write(requests.take(held.lease, "me"))
    with pytest.raises(LeaseLostError, match="another process writes to it as worker me too"):
        held.checkpoint(AT)
    assert scene.renewer.duplicate_worker_leases == {"a"}
    if is_forgotten:
        held.lose("it is told once")
    scene.renewer.renew_all()
    assert scene.renewer.held() == {}
    assert scene.renewer.duplicate_worker_leases == {"a"}


@pytest.mark.parametrize("noticed_by", ["renewal", "renewal of many", "checkpoint", "scan"])
def test_a_handoff_is_noticed_and_the_lease_released_to_who_asked(
    scene: Scene, noticed_by: str
) -> None:
    held = scene.acquire("a", "b")[0]
    if noticed_by == "renewal":
        scene.renewer.held()["b"].lose("the test says so")
    asked = scene.table.write(requests.initiate_handoff(held.lease, "thief"))
    if noticed_by == "checkpoint":
        held.checkpoint(AT)
    elif noticed_by == "scan":
        held.observe(asked)
    else:
        scene.renewer.renew_all()
    assert held.handoff_to == "thief"
    assert held.is_held()
    scene.renewer.renew_all()
    held.checkpoint(LATER)
    assert scene.lease("a") == held.lease
    before = held.lease
    held.release()
    assert scene.lease("a") == replace(
        before, owner="thief", checkpoint_owner=None, counter=before.counter + 1, owner_switches=1
    )
    with pytest.raises(LeaseLostError, match="given up"):
        held.checkpoint(AT)
    assert "a" not in scene.renewer.held()


@pytest.mark.parametrize(
    "then",
    [Fault.dropped("before"), Fault.error("ExpiredTokenException")],
    ids=["an outage", "the credentials run out between two tries"],
)
@pytest.mark.parametrize("by", ["renewal", "renewal of many", "checkpoint"])
def test_a_lost_answer_before_another_error_is_remembered(
    scene: Scene, *, by: str, then: Fault
) -> None:
    held = scene.acquire(*(f"s{i}" for i in range(3 if by == "renewal of many" else 1)))
    scene.renewer.renew_all()  # from now on in batches
    writes = {"UpdateItem", "BatchExecuteStatement"}
    with scene.faults(Failing(writes, Fault.dropped("after"), then=then)):
        if by == "checkpoint":
            with pytest.raises(SparkinesisError):
                held[0].checkpoint(AT)
        else:
            scene.renewer.renew_all()
    assert [row.counter for row in scene.table.leases()] == [3] * len(held)
    assert [one.lease.counter for one in held] == [2] * len(held)
    scene.renewer.renew_all()
    assert scene.renewer.duplicate_worker_leases == frozenset()
    assert len(scene.renewer.held()) == len(held)
    assert [one.lease.counter for one in held] == [4] * len(held)
    assert by_key(scene.table) == [one.lease for one in held]


def test_a_scan_that_is_older_than_ones_own_writes_is_not_believed(scene: Scene) -> None:
    (held,) = scene.acquire("a")
    asked = replace(held.lease, owner="thief", checkpoint_owner="me")
    held.checkpoint(AT)
    held.observe(asked)
    assert held.handoff_to is None


def test_a_scan_that_shows_no_request_takes_none_back_and_makes_none(scene: Scene) -> None:
    (held,) = scene.acquire("a")
    before = held.lease
    held.observe(replace(before, owner="other"))
    held.observe(replace(before, owner="other", checkpoint_owner="third"))
    held.observe(replace(before, checkpoint_owner="me"))
    assert held.lease == before
    asked = replace(before, owner="thief", checkpoint_owner="me")
    held.observe(asked)
    held.observe(before)
    assert held.handoff_to == "thief"


def test_a_write_elsewhere_is_confirmed_by_a_renewal(scene: Scene) -> None:
    (held,) = scene.acquire("a")
    before = held.lease
    held.confirm("write elsewhere")
    assert scene.lease("a") == held.lease == replace(before, counter=before.counter + 1)


def test_children_of_a_lease_whose_row_is_gone_are_not_added(scene: Scene) -> None:
    (held,) = scene.acquire("a")
    assert scene.table.delete(held.lease)
    with pytest.raises(LeaseLostError, match=r"Cannot add children .*its row was deleted"):
        held.add_children(["c1"])
    assert not held.is_held()


@pytest.mark.parametrize("was_noticed", [False, True])
def test_a_release_goes_on_while_a_worker_requests_the_lease_and_withdraws(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, was_noticed: bool
) -> None:
    """As workers do that end at the same time: each change comes before a write of the release."""
    (held,) = scene.acquire("a")
    changes = ["request", "withdraw"]
    if was_noticed:
        held.observe(scene.table.write(requests.initiate_handoff(held.lease, "thief")))
        changes = ["withdraw", *changes]
    write = LeaseTable.write

    def write_late(at: LeaseTable, update: Update, *, in_doubt: bool = False) -> Lease:
        if changes:
            row = scene.lease("a")
            if changes.pop(0) == "request":
                write(at, requests.initiate_handoff(row, "thief"))
            else:
                write(at, requests.withdraw_handoff(row))
        return write(at, update, in_doubt=in_doubt)

    monkeypatch.setattr(LeaseTable, "write", write_late)
    held.release()
    assert changes == []
    row = scene.lease("a")
    assert (row.owner, row.checkpoint_owner) == (None, None)


def test_a_renewal_that_is_always_refused_is_told_and_one_of_a_lost_lease_is_not(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    renewer = LeaseRenewer(scene.table, "me", FAILOVER, scene.time, told.append)
    held, other = scene.acquire("a", "b", renewer=renewer)
    other.lose("the test says so")
    row = scene.lease("a")
    refused: list[int] = []

    def refuse(updates: Sequence[Update]) -> list[SparkinesisError]:
        refused.append(len(updates))
        return [LeaseChangedError("refused", row) for _ in updates]

    monkeypatch.setattr(renewer.batching, "write", refuse)
    told.clear()
    renewer.renew_all()
    (failed,) = told
    assert isinstance(failed, RenewalFailed)
    assert (failed.leases, failed.of, refused) == (1, 1, [1] * MAX_TRIES)
    assert held.is_held()
    scene.time.now += FAILOVER + 0.1
    renewer.renew_all()
    assert renewer.held() == {}
    assert len(refused) == MAX_TRIES, "what has expired is not renewed"


def test_a_lease_regained_is_another_holding(scene: Scene) -> None:
    (first,) = scene.acquire("a")
    scene.table.write(requests.take(scene.lease("a"), "other"))
    second = scene.renewer.hold(
        scene.table.write(requests.take(scene.lease("a"), "me")), acquired_at=scene.time.now - 1
    )
    with pytest.raises(LeaseLostError, match="acquired anew"):
        first.checkpoint(AT)
    first.release()
    assert second.renewed_at == scene.time.now - 1
    second.checkpoint(LATER)
    assert scene.renewer.held() == {"a": second}
    assert scene.lease("a") == second.lease


def test_the_threads_that_help_to_renew_give_signs_of_life_of_their_own(scene: Scene) -> None:
    """More leases than a call takes are renewed by several threads, and each call may hang."""
    scene.acquire(*(f"shard-{number}" for number in range(30)))
    scene.renewer.renew_all()  # shows that the server takes batches
    sign, helpers = SignOfLife(scene.time), []

    def count(call: Call) -> Fault | None:
        if call.operation == "BatchExecuteStatement":
            helpers.append(len(sign._helpers))
        return None

    scene.server.kinesis.faults = count
    try:
        sign.during(scene.renewer.renew_all)
    finally:
        scene.server.kinesis.faults = None
    assert len(helpers) == 2
    assert min(helpers) >= 1
    assert not sign._helpers
