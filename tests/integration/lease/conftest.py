from __future__ import annotations

import functools
import itertools
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from time import time as wall_clock
from typing import Any

import pytest

from sparkinesis.errors import SparkinesisError
from sparkinesis.events import Event, LeaseOrigin, Listener, ignore
from sparkinesis.lease.acquisitions import Acquisitions, TakeTerms
from sparkinesis.lease.assignment.assigner import Balance
from sparkinesis.lease.assignment.assignment import Assignment
from sparkinesis.lease.assignment.coordinator_state import (
    LOCK_KEY,
    VERSION_3X,
    VERSION_KEY,
    Version,
    VersionRow,
    encode_lock,
    encode_version,
    new_lock,
)
from sparkinesis.lease.coordinator import LeaseCoordinator
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import Lease, lease_key
from sparkinesis.lease.renewer import LeaseRenewer
from sparkinesis.lease.rules.lease_start import new_lease
from sparkinesis.lease.rules.taker import TakeSettings
from sparkinesis.lease.shards.shard_ends import ShardEnds
from sparkinesis.lease.shards.shard_syncer import ShardSyncer, ShardSyncSettings
from sparkinesis.lease.shards.stream_leases import StreamLeases
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.batching import Batching
from sparkinesis.lease.table.statements import BATCH, batches_of
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Fault, FaultPlan, LocalServer
from sparkinesis.local.lease_tables import LeaseTables
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import StreamAddress, StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import TRIM_HORIZON, InitialPosition
from sparkinesis.stream.shard import Shard
from sparkinesis.worker.reporting.event_log import EventLog
from tests.failing import Failing
from tests.kcl import create_table, put_rows, rows_of

_numbers = itertools.count()
FAILOVER = 10.0
SOON = 1.0


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
def light() -> Iterator[LocalServer]:
    """A server that holds lease tables itself; these tests share it, and their tables are own."""
    with LocalServer(lease_tables=LeaseTables()) as running:
        yield running


@pytest.fixture(scope="session")
def moto() -> Iterator[LocalServer]:
    """A server with moto's DynamoDB, which takes a second to start, and longer for each call."""
    with LocalServer(dynamodb=True) as running:
        yield running


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    """A module with SERVER has its tests on that one: what DynamoDB makes of a call is moto's."""
    running: LocalServer = request.getfixturevalue(getattr(request.module, "SERVER", "light"))
    yield running
    running.kinesis.faults = None


@functools.cache
def _client(server: LocalServer) -> Any:
    return server.client("dynamodb")


