"""The calls on a lease table, against a DynamoDB over HTTP: rows before and after, and errors."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.errors import (
    AccessDeniedError,
    LeaseTableNotFoundError,
    LeaseTableUnavailableError,
    SparkinesisError,
)
from sparkinesis.events import ignore
from sparkinesis.lease.acquisitions import Acquisitions
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease, PendingCheckpoint, decode_lease, encode_lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.update import Update
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.local import Fault, LocalServer
from tests.failing import Failing
from tests.integration.lease.conftest import Scene, lease, renew_many, table_of
from tests.kcl import COORDINATION, KCL_2, KCL_3, java_refuses, put_rows

SERVER = "moto"
AT = ExtendedSequenceNumber("500", 3)
LATEST = ExtendedSequenceNumber("LATEST")
OURS = {"app": {"M": {"deep": {"L": [{"N": "1"}]}}}, "other": {"SS": ["x"]}}

UPDATES: dict[str, Callable[[Lease], Update]] = {
    "renew": requests.renew,
    "renew with throughput": lambda row: requests.with_throughput(requests.renew(row), 3.25),
    "take": lambda row: requests.take(row, "me"),
    "assign": lambda row: requests.assign(row, "me"),
    "evict": requests.evict,
    "release": lambda row: requests.release(row, "me"),
    "checkpoint": lambda row: requests.checkpoint(row, AT),
    "checkpoint an instant": lambda row: requests.checkpoint(row, LATEST, 1_800_000_000_123),
    "prepare": lambda row: requests.prepare(row, PendingCheckpoint(AT)),
    "prepare with state": lambda row: requests.prepare(row, PendingCheckpoint(AT, b"\x00")),
    "add children": lambda row: requests.add_children(row, ["c2", "c1"]),
    "add hash range": lambda row: requests.add_hash_range(row, (5, 9)),
    "reset": lambda row: requests.reset(row, AT),
}
FENCED = set(UPDATES) - {"assign", "evict", "add children", "add hash range"}
"""Those that the counter guards."""


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("item", [*KCL_2, *KCL_3])
def test_a_write_to_a_javas_row_leaves_what_java_reads_and_what_others_wrote(
    scene: Scene, name: str, item: dict[str, Any]
) -> None:
    put_rows(scene.dynamodb, scene.table.name, [{**item, **OURS}])
    before = decode_lease(item)
    assert before is not None
    update = UPDATES[name](before)
    returned = scene.table.write(update)
    row = scene.row(before.key)
    assert returned == decode_lease(row) == update.after
    # One of the rows has Java's own mistake in it.
    assert set(java_refuses(row)) <= set(java_refuses(item))
    assert {name: row[name] for name in OURS} == OURS
    assert row.get("entityType") == item.get("entityType")


@pytest.mark.parametrize("name", sorted(FENCED))
def test_a_write_with_an_old_counter_is_refused_and_shows_the_row(scene: Scene, name: str) -> None:
    scene.table.create(lease("s", "me"))
    (old,) = scene.table.leases()
    new = scene.table.write(requests.renew(old))
    with pytest.raises(LeaseChangedError, match=r"'s'.*its counter is 1, owner me") as caught:
        scene.table.write(UPDATES[name](old))
    assert caught.value.row == new
    assert scene.table.get("s") == new


def test_a_late_take_does_not_meet_an_owner_that_has_its_lease_back(scene: Scene) -> None:
    """No counter rises when a handoff is requested, and when the request is withdrawn."""
    scene.table.create(lease("s", "victim"))
    asked = scene.table.write(requests.initiate_handoff(scene.table.leases()[0], "thief"))
    back = scene.table.write(requests.withdraw_handoff(asked))
    with pytest.raises(LeaseChangedError) as caught:
        scene.table.write(requests.take(asked, "thief"))
    assert caught.value.row == back


def test_writes_on_who_has_stopped_a_shard_do_not_undo_each_other(scene: Scene) -> None:
    """Each is refused that goes by an older view; the note outlives other writes."""
    scene.table.create(lease("s", "a"))
    (known,) = scene.table.leases()
    seen = scene.table.write(requests.with_stop(known, requests.evict(known), "a"))
    assert scene.row("s")["stoppedBy"] == {"SS": ["a"]}
    taken = scene.table.write(requests.take(seen, "java"))
    assert taken.stopped_by == ("a",)
    restarted = scene.table.write(requests.restart(taken))
    for stale in (requests.with_stop(taken, requests.evict(taken), "b"), requests.restart(taken)):
        with pytest.raises(LeaseChangedError):
            scene.table.write(stale)
    assert scene.table.get("s") == restarted
    assert restarted.stopped_by == ()


def test_a_worker_that_ends_leaves_a_lease_to_a_process_started_with_its_id(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is the same then; only the counter shows it."""
    scene.table.create(lease("s", "me"))
    taken: list[Lease] = []

    def held() -> tuple[str, ...]:
        if not taken:
            taken.append(scene.table.write(requests.take(scene.table.leases()[0], "me")))
        return ()

    renewer = LeaseRenewer(scene.table, "me", 10.0)
    monkeypatch.setattr(renewer, "held", held)
    acquisitions = Acquisitions(scene.table, renewer, "me", monotonic, ignore)
    acquisitions.withdraw({"s"})
    assert scene.table.get("s") == taken[0]
    acquisitions.withdraw({"s"})
    assert scene.table.leases()[0].owner is None


