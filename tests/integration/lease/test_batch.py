"""Renewals that share a call, of which some fail: against a DynamoDB over HTTP."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparkinesis.errors import LeaseLostError, LeaseTableUnavailableError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.local import Fault
from tests.failing import Failing
from tests.integration.lease.conftest import Scene, by_key, renew_many

SERVER = "moto"
BATCH = "BatchExecuteStatement"
PASSING = ["ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"]


def some(code: str, *statements: int, takes_effect: bool = False) -> Fault:
    return Fault(code, entries=frozenset(statements), takes_effect=takes_effect)


@pytest.fixture
def known(scene: Scene) -> list[Lease]:
    """Four leases of this worker's."""
    scene.create(*"abcd", owner="me")
    return by_key(scene.table)


def renewed(rows: list[Lease], by: int = 1) -> list[Lease]:
    return [replace(row, counter=row.counter + by) for row in rows]


@pytest.mark.parametrize("code", [*PASSING, "InternalServerError"])
def test_statements_that_failed_in_passing_are_sent_again_and_no_others(
    scene: Scene, known: list[Lease], code: str
) -> None:
    # Of the second call, the second statement is the third lease's.
    scene.server.kinesis.faults = faults = Failing(BATCH, some(code, 0, 2), some(code, 1))
    assert renew_many(scene.table, known) == renewed(known)
    assert faults.met == 2
    assert by_key(scene.table) == renewed(known)
    assert len(scene.server.kinesis.calls.select(BATCH)) >= 3


@pytest.mark.parametrize("code", [*PASSING, "InternalServerError"])
def test_statements_that_go_on_failing_are_not_renewed(
    scene: Scene, known: list[Lease], code: str
) -> None:
    # The first call has four statements, and all others those two that have failed.
    scene.server.kinesis.faults = Failing(BATCH, some(code, 1, 3), then=some(code, 0, 1))
    results = renew_many(scene.table, known)
    assert results[::2] == renewed(known[::2])
    for result in results[1::2]:
        assert isinstance(result, LeaseTableUnavailableError)
        assert "Every retry was used up" in str(result)
    after = by_key(scene.table)
    assert (after[::2], after[1::2]) == (renewed(known[::2]), known[1::2])


@pytest.mark.parametrize("lost", ["answer", "connection"])
def test_a_call_that_took_effect_and_is_throttled_next_is_one_of_renewals_all_the_same(
    scene: Scene, known: list[Lease], lost: str
) -> None:
    """What came of the first call is still in doubt behind the second."""
    error = Fault("InternalServerError", status=500, takes_effect=True)
    first = error if lost == "answer" else Fault(drop="after")
    scene.server.kinesis.faults = faults = Failing(BATCH, first, Fault("ThrottlingException"))
    assert renew_many(scene.table, known) == renewed(known)
    assert faults.met == 2
    assert by_key(scene.table) == renewed(known)


def test_one_that_was_taken_after_its_error_is_refused(scene: Scene, known: list[Lease]) -> None:
    taken = scene.table.write(requests.take(known[1], "other"))
    scene.server.kinesis.faults = Failing(BATCH, some("InternalServerError", 0, 1))
    results = renew_many(scene.table, known)
    assert isinstance(results[1], LeaseChangedError)
    assert results[1].row == taken
    assert [results[0], *results[2:]] == renewed([known[0], *known[2:]])


@pytest.mark.parametrize("takes_effect", [True, False])
@pytest.mark.parametrize("last", ["ThrottlingError", "InternalServerError"])
def test_leases_whose_renewals_failed_are_held_and_renewed_in_the_next_round(
    scene: Scene, takes_effect: bool, last: str
) -> None:
    """Also those that were renewed although an internal error said otherwise."""
    held = scene.acquire(*"abc")
    scene.renewer.renew_all()
    scene.time.now += 3
    scene.server.kinesis.faults = Failing(
        BATCH,
        some("InternalServerError", 0, 2, takes_effect=takes_effect),
        then=some(last, 0, 1),
    )
    scene.renewer.renew_all()
    assert [one.renewed_at for one in held] == [1000.0, 1003.0, 1000.0]
    scene.server.kinesis.faults = None
    scene.time.now += 3
    scene.renewer.renew_all()
    assert scene.renewer.duplicate_worker_leases == frozenset()
    assert [one.lease for one in held] == by_key(scene.table)
    assert [one.renewed_at for one in held] == [1006.0] * 3


def test_leases_whose_renewals_are_throttled_for_too_long_are_lost(scene: Scene) -> None:
    held = scene.acquire(*"abc")
    scene.renewer.renew_all()
    # Of the first call it is the second of three. In every other one it is the first: those that
    # were not renewed for the longest go before others.
    scene.server.kinesis.faults = Failing(
        BATCH, some("ThrottlingError", 1), then=some("ThrottlingError", 0)
    )
    for _ in range(4):
        scene.time.now += 3
        scene.renewer.renew_all()
    assert set(scene.renewer.held()) == {"a", "c"}
    with pytest.raises(LeaseLostError, match="could not be renewed for 10 s"):
        held[1].require_held("write")


def test_batches_that_fail_whole_are_written_one_by_one_those_that_took_effect_only_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    held = scene.acquire(*"abc")
    scene.renewer.renew_all()
    assert {one.lease.counter for one in held} == {2}
    failing = Fault("InternalServerError", status=500, takes_effect=True)
    scene.server.kinesis.faults = Failing(BATCH, then=failing)
    for _ in range(5):
        scene.time.now += 3
        scene.renewer.renew_all()
    assert scene.renewer.duplicate_worker_leases == frozenset()
    assert [one.lease for one in held] == by_key(scene.table)
    assert {one.lease.counter for one in held} == {7}
    assert caplog.text.count("every 10 minutes") == 1