@pytest.fixture
def dynamodb(server: LocalServer) -> Any:
    return _client(server)


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
        for key in keys:
            self.table.create(lease(key, owner))

    def lease(self, key: str) -> Lease:
        return lease_of(self.table, key)

    def row(self, key: str) -> dict[str, Any]:
        """A row as DynamoDB has it."""
        answer = self.dynamodb.get_item(TableName=self.table.name, Key={"leaseKey": {"S": key}})
        item: dict[str, Any] = answer["Item"]
        return item

    def break_row(self, key: str) -> None:
        """Write to a row what cannot be read as a lease."""
        self.dynamodb.update_item(
            TableName=self.table.name,
            Key={"leaseKey": {"S": key}},
            UpdateExpression="SET leaseCounter = :counter",
            ExpressionAttributeValues={":counter": {"S": "x"}},
        )

    def acquire(self, *keys: str, renewer: LeaseRenewer | None = None) -> list[HeldLease]:
        """New leases of these keys, in the hands of the worker "me"."""
        self.create(*keys)
        return [take(renewer or self.renewer, self.table, key) for key in keys]

    def coordinator(self, who: str = "me", **given: Any) -> LeaseCoordinator:
        return coordinator_of(self.table, self.time, who, **given)

    def worker(
        self,
        who: str,
        balance: Balance = "throughput",
        publish: Listener = ignore,
        *,
        meter: Any = None,
        several_streams: bool = False,
    ) -> LeaseCoordinator:
        """A worker that joins a fleet, whose leader assigns the leases unless all count them."""
        rng = random.Random(who)
        settings = TakeSettings(FAILOVER, 100, 100, handoff_timeout=30.0, scan_interval=1.5)

        def join() -> Assignment:
            return Assignment(
                self.table,
                self.table.name,
                who,
                balance=balance,
                settings=settings,
                clock=self.time,
                wall_clock_ms=lambda: round(wall_clock() * 1000),
                rng=rng,
                meter=meter,
                publish=publish,
            )

        return LeaseCoordinator(
            self.table,
            LeaseRenewer(self.table, who, FAILOVER, self.time),
            who,
            settings=settings,
            clock=self.time,
            rng=rng,
            publish=publish,
            join=join,
            wants_leader=balance != "count",
            several_streams=several_streams,
        )

    def owners(self) -> dict[str, tuple[str | None, str | None]]:
        return {row.key: (row.owner, row.checkpoint_owner) for row in self.table.leases()}

    def row_keys(self) -> set[str]:
        """The keys of all rows, whatever they are."""
        return set(rows_of(self.dynamodb, self.table.name))

    @contextmanager
    def faults(self, plan: FaultPlan | Fault, operation: str | None = None) -> Iterator[None]:
        """The server's faults of a while: a plan, or the fault of each call, or of an operation."""
        faults = Failing(operation, then=plan) if isinstance(plan, Fault) else plan
        self.server.kinesis.faults = faults
        yield
        self.server.kinesis.faults = None

    def put_version(self, name: str = VERSION_3X) -> None:
        self._put(VERSION_KEY, encode_version(VersionRow(Version(name, "java", 1))))

    def put_lock(self, owner: str, seconds: int = 120, version: str = "1-2-3") -> None:
        self._put(LOCK_KEY, encode_lock(new_lock(owner, seconds, version)))

    def _put(self, key: str, row: Mapping[str, Any]) -> None:
        put_rows(self.dynamodb, self.table.name, [{"leaseKey": {"S": key}, **row}])

    def java_leads(self) -> None:
        """Write the rows of a fleet that a Java worker leads."""
        self.put_version()
        self.put_lock("java")


@dataclass
class Leased(Stream):
    """A stream whose shards have leases in a scene's table; it may be one of an application's."""

    scene: Scene
    id: StreamIdentifier | None = None

    def lease(self, number: int) -> Lease:
        return new_lease(self.shards()[number], TRIM_HORIZON).in_stream(self.id)

    def create(self, *numbers: int) -> None:
        for number in numbers:
            self.scene.table.create(self.lease(number))

    def break_row(self, number: int) -> None:
        self.scene.break_row(lease_key(self.id, IDS[number]))

    def hold(self, number: int, who: str = "me") -> HeldLease:
        """A worker takes the lease of a shard, and holds it for long."""
        renewer = LeaseRenewer(self.scene.table, who, 1000.0, self.scene.time)
        return take(renewer, self.scene.table, lease_key(self.id, IDS[number]))

    def syncer(self, **given: Any) -> ShardSyncer:
        return syncer_of(
            self.client, self.scene.table, self.scene.time, **{"stream": self.id, **given}
        )

    def ends(self, **given: Any) -> ShardEnds:
        return ends_of(self.syncer(**given))


def leased(scene: Scene, shards: int, *, is_named: bool = False) -> Leased:
    made = make_stream(scene.server, shards)
    named = StreamIdentifier("123456789012", made.name, 1_790_000_000) if is_named else None
    return Leased(made.client, made.kinesis, scene, named)


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


def lease(key: str, owner: str | None = None, checkpoint: str = "100") -> Lease:
    return Lease(key, key, ExtendedSequenceNumber(checkpoint), owner=owner, hash_range=(0, 99))


def renew_many(table: LeaseTable, leases: Sequence[Lease]) -> list[Lease | SparkinesisError]:
    """Renew each lease, many in a call as workers do: the row or the error of each, in order."""
    batching = Batching(table, monotonic)
    return [
        result
        for batch in batches_of(leases, BATCH)
        for result in batching.write([requests.renew(each) for each in batch])
    ]