@pytest.mark.parametrize("name", UPDATES)
def test_a_write_creates_no_row(scene: Scene, name: str) -> None:
    with pytest.raises(LeaseChangedError, match="it was deleted") as caught:
        scene.table.write(UPDATES[name](lease("s")))
    assert caught.value.row is None
    assert scene.table.leases() == []


def test_a_lease_is_created_once(scene: Scene) -> None:
    new = replace(lease("s", checkpoint="LATEST"), timestamp_ms=5, hash_range=(0, 9))
    assert scene.table.create(new)
    assert not scene.table.create(replace(new, counter=9))
    assert scene.table.leases() == [new]
    assert scene.row("s") == encode_lease(new)


def test_a_scan_reads_leases_of_many_pages_and_no_coordination(scene: Scene) -> None:
    put_rows(scene.dynamodb, scene.table.name, [*KCL_2, *COORDINATION])
    # Rows of 300 kB, since a page holds 1 MB.
    long = {"padding": {"S": "x" * 300_000}}
    put_rows(
        scene.dynamodb,
        scene.table.name,
        [{**encode_lease(lease(f"long-{i}")), **long} for i in range(7)],
    )
    for consistent in (True, False):
        found = sorted(scene.table.leases(consistent=consistent), key=lambda one: one.key)
        assert found == [
            *(lease(f"long-{i}") for i in range(7)),
            *filter(None, map(decode_lease, KCL_2)),
        ]


def test_only_what_is_still_finished_or_as_known_is_deleted(scene: Scene) -> None:
    scene.table.create(lease("open"))
    scene.table.create(lease("done", checkpoint="SHARD_END"))
    rows = {one.key: one for one in scene.table.leases()}
    scene.table.write(requests.reset(rows["done"], AT))
    scene.table.write(requests.take(rows["open"], "other"))
    assert not scene.table.delete(rows["done"])
    assert not scene.table.delete(rows["open"])
    rows = {one.key: one for one in scene.table.leases()}
    assert scene.table.delete(rows["open"])
    assert not scene.table.delete(rows["open"])
    done = scene.table.write(requests.checkpoint(rows["done"], ExtendedSequenceNumber("SHARD_END")))
    scene.table.write(requests.take(done, "other"))
    assert scene.table.delete(done)
    assert scene.table.leases() == []


