"""Checkpoints of a processor of amazon_kclpy: the lease rows, and the names of errors."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.compat.kclpy.kcl import Checkpointer, CheckpointError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.worker.checkpointer import Checkpointer as WorkerCheckpointer
from tests.integration.compat.conftest import Throttling
from tests.kcl import create_table, put_lease

SHARD = "shardId-000000000000"


def never_reset(*_: object) -> Any:
    raise AssertionError("a processor of amazon_kclpy has no way to reset")


class Shard:
    """A shard with records 10:0 to 20:3 delivered and a checkpoint at 10:1."""

    def __init__(self, server: LocalServer) -> None:
        self.dynamodb = server.client("dynamodb")
        create_table(self.dynamodb, "app")
        put_lease(self.dynamodb, "app", SHARD, "10", 1)
        self.table = LeaseTable("app", "us-east-1", server.endpoint_url)
        lease = self.table.get(SHARD)
        assert lease is not None
        held = LeaseRenewer(self.table, "me", 60.0).hold(
            self.table.write(requests.take(lease, "me"))
        )
        inner = WorkerCheckpointer(held, never_reset)
        inner.permit(ExtendedSequenceNumber("20", 3))
        self.inner = inner
        self.checkpointer = Checkpointer(inner)

    @property
    def checkpoint(self) -> str:
        lease = self.table.get(SHARD)
        assert lease is not None
        return str(lease.checkpoint)

    def refusal(self, *arguments: Any) -> CheckpointError:
        with pytest.raises(CheckpointError) as raised:
            self.checkpointer.checkpoint(*arguments)
        return raised.value


@pytest.fixture
def shard(server: LocalServer) -> Shard:
    return Shard(server)


def test_the_forms_of_a_checkpoint(shard: Shard) -> None:
    shard.checkpointer.checkpoint("11")
    assert shard.checkpoint == "11:0"
    shard.checkpointer.checkpoint("12", 2)
    assert shard.checkpoint == "12:2"
    shard.checkpointer.checkpoint(13, 1)
    assert shard.checkpoint == "13:1"
    shard.checkpointer.checkpoint()
    assert shard.checkpoint == "20:3"
    shard.inner.end()
    shard.checkpointer.checkpoint(None, 7)
    assert shard.checkpoint == "SHARD_END"


def test_places_that_may_not_be_checkpointed(shard: Shard) -> None:
    places: list[tuple[Any, ...]] = [
        ("21",),
        ("20", 4),
        ("10", 0),
        ("None",),
        ("15", -1),
        ("15", "1"),
        ("LATEST",),
    ]
    for place in places:
        assert shard.refusal(*place).value == "IllegalArgumentException", place
    assert shard.checkpoint == "10:1"


def test_the_lease_is_another_workers(shard: Shard) -> None:
    lease = shard.table.get(SHARD)
    assert lease is not None
    shard.table.write(requests.take(lease, "other"))
    refusal = shard.refusal()
    assert refusal.value == "ShutdownException"
    assert SHARD in str(refusal), "says more than its name"
    assert shard.checkpoint == "10:1"


def test_dynamodb_throttles(shard: Shard, throttling: Throttling) -> None:
    throttling.is_on = True
    assert shard.refusal().value == "ThrottlingException"
    throttling.is_on = False
    shard.checkpointer.checkpoint()
    assert shard.checkpoint == "20:3"


def test_the_table_is_gone(shard: Shard) -> None:
    shard.dynamodb.delete_table(TableName="app")
    assert shard.refusal().value == "InvalidStateException"
