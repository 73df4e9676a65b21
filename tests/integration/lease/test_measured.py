"""The metrics of the lease table and of leases, beside what the server and the table show."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from sparkinesis.errors import LeaseTableUnavailableError, SparkinesisError
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.provisioning import Patience
from sparkinesis.lease.table.statements import BATCH
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.lease.table.write_conflict import LeaseChangedError
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.metrics.catalogue import (
    RENEWAL_DURATION,
    SHARD_SYNC_DURATION,
    TABLE_CALL_DURATION,
    TAKE_DURATION,
)
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.metrics.tally import Tally
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.worker.aws_options import LeaseTableOptions
from tests.failing import Failing
from tests.integration.lease.conftest import (
    SYNC,
    ManualTime,
    Scene,
    coordinator_of,
    lease,
    lease_of,
    leased,
)
from tests.tallies import counted, seconds

FAILOVER = 1000.0
"""Seconds: far more than the retries of a test take by its clock."""
IN_BATCHES = "BatchExecuteStatement"
THROTTLED = Fault.error("ProvisionedThroughputExceededException")
FAILED_500 = Fault.error("InternalServerError", status=500)


@dataclass
class Measured:
    """A lease table whose calls are measured; its retries take no time but the clock's."""

    server: LocalServer
    plain: LeaseTable
    time: ManualTime
    tally: Tally = field(default_factory=Tally)
    asked: int = 0
    """The times that the retries' clock was asked."""

    def table(self, metrics: Metrics | None = None) -> LeaseTable:
        def now() -> float:
            self.asked += 1
            return self.time.now

        def sleep(pause: float) -> None:
            self.time.now += pause

        retry = Backoff(0.05, 1.0, 3.0, now, sleep, lambda _, high: high)
        return replace(self.plain, retry=retry, metrics=self.tally if metrics is None else metrics)

    @property
    def calls(self) -> dict[tuple[str, ...], float]:
        return counted(self.tally, TABLE_CALL_DURATION)

    def at_server(self) -> Counter[tuple[str, str | None]]:
        """The calls that the server has answered, by operation and error."""
        calls = self.server.kinesis.calls.select(stream=self.plain.name)
        return Counter((call.operation, call.error) for call in calls)


@pytest.fixture
def measured(server: LocalServer, table: LeaseTable, time: ManualTime) -> Measured:
    return Measured(server, table, time)


OPERATIONS: dict[str, Callable[[LeaseTable], object]] = {
    "Scan": lambda table: table.scan(),
    "GetItem": lambda table: table.get("a"),
    "PutItem": lambda table: table.create(lease("b")),
    "UpdateItem": lambda table: table.write(requests.take(lease("a"), "me")),
    "DeleteItem": lambda table: table.delete(lease("a")),
}


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        (THROTTLED, "throttled"),
        (FAILED_500, "retryable"),
        (Fault.dropped("before"), "retryable"),
    ],
    ids=["throttled", "500", "reset"],
)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_attempt_counts(measured: Measured, operation: str, fault: Fault, result: str) -> None:
    measured.plain.create(lease("a"))
    measured.server.kinesis.faults = Failing(operation, fault, times=2)
    OPERATIONS[operation](measured.table())
    assert measured.calls == {(operation, result): 2, (operation, "ok"): 1}


def test_a_condition_that_fails_is_refused(measured: Measured) -> None:
    table = measured.table()
    assert table.create(lease("a"))
    assert not table.create(lease("a"))
    taken = table.write(requests.take(lease("a"), "me"))
    with pytest.raises(LeaseChangedError):
        table.write(requests.take(lease("a"), "other"))
    assert not table.delete(msgspec.structs.replace(taken, counter=taken.counter + 1))
    assert measured.calls == {
        ("PutItem", "ok"): 1,
        ("PutItem", "refused"): 1,
        ("UpdateItem", "ok"): 1,
        ("UpdateItem", "refused"): 1,
        ("DeleteItem", "refused"): 1,
    }


@pytest.mark.parametrize(
    ("code", "result"),
    [("ThrottlingError", "throttled"), ("InternalServerError", "retryable")],
)
def test_a_batch_counts_as_its_worst_statement(measured: Measured, code: str, result: str) -> None:
    """The call itself is answered with 200; one row was changed meanwhile, too."""
    for key in "abc":
        measured.plain.create(lease(key))
    rows = sorted(measured.plain.leases(), key=lambda row: row.key)
    measured.plain.write(requests.take(rows[2], "other"))
    some = Fault(code, entries=frozenset({0}))
    measured.server.kinesis.faults = Failing(IN_BATCHES, some)
    results = measured.table().write_batch([requests.take(row, "me") for row in rows])
    assert [isinstance(one, Lease) for one in results] == [True, True, False]
    assert measured.calls == {(IN_BATCHES, result): 1, (IN_BATCHES, "ok"): 1}
    measured.table().write_batch([requests.take(row, "me") for row in rows])
    assert measured.calls[IN_BATCHES, "refused"] == 1


