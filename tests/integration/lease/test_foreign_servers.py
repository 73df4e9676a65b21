"""Leases in the tables of servers that are not DynamoDB, nor ours: plain moto, and lesser ones."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from msgspec.structs import replace

from sparkinesis.errors import LeaseLostError, LeaseTableError, LeaseTableUnavailableError
from sparkinesis.events import RenewalFailed
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import MAX_TRIES
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.batching import BATCHES_AGAIN
from sparkinesis.lease.table.table import LeaseTable
from tests.foreign_dynamodb import Lacking, plain_moto
from tests.integration.lease.conftest import FAILOVER, Scene, by_key, lease, table_at, take
from tests.kcl import create_table

AT = ExtendedSequenceNumber("500", 3)
BATCH = "BatchExecuteStatement"

_numbers = itertools.count()


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Lacking, str]]:
    """The tests' server, with its URL: a client takes a while to make. Tables are their own."""
    with plain_moto() as moto:
        server = Lacking(moto)
        with server.running() as url:
            yield server, url


@pytest.fixture
def server(shared: tuple[Lacking, str]) -> Lacking:
    """One that passes everything on, until a test makes it lack something."""
    found = shared[0]
    found.lack_nothing()
    return found


@pytest.fixture(scope="module")
def dynamodb(shared: tuple[Lacking, str]) -> Any:
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
    return boto3.client("dynamodb", region_name="us-east-1", endpoint_url=shared[1], **keys)


@pytest.fixture
def table(server: Lacking, shared: tuple[Lacking, str], dynamodb: Any) -> LeaseTable:
    name = f"foreign-{next(_numbers)}"
    create_table(dynamodb, name)
    return table_at(shared[1], name)


def rounds(scene: Scene, count: int, renewer: LeaseRenewer | None = None) -> None:
    """Renewals for longer than a lease lives without."""
    for _ in range(count):
        scene.time.now += FAILOVER / 3
        (renewer or scene.renewer).renew_all()


# --- batches