def test_many_are_renewed_in_one_call_each_on_its_own_terms(scene: Scene) -> None:
    for i in range(40):
        scene.table.create(lease(f"s{i:02}", "me"))
    known = sorted(scene.table.leases(), key=lambda one: one.key)
    taken = scene.table.write(requests.take(known[3], "other"))
    asked = scene.table.write(requests.initiate_handoff(known[30], "thief"))
    scene.table.delete(known[17])
    calls = len(scene.server.kinesis.calls.select("BatchExecuteStatement"))
    results = renew_many(scene.table, known)
    assert len(scene.server.kinesis.calls.select("BatchExecuteStatement")) == calls + 2
    rows = {3: taken, 30: asked, 17: None}
    for i, (before, result) in enumerate(zip(known, results, strict=True)):
        if i in rows:
            assert isinstance(result, LeaseChangedError)
            assert result.row == rows[i]
        else:
            assert result == replace(before, counter=1)
            assert scene.table.get(before.key) == result
    assert scene.table.get(asked.key) == asked
    # Once the handoff is known, its owner goes on renewing.
    assert renew_many(scene.table, [asked, taken]) == [
        replace(asked, counter=1),
        replace(taken, counter=2),
    ]


def test_a_write_whose_answer_is_lost_is_known_to_have_landed(scene: Scene) -> None:
    scene.table.create(lease("a", "me"))
    (known,) = scene.table.leases()
    scene.server.kinesis.faults = lost = Failing("UpdateItem", Fault.dropped("after"))
    taken = replace(known, owner="other", counter=1, owner_switches=1, fencing_token=640)
    assert scene.table.write(requests.take(known, "other")) == taken
    assert scene.table.get(taken.key) == taken
    assert lost.met == 1


@pytest.mark.parametrize("code", ["ThrottlingException", "TransactionConflictException"])
@pytest.mark.parametrize("times", [2, 10_000])
def test_throttling_is_waited_out_or_said(scene: Scene, code: str, times: int) -> None:
    scene.table.create(lease("s", "me"))
    (known,) = scene.table.leases()
    calls: dict[str, Callable[[], object]] = {
        "UpdateItem": lambda: scene.table.write(requests.renew(known)),
        "Scan": scene.table.leases,
        "GetItem": lambda: scene.table.get("s"),
    }
    for operation, call in calls.items():
        scene.server.kinesis.faults = Failing(operation, Fault.error(code), times=times)
        if times == 2:
            call()
        else:
            said = rf"{operation} on the lease table 'app-\d+' .*Every retry was used up.*{code}"
            with pytest.raises(LeaseTableUnavailableError, match=said):
                call()


def test_what_may_not_be_done_is_said_with_what_a_worker_needs(scene: Scene) -> None:
    scene.table.create(lease("a"))
    scene.table.create(lease("b"))
    known = scene.table.leases()
    scene.server.kinesis.faults = lambda call: Fault.error("AccessDeniedException")
    with pytest.raises(AccessDeniedError, match=r"dynamodb:UpdateItem\. A worker needs .*PartiQLU"):
        scene.table.write(requests.renew(known[0]))
    for result in renew_many(scene.table, known):
        assert isinstance(result, AccessDeniedError)
        assert "PartiQLUpdate" in str(result)


def test_a_table_that_is_gone_is_said(scene: Scene) -> None:
    table = LeaseTable("none", "us-east-1", scene.server.endpoint_url)
    calls: list[Callable[[], object]] = [
        table.leases,
        lambda: table.get("s"),
        lambda: table.create(lease("s")),
        lambda: table.write(requests.renew(lease("s"))),
        lambda: table.delete(lease("s")),
    ]
    for call in calls:
        with pytest.raises(LeaseTableNotFoundError, match="There is no lease table 'none'"):
            call()
    results = renew_many(table, [lease("a"), lease("b")])
    assert [type(one) for one in results] == [LeaseTableNotFoundError] * 2


def test_nothing_answers() -> None:
    stopped = LocalServer()
    stopped.start()
    table = table_of(stopped, "app")
    stopped.stop()
    with pytest.raises(LeaseTableUnavailableError, match="Nothing answers for the lease table"):
        table.leases()
    results = renew_many(table, [lease("a"), lease("b")])
    assert [type(one) for one in results] == [LeaseTableUnavailableError] * 2
    assert isinstance(results[0], SparkinesisError)
