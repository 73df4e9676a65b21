from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pytest

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import Event, LeaseOrigin, Listener, ignore
from sparkinesis.lease.acquisitions import Acquisitions, TakeTerms
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.shards.shard_ends import ShardEnds
from sparkinesis.lease.shards.shard_syncer import ShardSyncer, ShardSyncSettings
from sparkinesis.lease.shards.stream_leases import StreamLeases
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.batching import Batching
from sparkinesis.lease.table.statements import BATCH, batches_of
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import TRIM_HORIZON, InitialPosition
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.reporting.event_log import EventLog
from tests.kcl import create_table

_numbers = itertools.count()


class ManualTime:
    """A monotonic clock that a test moves on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


SYNC = ShardSyncSettings(
    audit_interval=120,
    audit_confidence=3,
    cleanup_interval=60,
    cleanup_leases=True,
    parents_first=True,
)


LOG = EventLog("app", "me")
IDS = [f"shardId-{number:012d}" for number in range(6)]


def syncer_of(
    client: StreamClient,
    table: LeaseTable,
    time: ManualTime,
    *,
    initial: InitialPosition = TRIM_HORIZON,
    settings: ShardSyncSettings = SYNC,
    publish: Listener = LOG,
    **given: Any,
) -> ShardSyncer:
    """The shard syncer of the worker "me", which waits for nothing."""
    phase, metrics = given.pop("phase", 0.0), given.pop("metrics", OFF)
    leases = StreamLeases(
        client, table, "me", initial=initial, wait=lambda _: None, publish=publish, **given
    )
    return ShardSyncer(leases, settings=settings, clock=time, phase=phase, metrics=metrics)


def ends_of(syncer: ShardSyncer) -> ShardEnds:
    """The part of the same worker that creates the leases of children."""
    return ShardEnds(syncer._leases, clock=syncer._clock, recheck=SYNC.cleanup_interval)


@dataclass
class Stream:
    """A stream of a test's own; its shards are named by their numbers."""

    client: StreamClient
    kinesis: Any

    @property
    def name(self) -> str:
        return self.client.address.name

    def split(self, number: int, middle: int) -> None:
        self.kinesis.split_shard(
            StreamName=self.name, ShardToSplit=IDS[number], NewStartingHashKey=str(middle)
        )

    def merge(self, one: int, other: int) -> None:
        self.kinesis.merge_shards(
            StreamName=self.name, ShardToMerge=IDS[one], AdjacentShardToMerge=IDS[other]
        )

    def shards(self) -> list[Shard]:
        """All of them, by number."""
        return sorted(self.client.list_shards()[0], key=lambda shard: shard.id)


def make_stream(server: LocalServer, shards: int, retry: Backoff | None = None) -> Stream:
    name, kinesis = f"s-{uuid.uuid4().hex[:8]}", server.client("kinesis")
    kinesis.create_stream(StreamName=name, ShardCount=shards)
    address = StreamAddress(name, None, "us-east-1", server.endpoint_url)
    return Stream(StreamClient(address, retry or Backoff()), kinesis)


@pytest.fixture(scope="session")
def shared() -> Iterator[LocalServer]:
    """moto takes a second to start, so these tests share one; tables are their own."""
    with LocalServer(dynamodb=True) as running:
        yield running


@pytest.fixture
def server(shared: LocalServer) -> Iterator[LocalServer]:
    yield shared
    shared.kinesis.faults = None


@pytest.fixture(scope="session")
def dynamodb(shared: LocalServer) -> Any:
    return shared.client("dynamodb")


@pytest.fixture
def table(server: LocalServer, dynamodb: Any) -> LeaseTable:
    """An empty lease table; calls on it are tried again at once, three times or so."""
    name = f"app-{next(_numbers)}"
    create_table(dynamodb, name)
    return table_of(server, name)


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
def told() -> list[Event]:
    """The events of `renewer`."""
    return []


@pytest.fixture
def renewer(table: LeaseTable, time: ManualTime, told: list[Event]) -> LeaseRenewer:
    return LeaseRenewer(table, "me", 10.0, time, told.append)


