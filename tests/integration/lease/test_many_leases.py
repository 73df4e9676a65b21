"""One renewer with as many leases as the largest streams have shards."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.table import client
from sparkinesis.lease.table.table import LeaseTable
from tests import pace
from tests.integration.lease.conftest import Scene

ROUNDS = 5
FAILOVER = pace.seconds(90.0)
"""Seconds. The local DynamoDB is one Python process, and takes about 4 s for a round of 5,000;
three rounds must fit, on a machine that does much other work too. DynamoDB itself carries 10 s."""


class Time:
    """Goes on by itself, and makes up for the pauses between rounds, which nobody sits out."""

    skipped = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.skipped


@pytest.fixture
def patient(table: LeaseTable, monkeypatch: pytest.MonkeyPatch) -> Iterator[LeaseTable]:
    """The table by a client that waits for a server that is slow at scans of many rows."""
    monkeypatch.setattr(client, "_READ_TIMEOUT", pace.seconds(30.0))
    client.dynamodb_client.cache_clear()
    yield LeaseTable(table.name, "us-east-1", table.endpoint)
    client.dynamodb_client.cache_clear()


@pytest.mark.parametrize("leases", [500, pytest.param(5000, marks=pytest.mark.long)])
def test_many_leases_are_kept_beyond_the_failover_time(
    scene: Scene, patient: LeaseTable, leases: int
) -> None:
    scene.create(*(f"shardId-{i:012d}" for i in range(leases)), owner="me")
    clock = Time()
    renewer = LeaseRenewer(patient, "me", FAILOVER, clock)
    for row in patient.leases():
        renewer.hold(row)
    calls = len(scene.server.kinesis.calls.select("BatchExecuteStatement"))
    start_of_rounds = time.monotonic()
    for n in range(ROUNDS):
        start_of_round = clock()
        renewer.renew_all()
        assert len(renewer.held()) == leases, f"lost some in round {n}"
        clock.skipped += max(0.0, start_of_round + FAILOVER / 3 - clock())
    per_round = (time.monotonic() - start_of_rounds) / ROUNDS
    assert per_round < FAILOVER / 3, "the machine is too slow for what is tested here"
    assert clock() - start_of_rounds >= ROUNDS * FAILOVER / 3 > FAILOVER
    # And one that probes whether the server heeds conditions.
    assert (
        len(scene.server.kinesis.calls.select("BatchExecuteStatement")) - calls
        == ROUNDS * leases // 25 + 1
    )
    assert {row.counter for row in patient.leases()} == {ROUNDS}
