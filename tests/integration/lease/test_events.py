"""The events of a worker's leases, on a DynamoDB over HTTP: their origins, and why they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from sparkinesis.errors import LeaseTableUnavailableError
from sparkinesis.events import (
    Event,
    HandoffRequested,
    LeaseEnd,
    LeaseEnded,
    LeaseOrigin,
    LeaseTaken,
    OwnerSilent,
)
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Fault
from sparkinesis.stream.address import StreamIdentifier
from tests.integration.lease.conftest import (
    FAILOVER,
    Scene,
    lease,
    take,
)

_T = TypeVar("_T")


@pytest.fixture
def worker(scene: Scene) -> LeaseCoordinator:
    return scene.coordinator(renewer=scene.renewer, publish=scene.told.append)


def of(told: list[Event], kind: type[_T]) -> list[_T]:
    return [event for event in told if isinstance(event, kind)]


ENDS: dict[LeaseEnd, Callable[[LeaseTable, Lease, Any], object]] = {
    LeaseEnd.TAKEN: lambda table, row, _: table.write(requests.take(row, "other")),
    LeaseEnd.RESET: lambda table, row, _: table.write(requests.evict(row)),
    LeaseEnd.DELETED: lambda table, row, dynamodb: dynamodb.delete_item(
        TableName=table.name, Key={"leaseKey": {"S": row.key}}
    ),
    LeaseEnd.DUPLICATE_WORKER: lambda table, row, _: table.write(requests.take(row, "me")),
}


@pytest.mark.parametrize(
    ("reason", "noticed_by"),
    [
        *((reason, "renewal") for reason in ENDS),
        # A release is tried again with the counter of a process that has the same worker id.
        *((reason, "release") for reason in ENDS if reason is not LeaseEnd.DUPLICATE_WORKER),
    ],
)
def test_a_lease_that_others_changed_ends_for_that_reason(
    scene: Scene, reason: LeaseEnd, noticed_by: str
) -> None:
    (held,) = scene.acquire("a")
    scene.time.now += 3
    ENDS[reason](scene.table, scene.lease("a"), scene.dynamodb)
    if noticed_by == "renewal":
        scene.renewer.renew_all()
    else:
        held.release(LeaseEnd.SHUTDOWN)
    (ended,) = of(scene.told, LeaseEnded)
    assert (ended.lease, ended.shard_id, ended.reason) == ("a", "a", reason)
    assert ended.other_worker == ("other" if reason is LeaseEnd.TAKEN else None)
    assert (ended.held_for, ended.checkpoint, ended.error) == (3.0, "100:0", None)
    held.lose("it is told once")
    held.release()
    assert of(scene.told, LeaseEnded) == [ended]


def test_a_released_lease_that_somebody_has_reset_while_it_was_asked_for_is_left_alone(
    scene: Scene,
) -> None:
    key = lease("a").in_stream(StreamIdentifier("123456789012", "s", 1_700_000_000))
    scene.table.create(key)
    held = take(scene.renewer, scene.table, key.key)
    scene.table.write(requests.initiate_handoff(held.lease, "thief"))
    scene.dynamodb.update_item(
        TableName=scene.table.name,
        Key={"leaseKey": {"S": key.key}},
        UpdateExpression="REMOVE leaseOwner ADD leaseCounter :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )
    row = scene.lease(key.key)
    held.release(LeaseEnd.SHUTDOWN)
    assert scene.lease(key.key) == row
    (ended,) = of(scene.told, LeaseEnded)
    assert (ended.lease, ended.shard_id, ended.reason) == (key.key, "a", LeaseEnd.RESET)


def test_an_expired_lease_ends_with_the_error_that_kept_it_from_being_renewed(scene: Scene) -> None:
    (held,) = scene.acquire("a")
    held.checkpoint(ExtendedSequenceNumber("700", 2))
    scene.server.kinesis.faults = lambda call: Fault.error("ServiceUnavailable", status=503)
    scene.time.now += FAILOVER - 1
    scene.renewer.renew_all()
    assert of(scene.told, LeaseEnded) == []
    scene.time.now += 2
    held.release(LeaseEnd.SHUTDOWN)
    (ended,) = of(scene.told, LeaseEnded)
    assert ended.reason is LeaseEnd.EXPIRED, "whatever the caller wanted: it was too late for that"
    assert ended.held_for == FAILOVER + 1
    assert ended.checkpoint == "700:2"
    assert "could not be renewed for 10 s" in ended.detail
    assert ended.error is not None
    assert "ServiceUnavailable" in ended.error


def test_an_error_that_a_renewal_has_overcome_is_not_told(scene: Scene) -> None:
    """As when the process stands still afterwards."""
    scene.acquire("a")
    with scene.faults(Fault.error("ServiceUnavailable", status=503)):
        scene.renewer.renew_all()
    scene.renewer.renew_all()
    scene.time.now += FAILOVER + 1
    scene.renewer.renew_all()
    (ended,) = of(scene.told, LeaseEnded)
    assert (ended.reason, ended.error) == (LeaseEnd.EXPIRED, None)


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_a_released_lease_names_the_worker_that_gets_it(
    scene: Scene, *, is_asked_for: bool
) -> None:
    (held,) = scene.acquire("a")
    if is_asked_for:
        scene.table.write(requests.initiate_handoff(held.lease, "thief"))
    held.release(LeaseEnd.HANDED_OVER)
    (ended,) = of(scene.told, LeaseEnded)
    assert ended.reason is LeaseEnd.HANDED_OVER
    assert ended.other_worker == ("thief" if is_asked_for else None)
    row = scene.lease("a")
    assert (row.owner, row.checkpoint_owner, row.counter) == (ended.other_worker, None, 2)
    held.release()
    assert scene.lease("a") == row


def test_a_release_that_cannot_be_written_gives_up_all_the_same_and_tells_the_error(
    scene: Scene,
) -> None:
    (held,) = scene.acquire("a")
    scene.server.kinesis.faults = lambda call: Fault.error("ThrottlingException")
    with pytest.raises(LeaseTableUnavailableError) as raised:
        held.release(LeaseEnd.SHUTDOWN)
    (ended,) = of(scene.told, LeaseEnded)
    assert (ended.reason, ended.error) == (LeaseEnd.SHUTDOWN, str(raised.value))
    assert not held.is_held()


def test_a_silent_worker_is_told_once_and_its_leases_as_they_are_taken(
    scene: Scene, worker: LeaseCoordinator
) -> None:
    scene.create("a", "b", owner="dead")
    worker.take()
    scene.time.now += 1
    scene.table.write(requests.renew(scene.lease("b")))
    worker.take()
    scene.told.clear()
    scene.time.now += FAILOVER
    worker.take()
    scene.time.now += 1
    worker.take()
    assert scene.told == [
        OwnerSilent("dead", ("a",), FAILOVER + 1),
        LeaseTaken("a", "a", LeaseOrigin.EXPIRED, "dead", FAILOVER + 1, "100:0"),
        LeaseTaken("b", "b", LeaseOrigin.EXPIRED, "dead", FAILOVER + 1, "100:0"),
    ]


def test_a_worker_that_falls_silent_again_is_told_again(
    scene: Scene, worker: LeaseCoordinator
) -> None:
    scene.table.create(lease("a", owner="slow"))
    for _ in range(2):
        worker.take({"a"})
        scene.time.now += FAILOVER + 1
        worker.take({"a"})
        scene.table.write(requests.renew(scene.lease("a")))
    assert of(scene.told, OwnerSilent) == [OwnerSilent("slow", ("a",), FAILOVER + 1)] * 2


def test_a_lease_is_requested_and_handed_over(scene: Scene, worker: LeaseCoordinator) -> None:
    scene.create("a", "b", owner="rich")
    worker.take()
    (asked,) = (row for row in scene.table.leases() if row.checkpoint_owner)
    scene.table.write(requests.assign(asked, "me"))
    worker.take()
    key = asked.key
    assert scene.told == [
        HandoffRequested(key, key, "rich"),
        LeaseTaken(key, key, LeaseOrigin.HANDED_OVER, "rich", None, "100:0"),
    ]


def test_the_shards_that_nobody_reads(scene: Scene, worker: LeaseCoordinator) -> None:
    for key, owner in (("a", "dead"), ("b", None), ("c", "alive"), ("d", None)):
        scene.table.create(lease(key, owner=owner))
    assert worker.unread_shards() is None, "the table was not scanned"
    worker.take({"b"})
    assert worker.unread_shards() == {"b": 0.0}, "this worker has taken one of the two"
    for _ in range(2):
        scene.time.now += 4
        worker.renew()
        scene.table.write(requests.renew(scene.lease("c")))
        worker.take({"a", "b"})
    assert worker.unread_shards() == {"a": 8.0, "b": 8.0}
    scene.time.now += FAILOVER
    assert worker.unread_shards() == {"a": 8.0, "b": 8.0}, "by the last scan"
    scene.time.now += 0.1
    assert worker.unread_shards() is None, "which is too old"
