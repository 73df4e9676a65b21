"""Leases in a worker's hands, against a DynamoDB over HTTP: renewed, checkpointed, lost."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkinesis.errors import (
    LeaseLostError,
    LeaseTableError,
    LeaseTableUnavailableError,
    SparkinesisError,
)
from sparkinesis.events import Event, RenewalFailed, RenewalRecovered
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease, PendingCheckpoint
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.lease_start import KNOWN_EVERY_MS
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.batching import BATCHES_AGAIN
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.metrics.health.signs import SignOfLife
from sparkinesis.stream.position import AtTimestamp
from tests.integration.lease.conftest import (
    ManualTime,
    acquire,
    by_key,
    lease,
    lease_of,
    row_of,
    table_at,
)

AT = ExtendedSequenceNumber("500", 3)
LATER = ExtendedSequenceNumber("600")
FAILOVER = 10.0


@pytest.fixture
def renewer(table: LeaseTable, time: ManualTime) -> LeaseRenewer:
    return LeaseRenewer(table, "me", FAILOVER, time)


WRITES: dict[str, Callable[[HeldLease], None]] = {
    "checkpoint": lambda held: held.checkpoint(AT),
    "prepare": lambda held: held.prepare(PendingCheckpoint(AT, b"x")),
    "add children": lambda held: held.add_children(["c1", "c2"]),
}


def test_writes_and_renewals_follow_each_other(table: LeaseTable, renewer: LeaseRenewer) -> None:
    one, two = acquire(renewer, table, "a", "b")
    one.prepare(PendingCheckpoint(AT, b"x"))
    assert lease_of(table, "a").pending == PendingCheckpoint(AT, b"x")
    one.drop_pending()
    assert lease_of(table, "a").pending is None
    one.drop_pending()  # writes nothing
    one.prepare(PendingCheckpoint(AT, b"x"))
    renewer.renew_all()
    one.add_children(["c1"])
    one.checkpoint(AT)
    renewer.renew_all()
    one.checkpoint(ExtendedSequenceNumber("LATEST"), 1_800_000_000_000)
    one.throughput_kbps = 2.5
    renewer.renew_all()
    # Taken, prepared, dropped, prepared, two checkpoints, three renewals.
    assert lease_of(table, "a") == one.lease
    assert one.lease == replace(
        lease("a", "me", "LATEST"),
        counter=9,
        timestamp_ms=1_800_000_000_000,
        child_ids=("c1",),
        throughput_kbps=2.5,
    )
    assert lease_of(table, "b") == two.lease
    assert two.lease.counter == 4
    assert renewer.held() == {"a": one, "b": two}


def test_a_shard_that_is_moved_is_not_taken_for_quiet_by_what_was_known_before(
    table: LeaseTable, renewer: LeaseRenewer
) -> None:
    """Every instant has the same name in a checkpoint."""
    (held,) = acquire(renewer, table, "a")
    instant = ExtendedSequenceNumber("AT_TIMESTAMP")
    now_ms = 1_800_000_000_000
    earlier_ms = now_ms - 3_600_000
    held.checkpoint(instant, now_ms - KNOWN_EVERY_MS)
    held.known = instant, AtTimestamp(now_ms)
    renewer.renew_all()
    assert lease_of(table, "a").known == AtTimestamp(now_ms)
    held.checkpoint(instant, earlier_ms, moved_ms=now_ms)
    renewer.renew_all()
    row = lease_of(table, "a")
    assert (row.timestamp_ms, row.known) == (earlier_ms, None)


@pytest.mark.parametrize("name", WRITES)
def test_what_was_taken_by_another_is_refused_and_lost(
    table: LeaseTable, renewer: LeaseRenewer, name: str
) -> None:
    one, two = acquire(renewer, table, "a", "b")
    taken = table.write(requests.take(one.lease, "other"))
    if name == "add children":
        renewer.renew_all()
    with pytest.raises(LeaseLostError, match=r"shard a .*worker other has taken it.*Stop process"):
        WRITES[name](one)
    assert not one.is_held()
    assert lease_of(table, "a") == taken
    renewer.renew_all()
    assert renewer.held() == {"b": two}
    assert renewer.duplicate_worker_leases == frozenset()


@pytest.mark.parametrize("name", ["checkpoint", "prepare", "renew"])
def test_a_lease_made_anew_is_not_its_old_owners_though_the_counter_be(
    table: LeaseTable, renewer: LeaseRenewer, name: str
) -> None:
    """As when a hand deletes the row, and another worker makes it and takes it."""
    (one,) = acquire(renewer, table, "a")
    assert table.delete(one.lease)
    assert table.create(lease("a"))
    others = table.write(requests.take(lease_of(table, "a"), "other"))
    assert others.counter == one.lease.counter
    if name == "renew":
        renewer.renew_all()
    else:
        with pytest.raises(LeaseLostError, match="worker other has taken it"):
            WRITES[name](one)
    assert not one.is_held()
    assert lease_of(table, "a") == others


@pytest.mark.parametrize("alone", [True, False])
def test_a_lease_not_renewed_in_time_is_lost_though_the_table_would_accept(
    table: LeaseTable, renewer: LeaseRenewer, time: ManualTime, alone: bool
) -> None:
    held = acquire(renewer, table, *(["a"] if alone else ["a", "b"]))[0]
    time.now += FAILOVER
    assert held.is_held()
    time.now += 0.001
    assert not held.is_held()
    for write in WRITES.values():
        with pytest.raises(LeaseLostError, match="could not be renewed for 10 s"):
            write(held)
    before = lease_of(table, "a")
    renewer.renew_all()
    assert renewer.held() == {}
    assert lease_of(table, "a") == before
    # The clock of one that was lost cannot bring it back.
    time.now -= 5
    assert not held.is_held()


def test_time_counts_from_before_a_write_was_sent(
    server: LocalServer, table: LeaseTable, renewer: LeaseRenewer, time: ManualTime
) -> None:
    (held,) = acquire(renewer, table, "a")

    def slow(call: Call) -> None:
        time.now += 4

    server.kinesis.faults = slow
    sent = time.now
    renewer.renew_all()
    assert held.renewed_at == sent
    sent = time.now
    held.checkpoint(AT)
    assert held.renewed_at == sent
    assert time.now == sent + 4


@pytest.mark.parametrize("count", [1, 3])
def test_an_outage_loses_nothing_until_time_runs_out(
    server: LocalServer,
    table: LeaseTable,
    time: ManualTime,
    count: int,
) -> None:
    told: list[Event] = []
    renewer = LeaseRenewer(table, "me", FAILOVER, time, told.append)
    held = acquire(renewer, table, *(f"s{i}" for i in range(count)))
    server.kinesis.faults = lambda call: Fault.error("ServiceUnavailable", status=503)
    for _ in range(2):
        time.now += 4
        renewer.renew_all()
        assert len(renewer.held()) == count
    failed = [event for event in told if isinstance(event, RenewalFailed)]
    assert [(one.leases, one.of) for one in failed] == [(count, count)] * 2
    assert all("ServiceUnavailable" in one.error for one in failed)
    before = held[0].lease
    with pytest.raises(LeaseTableUnavailableError):
        held[0].checkpoint(AT)
    assert held[0].lease == before
    server.kinesis.faults = None
    held[0].checkpoint(AT)
    renewer.renew_all()
    renewer.renew_all()
    assert told[len(failed) :] == [RenewalRecovered(4)], "once, since the first failure"
    time.now += FAILOVER
    assert len(renewer.held()) == count
    assert all(lease_of(table, one.key) == one.lease for one in held)


def test_a_checkpoint_whose_answer_never_came_is_recognised_later(
    server: LocalServer, table: LeaseTable, renewer: LeaseRenewer
) -> None:
    one, two = acquire(renewer, table, "a", "b")
    server.kinesis.faults = lambda call: Fault.dropped("after")
    for held in (one, two):
        with pytest.raises(LeaseTableUnavailableError):
            held.checkpoint(AT)
        # The retries of it were refused, and lost their answers, too.
        assert held.lease.checkpoint == ExtendedSequenceNumber("100")
    server.kinesis.faults = None
    one.checkpoint(LATER)
    renewer.renew_all()
    assert lease_of(table, "a") == one.lease
    assert lease_of(table, "b") == two.lease
    assert one.lease.checkpoint == LATER
    assert two.lease.checkpoint == AT
    assert (one.lease.counter, two.lease.counter) == (4, 3)


@pytest.mark.parametrize("doing", ["checkpoint", "prepare"])
def test_a_checkpoint_whose_answer_never_came_is_not_taken_back(
    server: LocalServer, table: LeaseTable, renewer: LeaseRenewer, doing: str
) -> None:
    held = acquire(renewer, table, "a")[0]
    server.kinesis.faults = lambda call: Fault.dropped("after")
    with pytest.raises(LeaseTableUnavailableError):
        held.checkpoint(LATER)
    server.kinesis.faults = None
    # What failed is processed again, and a record in between checkpointed.
    WRITES[doing](held)
    row = lease_of(table, "a")
    assert row.checkpoint == LATER
    assert row.pending is None
    assert held.lease == row
    last = ExtendedSequenceNumber("700")
    held.checkpoint(last)
    assert lease_of(table, "a").checkpoint == last
    held.checkpoint(ExtendedSequenceNumber("TRIM_HORIZON"))
    assert lease_of(table, "a").checkpoint == ExtendedSequenceNumber("TRIM_HORIZON")


@pytest.mark.parametrize("count", [1, 2])
def test_a_second_worker_of_the_same_id_is_noticed(
    table: LeaseTable, renewer: LeaseRenewer, time: ManualTime, count: int
) -> None:
    held = acquire(renewer, table, *(f"s{i}" for i in range(count)))
    twin = LeaseRenewer(table, "me", FAILOVER, time)
    for row in table.leases():
        twin.hold(row)
    twin.renew_all()
    renewer.renew_all()
    assert renewer.held() == {}
    assert renewer.duplicate_worker_leases == {one.key for one in held}
    assert "another process writes to it as worker me too" in (held[0].lost_because or "")
    twin.renew_all()
    assert len(twin.held()) == count
    assert twin.duplicate_worker_leases == frozenset()


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_checkpoint_notices_an_impostor_too(
    table: LeaseTable, renewer: LeaseRenewer, is_forgotten: bool
) -> None:
    (held,) = acquire(renewer, table, "a")
    table.write(requests.renew(held.lease))
    with pytest.raises(LeaseLostError, match="another process writes to it as worker me too"):
        held.checkpoint(AT)
    assert renewer.duplicate_worker_leases == {"a"}
    if is_forgotten:
        held.lose("it is told once")
    renewer.renew_all()
    assert renewer.held() == {}
    assert renewer.duplicate_worker_leases == {"a"}


@pytest.mark.parametrize("noticed_by", ["renewal", "renewal of many", "checkpoint", "scan"])
def test_a_handoff_is_noticed_and_the_lease_released_to_who_asked(
    table: LeaseTable, renewer: LeaseRenewer, noticed_by: str
) -> None:
    held = acquire(renewer, table, "a", "b")[0]
    if noticed_by == "renewal":
        renewer.held()["b"].lose("the test says so")
    asked = table.write(requests.initiate_handoff(held.lease, "thief"))
    if noticed_by == "checkpoint":
        held.checkpoint(AT)
    elif noticed_by == "scan":
        held.observe(asked)
    else:
        renewer.renew_all()
    assert held.handoff_to == "thief"
    assert held.is_held()
    renewer.renew_all()
    held.checkpoint(LATER)
    assert lease_of(table, "a") == held.lease
    before = held.lease
    held.release()
    assert lease_of(table, "a") == replace(
        before, owner="thief", checkpoint_owner=None, counter=before.counter + 1, owner_switches=1
    )
    with pytest.raises(LeaseLostError, match="given up"):
        held.checkpoint(AT)
    assert "a" not in renewer.held()


@pytest.mark.parametrize("by", ["renewal", "renewal of many", "checkpoint"])
def test_a_handoff_between_a_lost_answer_and_the_next_try_is_no_impostor(
    server: LocalServer, table: LeaseTable, time: ManualTime, by: str
) -> None:
    renewals = by != "checkpoint"
    count = 2 if by == "renewal of many" else 1
    asked: list[Lease] = []

    def ask(_: float) -> None:
        asked.extend(table.write(requests.initiate_handoff(row, "thief")) for row in table.leases())

    slow = table_at(server.endpoint_url, table.name, ask)
    renewer = LeaseRenewer(slow, "me", FAILOVER, time)
    held = acquire(renewer, table, *(f"s{i}" for i in range(count)))
    renewer.renew_all()  # from now on in batches
    operation = "BatchExecuteStatement" if count > 1 else "UpdateItem"
    lost = {"once": Fault.dropped("after")}
    server.kinesis.faults = lambda call: (
        lost.pop("once", None) if call.operation == operation else None
    )
    if renewals:
        renewer.renew_all()
    else:
        held[0].checkpoint(AT)
    assert len(asked) == count
    assert renewer.duplicate_worker_leases == frozenset()
    assert [one.handoff_to for one in held] == ["thief"] * count
    assert {one.key: one.lease for one in held} == {row.key: row for row in table.leases()}
    renewer.renew_all()
    assert len(renewer.held()) == count


@pytest.mark.parametrize(
    "then",
    [Fault.dropped("before"), Fault.error("ExpiredTokenException")],
    ids=["an outage", "the credentials run out between two tries"],
)
@pytest.mark.parametrize("by", ["renewal", "renewal of many", "checkpoint"])
def test_a_lost_answer_before_another_error_is_remembered(
    server: LocalServer, table: LeaseTable, renewer: LeaseRenewer, *, by: str, then: Fault
) -> None:
    held = acquire(renewer, table, *(f"s{i}" for i in range(3 if by == "renewal of many" else 1)))
    renewer.renew_all()  # from now on in batches
    errors = itertools.chain([Fault.dropped("after")], itertools.repeat(then))
    writes = {"UpdateItem", "BatchExecuteStatement"}
    server.kinesis.faults = lambda call: next(errors) if call.operation in writes else None
    if by == "checkpoint":
        with pytest.raises(SparkinesisError):
            held[0].checkpoint(AT)
    else:
        renewer.renew_all()
    server.kinesis.faults = None
    assert [row.counter for row in table.leases()] == [3] * len(held)
    assert [one.lease.counter for one in held] == [2] * len(held)
    renewer.renew_all()
    assert renewer.duplicate_worker_leases == frozenset()
    assert len(renewer.held()) == len(held)
    assert [one.lease.counter for one in held] == [4] * len(held)
    assert by_key(table) == [one.lease for one in held]


def test_an_owner_that_knows_nothing_of_handoffs_is_no_impostor(
    table: LeaseTable, renewer: LeaseRenewer, dynamodb: Any
) -> None:
    # A KCL 2.x takes by the counter and leaves checkpointOwner, which came with 3.0, in the row.
    known_of, unknown_of = acquire(renewer, table, "a", "b")
    for held in (known_of, unknown_of):
        table.write(requests.initiate_handoff(held.lease, "thief"))
        if held is known_of:
            held.checkpoint(AT)
        dynamodb.update_item(
            TableName=table.name,
            Key={"leaseKey": {"S": held.key}},
            UpdateExpression="SET leaseOwner = :java ADD leaseCounter :one",
            ExpressionAttributeValues={":java": {"S": "java"}, ":one": {"N": "1"}},
        )
    renewer.renew_all()
    assert renewer.held() == {}
    assert renewer.duplicate_worker_leases == frozenset()
    assert "java" in (known_of.lost_because or "")
    assert "java" in (unknown_of.lost_because or "")


def test_a_scan_that_is_older_than_ones_own_writes_is_not_believed(
    table: LeaseTable, renewer: LeaseRenewer
) -> None:
    (held,) = acquire(renewer, table, "a")
    asked = replace(held.lease, owner="thief", checkpoint_owner="me")
    held.checkpoint(AT)
    held.observe(asked)
    assert held.handoff_to is None


@pytest.mark.parametrize("was_noticed", [False, True])
def test_a_release_goes_on_while_a_worker_requests_the_lease_and_withdraws(
    table: LeaseTable, renewer: LeaseRenewer, monkeypatch: pytest.MonkeyPatch, *, was_noticed: bool
) -> None:
    """As workers do that end at the same time: each change comes before a write of the release."""
    (held,) = acquire(renewer, table, "a")
    changes = ["request", "withdraw"]
    if was_noticed:
        held.observe(table.write(requests.initiate_handoff(held.lease, "thief")))
        changes = ["withdraw", *changes]
    write = LeaseTable.write

    def write_late(at: LeaseTable, update: requests.Update, *, in_doubt: bool = False) -> Lease:
        if changes:
            row = lease_of(table, "a")
            if changes.pop(0) == "request":
                write(at, requests.initiate_handoff(row, "thief"))
            else:
                write(at, requests.withdraw_handoff(row))
        return write(at, update, in_doubt=in_doubt)

    monkeypatch.setattr(LeaseTable, "write", write_late)
    held.release()
    assert changes == []
    row = lease_of(table, "a")
    assert (row.owner, row.checkpoint_owner) == (None, None)


def test_a_release_that_is_always_refused_gives_up(
    table: LeaseTable, renewer: LeaseRenewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (held,) = acquire(renewer, table, "a")
    row = lease_of(table, "a")

    def refuse(at: LeaseTable, update: requests.Update, *, in_doubt: bool = False) -> Lease:
        raise LeaseChangedError("refused", row)

    monkeypatch.setattr(LeaseTable, "write", refuse)
    with pytest.raises(LeaseTableError, match="Cannot release the lease for shard a"):
        held.release()
    assert not held.is_held()


def test_releasing_what_is_lost_leaves_it_alone(
    table: LeaseTable, renewer: LeaseRenewer, time: ManualTime
) -> None:
    taken, lost, expired = acquire(renewer, table, "taken", "lost", "expired")
    table.write(requests.take(taken.lease, "other"))
    lost.lose("the test says so")
    rows = by_key(table)
    taken.release()
    lost.release()
    time.now += FAILOVER + 1
    expired.release()
    assert by_key(table) == rows
    assert lease_of(table, "expired").owner == "me"


def test_a_lease_regained_is_another_holding(
    table: LeaseTable, renewer: LeaseRenewer, time: ManualTime
) -> None:
    (first,) = acquire(renewer, table, "a")
    table.write(requests.take(lease_of(table, "a"), "other"))
    second = renewer.hold(
        table.write(requests.take(lease_of(table, "a"), "me")), since=time.now - 1
    )
    with pytest.raises(LeaseLostError, match="acquired anew"):
        first.checkpoint(AT)
    first.release()
    assert second.renewed_at == time.now - 1
    second.checkpoint(LATER)
    assert renewer.held() == {"a": second}
    assert lease_of(table, "a") == second.lease


def test_batches_that_were_not_permitted_are_tried_again_later(
    server: LocalServer, table: LeaseTable, time: ManualTime, caplog: pytest.LogCaptureFixture
) -> None:
    renewer = LeaseRenewer(table, "me", 4 * BATCHES_AGAIN, time)
    acquire(renewer, table, "a", "b")
    permitted = False

    def deny(call: Call) -> Fault | None:
        is_denied = call.operation == "BatchExecuteStatement" and not permitted
        return Fault.error("AccessDeniedException") if is_denied else None

    def batches() -> int:
        before = len(server.kinesis.calls.select("BatchExecuteStatement"))
        renewer.renew_all()
        return len(server.kinesis.calls.select("BatchExecuteStatement")) - before

    server.kinesis.faults = deny
    caplog.set_level(logging.WARNING)
    assert [batches(), batches()] == [1, 0]
    time.now += BATCHES_AGAIN
    assert [batches(), batches()] == [1, 0]
    assert [lease_of(table, key).counter for key in "ab"] == [5, 5], "renewed one by one"
    assert caplog.text.count("one by one") == 1
    assert "PartiQLUpdate" in caplog.text
    permitted = True
    time.now += BATCHES_AGAIN - 1
    assert batches() == 0
    time.now += 1
    assert [batches(), batches()] == [2, 1]  # the first of these is the probe
    assert [lease_of(table, key).counter for key in "ab"] == [8, 8]


def test_a_renewal_and_a_checkpoint_at_once_both_take_effect(
    table: LeaseTable, renewer: LeaseRenewer
) -> None:
    held = acquire(renewer, table, *(f"s{i}" for i in range(4)))
    renewer.renew_all()  # from now on in batches
    stop = threading.Event()
    failed: list[Exception] = []

    def renew() -> None:
        while not stop.is_set():
            renewer.renew_all()

    def checkpoint(one: HeldLease) -> None:
        try:
            for n in range(200, 212):
                one.checkpoint(ExtendedSequenceNumber(str(n)))
        except Exception as error:  # noqa: BLE001
            failed.append(error)

    renewing = threading.Thread(target=renew)
    writers = [threading.Thread(target=checkpoint, args=(one,)) for one in held]
    renewing.start()
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    renewing.join()
    assert failed == []
    assert len(renewer.held()) == 4
    for one in held:
        assert lease_of(table, one.key) == one.lease
        assert one.lease.checkpoint == ExtendedSequenceNumber("211")
        assert one.lease.counter > 14


def test_rows_of_others_keep_their_attributes_through_batches(
    table: LeaseTable, renewer: LeaseRenewer, dynamodb: Any
) -> None:
    acquire(renewer, table, "a", "b")
    dynamodb.update_item(
        TableName=table.name,
        Key={"leaseKey": {"S": "a"}},
        UpdateExpression="SET theirs = :x",
        ExpressionAttributeValues={":x": {"L": [{"BOOL": True}]}},
    )
    before = row_of(dynamodb, table, "a")
    renewer.renew_all()
    assert row_of(dynamodb, table, "a") == {**before, "leaseCounter": {"N": "2"}}


def test_the_threads_that_help_to_renew_give_signs_of_life_of_their_own(
    table: LeaseTable, renewer: LeaseRenewer, server: LocalServer, time: ManualTime
) -> None:
    """More leases than a call takes are renewed by several threads, and each call may hang."""
    acquire(renewer, table, *(f"shard-{number}" for number in range(30)))
    renewer.renew_all()  # shows that the server takes batches
    sign, helpers = SignOfLife(time), []

    def count(call: Call) -> Fault | None:
        if call.operation == "BatchExecuteStatement":
            helpers.append(len(sign._helpers))
        return None

    server.kinesis.faults = count
    try:
        sign.during(renewer.renew_all)
    finally:
        server.kinesis.faults = None
    assert len(helpers) == 2
    assert min(helpers) >= 1
    assert not sign._helpers