def test_a_new_table_is_measured_too(measured: Measured, moto: LocalServer) -> None:
    name = f"new-{uuid.uuid4().hex[:8]}"
    table = replace(measured.table(), name=name, endpoint=moto.endpoint_url)
    patience = Patience(clock=measured.time, sleep=lambda _: None)
    assert table.provision(LeaseTableOptions(point_in_time_recovery=True), patience)
    assert measured.calls == {
        ("DescribeTable", "failed"): 1,  # there is no such table
        ("CreateTable", "ok"): 1,
        ("DescribeTable", "ok"): 1,
        ("UpdateContinuousBackups", "ok"): 1,
    }


def test_a_slow_call_takes_as_long_as_it_takes(measured: Measured) -> None:
    def slow(_: Call) -> None:
        measured.time.now += 1.25

    measured.server.kinesis.faults = slow
    measured.table().scan()
    assert seconds(measured.tally, TABLE_CALL_DURATION) == {("Scan", "ok"): pytest.approx(1.25)}


def test_off_costs_nothing(measured: Measured) -> None:
    """Nobody asks a clock for a measurement."""

    def asks(metrics: Metrics) -> int:
        before = measured.asked
        measured.table(metrics).scan()
        return measured.asked - before

    assert asks(OFF) == 0, "no call failed, so that nothing is tried again"
    assert asks(Tally()) == 2


def worker(measured: Measured) -> LeaseCoordinator:
    """The leases of a worker "me", by a table whose calls are not measured."""
    return coordinator_of(
        measured.table(OFF), measured.time, failover=FAILOVER, metrics=measured.tally
    )


def fill(table: LeaseTable, count: int) -> None:
    for number in range(count):
        table.create(lease(f"s{number:03}"))


def holding(measured: Measured, count: int) -> LeaseCoordinator:
    """The same, with so many leases; a worker takes them in a few rounds."""
    fill(measured.plain, count)
    coordinator = worker(measured)
    for _ in range(count):
        coordinator.take()
        if len(coordinator.held()) == count:
            return coordinator
    raise AssertionError(coordinator.held())


def test_each_round_of_taking_is_one_and_lasts_as_long_as_it_lasts(measured: Measured) -> None:
    fill(measured.plain, 3)
    coordinator = worker(measured)

    def slow(call: Call) -> None:
        measured.time.now += 2.0 * (call.operation == "Scan")

    measured.server.kinesis.faults = slow
    coordinator.take()
    assert coordinator.held()
    assert counted(measured.tally, TAKE_DURATION) == {("ok",): 1}
    assert seconds(measured.tally, TAKE_DURATION) == {("ok",): pytest.approx(2.0)}
    measured.server.kinesis.faults = Failing("Scan", then=FAILED_500)
    with pytest.raises(LeaseTableUnavailableError):
        coordinator.take()
    assert counted(measured.tally, TAKE_DURATION) == {("ok",): 1, ("failed",): 1}


@pytest.mark.parametrize("count", [1, BATCH + 2])
def test_a_round_of_renewals_fails_if_a_lease_cannot_be_renewed(
    measured: Measured, count: int
) -> None:
    coordinator = holding(measured, count)
    coordinator.renew()
    assert counted(measured.tally, RENEWAL_DURATION) == {("ok",): 1}
    measured.server.kinesis.faults = lambda _: FAILED_500
    measured.time.now += 1
    coordinator.renew()
    assert counted(measured.tally, RENEWAL_DURATION) == {("ok",): 1, ("failed",): 1}
    assert len(coordinator.held()) == count, "none of them is lost yet"
    measured.server.kinesis.faults = None
    coordinator.renew()
    assert counted(measured.tally, RENEWAL_DURATION) == {("ok",): 2, ("failed",): 1}


def test_a_lease_that_another_worker_has_taken_is_no_failure_of_the_round(
    measured: Measured,
) -> None:
    coordinator = holding(measured, 2)
    measured.plain.write(requests.take(lease_of(measured.plain, "s000"), "other"))
    coordinator.renew()
    assert set(coordinator.held()) == {"s001"}
    assert counted(measured.tally, RENEWAL_DURATION) == {("ok",): 1}


def test_each_sync_audit_and_cleanup_is_measured_and_what_is_not_due_is_none(scene: Scene) -> None:
    """Audits and cleanups are the leader's. Each is one."""
    stream, tally = leased(scene, 2), Tally()
    syncer = stream.syncer(metrics=tally)

    def syncs(*, failed: int = 1, **more: int) -> bool:
        found = {"failed": failed, **more}
        return counted(tally, SHARD_SYNC_DURATION) == {
            (stream.name, result): count for result, count in found.items()
        }

    denied = scene.faults(Fault.error("AccessDeniedException"), "ListShards")
    with denied, pytest.raises(SparkinesisError):
        syncer.sync()
    assert syncs()
    syncer.sync()
    syncer.step(scene.table.leases(), audits=True)
    assert syncs(ok=1), "nothing was due"
    scene.time.now += SYNC.audit_interval
    syncer.step(scene.table.leases(), audits=False)
    assert syncs(ok=1)
    scene.time.now += SYNC.cleanup_interval
    syncer.step(scene.table.leases(), audits=True)
    assert syncs(ok=2), "the cleanup"
    scene.time.now += SYNC.audit_interval
    syncer.step(scene.table.leases(), audits=True)
    assert syncs(ok=4), "the audit, and the cleanup"
