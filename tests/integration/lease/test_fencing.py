"""The fencing token in the lease table: larger with each acquisition, whoever had the lease before.

Over HTTP; a Java worker's writes are those of `tests.kcl`'s facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import MOST_TOKEN
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.worker.checkpointer import Checkpointer
from tests.integration.lease.conftest import (
    FAILOVER,
    Scene,
    lease,
)
from tests.kcl import put_rows

HOUR = 3600
KEY = {"leaseKey": {"S": "a"}}


class Clock:
    """The service's clock, in epoch ms, which a test sets."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock(server: LocalServer) -> Iterator[Clock]:
    was = server.kinesis.clock
    server.kinesis.clock = found = Clock(was())
    yield found
    server.kinesis.clock = was


def token_of(scene: Scene, who: str, key: str = "a") -> int:
    """The token under which a worker that starts now holds a lease that nobody renews."""
    one = scene.coordinator(who, failover=FAILOVER)
    one.take()
    if key not in one.held():
        scene.time.now += FAILOVER + 1
        one.take()
    held = one.held()[key]
    assert held.fencing_token == scene.lease(key).fencing_token
    return held.fencing_token


def test_the_token_is_the_time_of_the_acquisition_by_the_tables_own_clock(
    scene: Scene, clock: Clock
) -> None:
    clock.now_ms = 1_999_999_999_750
    scene.create("a")
    assert token_of(scene, "me") // 1_000_000 == 1_999_999_999


def test_each_acquisition_has_a_larger_token(scene: Scene, clock: Clock) -> None:
    """Of a new lease, of a dead worker's, of one that was released, and of one's own again."""
    scene.create("a")
    tokens = [token_of(scene, "first"), token_of(scene, "second")]
    clock.now_ms -= HOUR * 1000
    tokens.append(token_of(scene, "by a clock that was set back"))
    scene.table.write(requests.evict(scene.lease("a")))
    tokens.append(token_of(scene, "third"))
    tokens.append(token_of(scene, "third"))
    assert tokens == sorted(set(tokens))
    assert tokens[2] <= tokens[1] + 1000


@pytest.mark.parametrize("leases", [2, 8])
def test_a_handoff_raises_the_token_once_its_lease_arrives(scene: Scene, leases: int) -> None:
    """The old owner's last write names the new one, whose first write raises the token."""
    keys = [f"s{n}" for n in range(leases)]
    scene.create(*keys)
    old = scene.coordinator("old")
    while len(old.held()) < leases:  # half at first, for others that may start too
        old.take()
        scene.time.now += 2
        old.renew()
    before = {key: held.fencing_token for key, held in old.held().items()}
    new = scene.coordinator("new")
    new.take()
    asked = [row for row in scene.table.leases() if row.checkpoint_owner == "old"]
    assert len(asked) == (2 if leases == 8 else 1)
    for row in asked:
        old.held()[row.key].observe(row)
        old.held()[row.key].release()
        assert scene.lease(row.key).owner == "new"
    new.take()
    after = {key: held.fencing_token for key, held in new.held().items()}
    assert set(after) == {row.key for row in asked}
    assert all(after[key] > before[key] for key in after)
    assert {key: scene.lease(key).fencing_token for key in after} == after


def test_the_token_is_written_by_the_acquisition_itself(scene: Scene) -> None:
    """L5: no write more, and the owner's other writes leave the token as it is."""
    scene.create("a")
    me = scene.coordinator()
    me.take()
    held = me.held()["a"]
    assert held.lease.counter == 1
    me.renew()
    held.checkpoint(ExtendedSequenceNumber("200"))
    row = scene.row("a")
    assert row["leaseCounter"] == {"N": "3"}
    assert row["fencingToken"] == {"N": str(held.fencing_token)}


def test_a_row_that_is_deleted_and_made_again_has_a_larger_token(
    scene: Scene, clock: Clock
) -> None:
    scene.create("a")
    tokens = [token_of(scene, f"w{n}") for n in range(3)]
    scene.dynamodb.delete_item(TableName=scene.table.name, Key=KEY)
    clock.now_ms += 1000
    scene.create("a")
    assert scene.lease("a").fencing_token is None
    assert token_of(scene, "later") > max(tokens)


def test_a_restored_backup_has_larger_tokens(scene: Scene, clock: Clock) -> None:
    scene.create("a")
    token_of(scene, "first")
    backup = scene.row("a")
    clock.now_ms += 60_000
    lost = token_of(scene, "second")
    put_rows(scene.dynamodb, scene.table.name, [backup])
    clock.now_ms += 1000
    assert token_of(scene, "third") > lost


def test_a_java_worker_in_between_leaves_the_token_to_the_next_of_ours(scene: Scene) -> None:
    scene.create("a")
    before = token_of(scene, "me")
    scene.dynamodb.update_item(
        TableName=scene.table.name,
        Key=KEY,
        UpdateExpression="SET leaseOwner = :owner, leaseCounter = :counter "
        "ADD ownerSwitchesSinceCheckpoint :one REMOVE checkpointOwner",
        ExpressionAttributeValues={
            ":owner": {"S": "java"},
            ":counter": {"N": "77"},
            ":one": {"N": "1"},
        },
    )
    assert scene.lease("a").fencing_token == before
    assert token_of(scene, "me") > before


@pytest.mark.parametrize(
    "stored",
    [{"N": str(MOST_TOKEN)}, {"N": "-3"}, {"N": "1e40"}, {"S": "x"}],
    ids=["the last one", "negative", "huge", "a text"],
)
def test_a_token_that_was_damaged_by_hand_is_replaced(scene: Scene, stored: dict[str, str]) -> None:
    scene.create("a")
    set_token(scene.dynamodb, scene.table, stored)
    assert 1 < token_of(scene, "me") < MOST_TOKEN


def test_a_token_that_was_raised_by_hand_is_the_least_of_the_next_acquisition(scene: Scene) -> None:
    scene.create("a")
    me = scene.coordinator()
    me.take()
    held = me.held()["a"]
    before = held.fencing_token
    set_token(scene.dynamodb, scene.table, {"N": str(10**17)})
    me.renew()
    assert held.lease.fencing_token == 10**17
    assert (me.held(), held.fencing_token) == ({"a": held}, before)
    assert Checkpointer(held, lambda: 0).fencing_token == before
    assert 10**17 < token_of(scene, "next") <= 10**17 + 1000


def set_token(dynamodb: Any, table: LeaseTable, value: dict[str, str]) -> None:
    dynamodb.update_item(
        TableName=table.name,
        Key=KEY,
        UpdateExpression="SET fencingToken = :token",
        ExpressionAttributeValues={":token": value},
    )


def test_a_scan_from_before_a_deletion_acquires_no_row_with_another_token(scene: Scene) -> None:
    """The counter alone would match: the row was made again, and is as old as the one before."""
    scene.create("a")
    known = scene.table.write(
        requests.evict(scene.table.write(requests.take(lease("a"), "first", 10)))
    )
    scene.dynamodb.delete_item(TableName=scene.table.name, Key=KEY)
    scene.create("a")
    second = scene.table.write(requests.take(lease("a"), "second", 20))
    scene.table.write(requests.evict(second))
    assert scene.lease("a").counter == known.counter
    assert not isinstance(scene.table.try_write(requests.take(known, "third", 15)), type(known))
    assert scene.lease("a").fencing_token == second.fencing_token
