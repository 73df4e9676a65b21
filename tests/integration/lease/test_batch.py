"""Renewals that share a call, of which some fail: against a DynamoDB over HTTP."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparkinesis.errors import LeaseLostError, LeaseTableUnavailableError
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.local import Call, Fault, LocalServer
from tests.integration.lease.conftest import ManualTime, acquire, by_key, create, renew_many

BATCH = "BatchExecuteStatement"
PASSING = ["ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"]


class Faults:
    """A fault plan: the calls of one operation meet these faults, one after the other."""

    def __init__(self, *faults: Fault | None, operation: str = BATCH) -> None:
        self.operation, self.faults, self.met = operation, list(faults), 0

    def __call__(self, call: Call) -> Fault | None:
        if call.operation != self.operation or not self.faults:
            return None
        self.met += 1
        return self.faults.pop(0)


def some(code: str, *statements: int, takes_effect: bool = False) -> Fault:
    return Fault(code, entries=frozenset(statements), takes_effect=takes_effect)


@pytest.fixture
def known(table: LeaseTable) -> list[Lease]:
    """Four leases of this worker's."""
    create(table, *"abcd", owner="me")
    return by_key(table)


def renewed(rows: list[Lease], by: int = 1) -> list[Lease]:
    return [replace(row, counter=row.counter + by) for row in rows]


@pytest.mark.parametrize("code", [*PASSING, "InternalServerError"])
def test_statements_that_failed_in_passing_are_sent_again_and_no_others(
    server: LocalServer, table: LeaseTable, known: list[Lease], code: str
) -> None:
    # Of the second call, the second statement is the third lease's.
    server.kinesis.faults = faults = Faults(some(code, 0, 2), some(code, 1))
    assert renew_many(table, known) == renewed(known)
    assert faults.met == 2
    assert by_key(table) == renewed(known)
    assert len(server.kinesis.calls.select(BATCH)) >= 3


@pytest.mark.parametrize("code", [*PASSING, "InternalServerError"])
def test_statements_that_go_on_failing_are_not_renewed(
    server: LocalServer, table: LeaseTable, known: list[Lease], code: str
) -> None:
    # The first call has four statements, and all others those two that have failed.
    server.kinesis.faults = Faults(some(code, 1, 3), *[some(code, 0, 1)] * 1000)
    results = renew_many(table, known)
    assert results[::2] == renewed(known[::2])
    for result in results[1::2]:
        assert isinstance(result, LeaseTableUnavailableError)
        assert "Every retry was used up" in str(result)
    after = by_key(table)
    assert (after[::2], after[1::2]) == (renewed(known[::2]), known[1::2])


@pytest.mark.parametrize("lost", ["answer", "connection"])
def test_a_call_that_took_effect_and_is_throttled_next_is_one_of_renewals_all_the_same(
    server: LocalServer, table: LeaseTable, known: list[Lease], lost: str
) -> None:
    """What came of the first call is still in doubt behind the second."""
    error = Fault("InternalServerError", status=500, takes_effect=True)
    first = error if lost == "answer" else Fault(drop="after")
    server.kinesis.faults = faults = Faults(first, Fault("ThrottlingException"))
    assert renew_many(table, known) == renewed(known)
    assert faults.met == 2
    assert by_key(table) == renewed(known)


def test_one_that_was_taken_after_its_error_is_refused(
    server: LocalServer, table: LeaseTable, known: list[Lease]
) -> None:
    taken = table.write(requests.take(known[1], "other"))
    server.kinesis.faults = Faults(some("InternalServerError", 0, 1))
    results = renew_many(table, known)
    assert isinstance(results[1], LeaseChangedError)
    assert results[1].row == taken
    assert [results[0], *results[2:]] == renewed([known[0], *known[2:]])


@pytest.mark.parametrize("takes_effect", [True, False])
@pytest.mark.parametrize("last", ["ThrottlingError", "InternalServerError"])
def test_leases_whose_renewals_failed_are_held_and_renewed_in_the_next_round(
    *,
    server: LocalServer,
    table: LeaseTable,
    renewer: LeaseRenewer,
    time: ManualTime,
    takes_effect: bool,
    last: str,
) -> None:
    """Also those that were renewed although an internal error said otherwise."""
    held = acquire(renewer, table, *"abc")
    renewer.renew_all()
    time.now += 3
    server.kinesis.faults = Faults(
        some("InternalServerError", 0, 2, takes_effect=takes_effect), *[some(last, 0, 1)] * 1000
    )
    renewer.renew_all()
    assert [one.renewed_at for one in held] == [1000.0, 1003.0, 1000.0]
    server.kinesis.faults = None
    time.now += 3
    renewer.renew_all()
    assert renewer.duplicate_worker_leases == frozenset()
    assert [one.lease for one in held] == by_key(table)
    assert [one.renewed_at for one in held] == [1006.0] * 3


def test_leases_whose_renewals_are_throttled_for_too_long_are_lost(
    server: LocalServer, table: LeaseTable, renewer: LeaseRenewer, time: ManualTime
) -> None:
    held = acquire(renewer, table, *"abc")
    renewer.renew_all()
    # Of the first call it is the second of three. In every other one it is the first: those that
    # were not renewed for the longest go before others.
    server.kinesis.faults = Faults(some("ThrottlingError", 1), *[some("ThrottlingError", 0)] * 999)
    for _ in range(4):
        time.now += 3
        renewer.renew_all()
    assert set(renewer.held()) == {"a", "c"}
    with pytest.raises(LeaseLostError, match="could not be renewed for 10 s"):
        held[1].require_held("write")


def test_batches_that_fail_whole_are_written_one_by_one_those_that_took_effect_only_once(
    server: LocalServer,
    table: LeaseTable,
    renewer: LeaseRenewer,
    time: ManualTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = acquire(renewer, table, *"abc")
    renewer.renew_all()
    assert {one.lease.counter for one in held} == {2}
    failing = Fault("InternalServerError", status=500, takes_effect=True)
    server.kinesis.faults = Faults(*[failing] * 1000)
    for _ in range(5):
        time.now += 3
        renewer.renew_all()
    assert renewer.duplicate_worker_leases == frozenset()
    assert [one.lease for one in held] == by_key(table)
    assert {one.lease.counter for one in held} == {7}
    assert caplog.text.count("every 10 minutes") == 1
