"""An application of many streams calls no more than it needs, within an account's limits."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparkinesis.application import Application
from sparkinesis.local import LocalServer
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.worker.options import WorkerOptions
from tests.integration.worker.conftest import FAILOVER_TIME
from tests.integration.worker.scene import Scene
from tests.journal import Journal, Journaling

MANY = 30
KEEPS = ("ListShards", "PutItem", "DescribeStreamSummary", "DescribeStream", "GetItem")
"""The calls of a start that would grow with the streams, and are not renewals or scans."""


@pytest.fixture
def server() -> Iterator[LocalServer]:
    """An account of 30 streams, with the service's limits.

    Each test has its own: calls that another test's workers have made in the last second would
    count against this one's limits.
    """
    with LocalServer(lease_tables=LeaseTables(), limits=False) as running:
        for number in range(MANY):
            name = f"s-{number:02}"
            running.kinesis.call("CreateStream", StreamName=name, ShardCount=1)
            running.kinesis.call("PutRecord", StreamName=name, Data=b"r", PartitionKey="k")
        running.kinesis.limits = True
        running.kinesis.calls.clear()
        yield running


@pytest.fixture
def make(server: LocalServer, journal: Journal) -> Callable[..., Application]:
    name = f"app-{uuid.uuid4().hex[:8]}"

    def make(**options: Any) -> Application:
        return Application(
            name,
            processor=lambda: Journaling(journal),
            region="us-east-1",
            endpoint=server.endpoint_url,
            initial_position="trim_horizon",
            streams=[f"s-{number:02}" for number in range(MANY)],
            options=WorkerOptions(failover_time=5 * FAILOVER_TIME, **options),
        )

    return make


def calls_of(server: LocalServer) -> Counter[str]:
    return Counter(call.operation for call in server.kinesis.calls)


def refused(server: LocalServer) -> set[str]:
    """The operations that a limit has refused."""
    return {
        call.operation
        for call in server.kinesis.calls
        if call.error in {"LimitExceededException", "ProvisionedThroughputExceededException"}
    }


def test_a_start_asks_for_each_stream_once_and_a_restart_for_none(
    scene: Scene, make: Callable[..., Application]
) -> None:
    first = scene.run(make())
    calls = calls_of(scene.server)
    assert {name: calls[name] for name in KEEPS} == {
        "ListShards": MANY,
        "PutItem": MANY,
        "DescribeStreamSummary": 0,
        "DescribeStream": 0,
        "GetItem": 0,
    }
    assert calls["ListStreams"] == 1
    assert calls["Scan"] <= 3  # the third is that of the thread that takes leases
    audits = [one.syncer._next_audit for one in first._streams.all()]
    assert max(audits) - min(audits) > 60, "they are spread over two minutes"
    scene.journal.wait(lambda: len(scene.journal.calls("process_records")) >= MANY)
    calls = calls_of(scene.server)
    assert calls["UpdateItem"] < MANY
    assert {name: calls[name] for name in KEEPS}["DescribeStreamSummary"] == 0
    assert refused(scene.server) == set()
    first.shutdown(10)
    scene.server.kinesis.calls.clear()
    scene.run(make())
    calls = calls_of(scene.server)
    assert sum(calls[name] for name in KEEPS) == 0
    assert calls["ListStreams"] == 1
    assert calls["Scan"] <= 3


def test_workers_that_start_together_scan_the_table_no_more_often_for_it(
    scene: Scene, make: Callable[..., Application]
) -> None:
    with ThreadPoolExecutor(3) as threads:
        workers = list(threads.map(scene.run, [make() for _ in range(3)]))
    calls = calls_of(scene.server)
    assert all(worker.streams() for worker in workers)
    created = [call for call in scene.server.kinesis.calls if call.operation == "PutItem"]
    assert sum(call.error is None for call in created) == MANY
    assert calls["ListShards"] <= 3 * MANY
    assert calls["GetItem"] <= 2 * MANY
    assert calls["Scan"] <= 30
    assert calls["DescribeStreamSummary"] == 0
    assert refused(scene.server) == set()


def test_the_consumers_of_many_streams_are_registered_in_the_accounts_pace(
    scene: Scene, make: Callable[..., Application]
) -> None:
    scene.run(make(retrieval="efo"))
    calls = calls_of(scene.server)
    assert calls["RegisterStreamConsumer"] == MANY
    assert calls["DescribeStreamConsumer"] <= 2 * MANY
    assert calls["DescribeStreamSummary"] == 0
    assert refused(scene.server) == set()