def test_a_server_that_answers_success_for_a_failed_condition_gets_no_batches(
    server: Lacking, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    kept, taken, asked = scene.acquire("a", "b", "c")
    rounds(scene, 2)
    others = scene.table.write(requests.take(taken.lease, "other"))
    scene.table.write(requests.initiate_handoff(asked.lease, "thief"))
    rounds(scene, 4)
    # Not known to be lost, if a batch were believed.
    assert set(scene.renewer.held()) == {"a", "c"}
    with pytest.raises(LeaseLostError, match="worker other has taken it"):
        taken.require_held("write")
    assert asked.handoff_to == "thief"
    assert by_key(scene.table) == [kept.lease, others, asked.lease]
    assert kept.lease.counter == 7
    assert server.calls[BATCH] == 1
    assert caplog.text.count("one by one") == 1
    assert "answers success for a statement whose condition does not hold" in caplog.text


@pytest.mark.parametrize(
    "error",
    [(400, "UnknownOperationException"), (400, "ValidationException"), (404, "InvalidAction")],
)
def test_a_server_without_batches_is_asked_once_and_leases_are_kept(
    server: Lacking, scene: Scene, caplog: pytest.LogCaptureFixture, error: tuple[int, str]
) -> None:
    server.errors = {BATCH: error}
    patient = LeaseRenewer(scene.table, "me", 3 * BATCHES_AGAIN, scene.time)
    held = scene.acquire("a", "b", "c", renewer=patient)
    rounds(scene, 4, patient)
    scene.time.now += BATCHES_AGAIN
    rounds(scene, 1, patient)
    assert set(patient.held()) == {"a", "b", "c"}
    assert by_key(scene.table) == [one.lease for one in held]
    assert {one.lease.counter for one in held} == {6}
    assert server.calls[BATCH] == 1
    (told,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert "one by one from now on" in told
    assert error[1] in told


def test_a_server_whose_batches_fail_is_asked_again_after_a_while(
    server: Lacking, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    server.errors = {BATCH: (500, "InternalServerError")}
    patient = LeaseRenewer(scene.table, "me", 3 * BATCHES_AGAIN, scene.time)
    held = scene.acquire("a", "b", renewer=patient)
    rounds(scene, 1, patient)
    tries = server.calls[BATCH]
    assert tries > 1
    rounds(scene, 5, patient)
    assert server.calls[BATCH] == tries
    scene.time.now += BATCHES_AGAIN
    rounds(scene, 1, patient)
    again = server.calls[BATCH]
    assert again > tries
    rounds(scene, 1, patient)
    assert server.calls[BATCH] == again
    assert by_key(scene.table) == [one.lease for one in held]
    assert {one.lease.counter for one in held} == {9}
    assert caplog.text.count("every 10 minutes") == 1


def test_an_outage_is_not_taken_for_a_want_of_batches(
    server: Lacking, scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.acquire("a", "b")
    outage = (500, "InternalServerError")
    server.errors = {BATCH: outage, "UpdateItem": outage}
    rounds(scene, 1)
    tries = server.calls[BATCH]
    server.errors = {}
    rounds(scene, 1)
    assert set(scene.renewer.held()) == {"a", "b"}
    assert server.calls[BATCH] == tries + 1  # of plain moto, which answers success
    assert "every 10 minutes" not in caplog.text


def test_without_hash_keys_there_is_nothing_to_probe_with_and_each_lease_goes_alone(
    server: Lacking, scene: Scene
) -> None:
    for key in "ab":
        scene.table.create(replace(lease(key), hash_range=None))
    held = [take(scene.renewer, scene.table, key) for key in "ab"]
    rounds(scene, 5)
    assert by_key(scene.table) == [one.lease for one in held]
    assert server.calls[BATCH] == 0
    scene.table.write(requests.add_hash_range(held[1].lease, (0, 9)))
    rounds(scene, 2)  # the first of these learns of it
    assert server.calls[BATCH] == 1


# --- refusals without a row


def test_a_handoff_is_noticed_by_a_refusal_without_a_row(server: Lacking, scene: Scene) -> None:
    server.tells_rows = False
    asked, seen, kept = scene.acquire("a", "b", "c")
    scene.table.write(requests.initiate_handoff(asked.lease, "thief"))
    scene.table.write(requests.initiate_handoff(seen.lease, "thief"))
    asked.checkpoint(AT)
    rounds(scene, 1)
    for one in (asked, seen):
        assert one.is_held()
        assert one.handoff_to == "thief"
        one.checkpoint(AT)
        one.release()
    assert [row.owner for row in by_key(scene.table)] == ["thief", "thief", "me"]
    assert kept.is_held()
    assert scene.renewer.duplicate_worker_leases == frozenset()


def test_a_deleted_row_is_recognised_by_a_refusal_without_a_row(
    server: Lacking, scene: Scene
) -> None:
    server.tells_rows = False
    deleted, taken = scene.acquire("a", "b")
    scene.table.delete(deleted.lease)
    others = scene.table.write(requests.take(taken.lease, "other"))
    scene.renewer.renew_all()
    assert scene.renewer.held() == {}
    for held, why in ((deleted, "its row was deleted"), (taken, "worker other has taken it")):
        with pytest.raises(LeaseLostError, match=why):
            held.require_held("write")
    assert by_key(scene.table) == [others]


def test_a_refusal_without_a_row_that_cannot_be_read_either_is_no_loss(
    server: Lacking, scene: Scene
) -> None:
    server.tells_rows = False
    (held,) = scene.acquire("a")
    scene.table.write(requests.initiate_handoff(held.lease, "thief"))
    server.errors = {"GetItem": (500, "InternalServerError")}
    with pytest.raises(LeaseTableUnavailableError, match="GetItem"):
        held.checkpoint(AT)
    assert held.is_held()
    server.errors = {}
    held.checkpoint(AT)
    assert held.handoff_to == "thief"
    assert by_key(scene.table) == [held.lease]


def test_a_server_that_refuses_for_no_reason_is_not_asked_without_end(
    server: Lacking, scene: Scene
) -> None:
    """The clock stands still here, so that no lease runs out and ends it."""
    held = scene.acquire("a", "b")
    scene.renewer.renew_all()
    scene.told.clear()
    for operation in ("UpdateItem", BATCH):
        server.errors[operation] = 400, "ConditionalCheckFailedException"
    server.calls.clear()
    scene.renewer.renew_all()
    assert 0 < server.calls["UpdateItem"] + server.calls[BATCH] <= 2 * MAX_TRIES
    (failed,) = scene.told
    assert isinstance(failed, RenewalFailed)
    assert (failed.leases, failed.of) == (2, 2)
    assert failed.error.startswith("refused, although")
    with pytest.raises(
        LeaseTableError, match="the server refuses the write, although the row meets"
    ):
        held[0].checkpoint(AT)
    assert set(scene.renewer.held()) == {"a", "b"}
    with pytest.raises(LeaseTableError, match="Cannot release the lease for shard b"):
        held[1].release()
    assert not held[1].is_held()
    server.errors.clear()
    held[0].checkpoint(AT)
    assert by_key(scene.table)[0].checkpoint == AT
