"""The comparison with peers, with sparkinesis alone: peers are not installed for tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.peers.backlog import cost
from benchmarks.peers.competitors import SPARKINESIS
from benchmarks.peers.lease_tables import dynamodb, rows_of, taken, wait_for_leases
from benchmarks.peers.processes import consumer
from benchmarks.peers.records import Backlog
from sparkinesis.local import LocalServer

PATIENCE = 120.0
RECORDS = 2_000


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    with LocalServer(limits=False, dynamodb=True) as running:
        yield running


def put(server: LocalServer, stream: str, backlog: Backlog) -> None:
    server.client("kinesis").create_stream(StreamName=stream, ShardCount=backlog.shards)
    port = urlsplit(server.endpoint_url).port
    assert port is not None
    backlog.put(port, stream)


@pytest.mark.parametrize("arrow", [False, True])
def test_each_record_of_a_backlog_is_counted(server: LocalServer, arrow: bool) -> None:
    stream = f"arrow-{arrow}"
    put(server, stream, Backlog(2, RECORDS, 100, in_aggregate=50))
    task = {"endpoint": server.endpoint_url, "stream": stream, "application": stream}
    with consumer(
        Path(sys.executable), SPARKINESIS.consumer, worker="w", arrow=arrow, **task
    ) as running:
        assert running.wait_for(RECORDS, PATIENCE, PATIENCE), running.log()
        found = cost(running, RECORDS)
        assert sorted(running.numbers()) == list(range(RECORDS))
        assert sum(batch.size for batch in running.batches) == RECORDS * 100
        missing = cost(running, RECORDS + 5)
    assert (found.lost, found.repeated, missing.lost) == (0, 0, 5)
    assert 0.1 < found.cpu < PATIENCE
    assert found.memory > 20


def test_an_application_begins_anew_when_its_leases_are_put_back(server: LocalServer) -> None:
    client = server.client("kinesis")
    client.create_stream(StreamName="again", ShardCount=2)
    task = {"endpoint": server.endpoint_url, "stream": "again", "application": "again"}
    table = dynamodb(server.endpoint_url)
    python = Path(sys.executable)
    with consumer(python, SPARKINESIS.consumer, worker="w", **task) as running:
        assert wait_for_leases(table, "again", 2, PATIENCE), running.log()
    leases = taken(table, "again")
    assert [len(rows) for rows in leases.rows.values()] == [2]
    port = urlsplit(server.endpoint_url).port
    assert port is not None
    Backlog(2, RECORDS, 100).put(port, "again")
    for _ in range(2):
        leases.restore()
        assert not any("leaseOwner" in row for row in rows_of(table, "again"))
        with consumer(python, SPARKINESIS.consumer, worker="w", **task) as running:
            assert running.wait_for(RECORDS, PATIENCE, PATIENCE), running.log()
            assert cost(running, RECORDS).repeated == 0