@dataclass
class Scene:
    """What most tests of leases have in hand."""

    server: LocalServer
    dynamodb: Any
    table: LeaseTable
    time: ManualTime
    renewer: LeaseRenewer
    """Of the worker "me"; its events are in ``told``."""
    told: list[Event]

    def create(self, *keys: str, owner: str | None = None) -> None:
        create(self.table, *keys, owner=owner)

    def lease(self, key: str) -> Lease:
        return lease_of(self.table, key)

    def row(self, key: str) -> dict[str, Any]:
        return row_of(self.dynamodb, self.table, key)

    def break_row(self, key: str) -> None:
        break_row(self.table, self.dynamodb, key)

    def acquire(self, *keys: str) -> list[HeldLease]:
        return acquire(self.renewer, self.table, *keys)

    def coordinator(self, who: str = "me", **given: Any) -> LeaseCoordinator:
        return coordinator_of(self.table, self.time, who, **given)


@pytest.fixture
def scene(
    server: LocalServer,
    dynamodb: Any,
    table: LeaseTable,
    time: ManualTime,
    *,
    renewer: LeaseRenewer,
    told: list[Event],
) -> Scene:
    return Scene(server, dynamodb, table, time, renewer, told)


def table_of(server: LocalServer, name: str) -> LeaseTable:
    return table_at(server.endpoint_url, name)


def table_at(
    endpoint: str, name: str, sleep: Callable[[float], None] = lambda _: None
) -> LeaseTable:
    seconds = itertools.count()
    retry = Backoff(give_up_after=3, clock=lambda: next(seconds) / 2, sleep=sleep)
    return LeaseTable(name, "us-east-1", endpoint, retry=retry)


def coordinator_of(
    table: LeaseTable,
    time: ManualTime,
    who: str = "me",
    *,
    failover: float = 10.0,
    max_leases: int = 100,
    publish: Listener = ignore,
    renewer: LeaseRenewer | None = None,
    metrics: Metrics = OFF,
) -> LeaseCoordinator:
    return LeaseCoordinator(
        table,
        renewer or LeaseRenewer(table, who, failover, time, metrics=metrics),
        who,
        settings=TakeSettings(failover, max_leases, 100, handoff_timeout=30.0, scan_interval=1.5),
        clock=time,
        rng=random.Random(1),
        publish=publish,
        metrics=metrics,
    )


def lease_of(table: LeaseTable, key: str) -> Lease:
    """The lease as it is in the table, where it has to be."""
    row = table.get(key)
    assert row is not None
    return row


def by_key(table: LeaseTable) -> list[Lease]:
    return sorted(table.leases(), key=lambda row: row.key)


def create(table: LeaseTable, *keys: str, owner: str | None = None) -> None:
    for key in keys:
        table.create(lease(key, owner))


def break_row(table: LeaseTable, dynamodb: Any, key: str) -> None:
    """Write to a row what cannot be read as a lease."""
    dynamodb.update_item(
        TableName=table.name,
        Key={"leaseKey": {"S": key}},
        UpdateExpression="SET leaseCounter = :counter",
        ExpressionAttributeValues={":counter": {"S": "x"}},
    )


def take(renewer: LeaseRenewer, table: LeaseTable, key: str) -> HeldLease:
    """The worker "me" takes a lease of the table, and holds it."""
    return renewer.hold(table.write(requests.take(lease_of(table, key), "me")))


def take_rows(
    renewer: LeaseRenewer,
    table: LeaseTable,
    time: ManualTime,
    rows: Sequence[Lease],
    *,
    who: str = "me",
    token: int = 1,
) -> None:
    """A worker takes these leases as it does after a scan, in one call."""
    terms = TakeTerms(len(rows), token, lambda *_: (LeaseOrigin.UNOWNED, None, None), None)
    Acquisitions(table, renewer, who, time, ignore).take(iter(rows), len(rows), terms)


def acquire(renewer: LeaseRenewer, table: LeaseTable, *keys: str) -> list[HeldLease]:
    """New leases of these keys, in the hands of the worker "me"."""
    create(table, *keys)
    return [take(renewer, table, key) for key in keys]


def lease(key: str, owner: str | None = None, checkpoint: str = "100") -> Lease:
    return Lease(key, key, ExtendedSequenceNumber(checkpoint), owner=owner, hash_range=(0, 99))


def row_of(dynamodb: Any, table: LeaseTable, key: str) -> dict[str, Any]:
    answer = dynamodb.get_item(TableName=table.name, Key={"leaseKey": {"S": key}})
    item: dict[str, Any] = answer["Item"]
    return item


def renew_many(table: LeaseTable, leases: Sequence[Lease]) -> list[Lease | SparkinesisError]:
    """Renew each lease, many in a call as workers do: the row or the error of each, in order."""
    batching = Batching(table, monotonic)
    return [
        result
        for batch in batches_of(leases, BATCH)
        for result in batching.write([requests.renew(each) for each in batch])
    ]
