"""The leases of one stream among those of a thousand: what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import new_lease
from sparkinesis.lease.shards.shard_syncer import ShardSyncer
from sparkinesis.lease.shards.stream_leases import JAVA_NOTE
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import Call, Fault, LocalServer
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from sparkinesis.stream.shard import Shard
from tests.integration.lease.conftest import (
    IDS,
    SYNC,
    ManualTime,
    Stream,
    break_row,
    make_stream,
    syncer_of,
)

FIRST, LOW, HIGH = IDS[:3]


@dataclass
class OneOfMany(Stream):
    """One of a thousand streams, as far as its syncer is told."""

    id: StreamIdentifier
    make: Callable[..., ShardSyncer]

    def split(self, number: int = 0, middle: int = 2**127) -> None:
        """Split a shard, as soon as the account may split one more."""
        Backoff().call(lambda: super(OneOfMany, self).split(number, middle))

    def lease(self, shard_id: str) -> Lease:
        shards = {shard.id: shard for shard in self.shards()}
        return new_lease(shards[shard_id], TRIM_HORIZON).in_stream(self.id)


@pytest.fixture
def stream(server: LocalServer, table: LeaseTable, time: ManualTime) -> OneOfMany:
    made = make_stream(server, 1)
    client = made.client
    identifier = StreamIdentifier("123456789012", made.name, 1_790_000_000)

    def make(
        size: int = 1000,
        initial: InitialPosition = TRIM_HORIZON,
        of: StreamIdentifier = identifier,
        **given: Any,
    ) -> ShardSyncer:
        return syncer_of(
            client, table, time, initial=initial, stream=of, table_size=lambda: size, **given
        )

    return OneOfMany(client, made.kinesis, identifier, make)


@pytest.fixture
def calls(server: LocalServer, stream: OneOfMany) -> Iterator[Counter[str]]:
    """The calls since the stream was created."""
    del stream
    found: Counter[str] = Counter()

    def count(call: Call) -> Fault | None:
        found[call.operation] += 1
        return None

    server.kinesis.faults = count
    yield found
    server.kinesis.faults = None


@pytest.mark.parametrize("initial", [TRIM_HORIZON, LATEST])
def test_a_new_stream_takes_one_listing_and_a_write_for_each_lease(
    stream: OneOfMany, calls: Counter[str], initial: InitialPosition
) -> None:
    stream.make(initial=initial).sync(TableScan(), TableScan())
    assert calls == {"ListShards": 1, "PutItem": 1}


def test_a_new_stream_beside_a_java_kcl_of_other_streams_has_records_in_place_of_instants(
    stream: OneOfMany, table: LeaseTable
) -> None:
    """A Java worker may take its leases, too, and would take LATEST for a later moment."""
    stream.make(initial=LATEST).sync(TableScan(), TableScan(has_entities=True))
    (lease,) = table.leases()
    assert (lease.timestamp_ms, lease.checkpoint.is_latest) == (None, False)
    assert lease.application_ms is not None


def test_a_stream_whose_leases_are_all_there_takes_no_call(
    stream: OneOfMany, table: LeaseTable, calls: Counter[str]
) -> None:
    lease = stream.lease(FIRST)
    table.create(lease)
    calls.clear()
    syncer = stream.make()
    syncer.sync(TableScan((lease,)), TableScan())
    assert not calls
    assert syncer._leases.read() == [lease]
    assert calls == {"GetItem": 1}, "which lease to read is known"


def test_a_stream_that_another_worker_is_faster_with_takes_no_scan(
    stream: OneOfMany, table: LeaseTable, calls: Counter[str]
) -> None:
    table.create(stream.lease(FIRST))
    calls.clear()
    stream.make().sync(TableScan(), TableScan())
    assert calls == {"ListShards": 1, "PutItem": 1, "GetItem": 1}


def test_the_rest_is_created_if_the_other_worker_has_died_after_its_first_lease(
    stream: OneOfMany, table: LeaseTable, calls: Counter[str]
) -> None:
    stream.split()
    table.create(stream.lease(LOW))
    calls.clear()
    begin = AtTimestamp(stream.client.list_shards()[1])  # both children are open at that time
    stream.make(initial=begin).sync(TableScan(), TableScan())
    # For leases of older shards, and whether a Java KCL may read the table.
    assert calls["Scan"] <= 2
    assert {one.shard_id for one in table.leases()} >= {LOW, HIGH}


@pytest.mark.parametrize("is_broken", [False, True])
@pytest.mark.parametrize("initial", [LATEST, AtTimestamp])
def test_a_stream_that_another_worker_began_before_two_reshards_is_not_begun_again(
    stream: OneOfMany, table: LeaseTable, dynamodb: Any, initial: Any, *, is_broken: bool
) -> None:
    """The last scan of the table was before, and the first shard has only grandchildren now."""
    stream.split()
    stream.split(1, 2**126)
    stream.split(2, 3 * 2**126)
    table.create(stream.lease(FIRST))
    if initial is AtTimestamp:  # the tracker named the stream to each worker at another time
        initial = AtTimestamp(stream.client.list_shards()[1])
    if is_broken:
        break_row(table, dynamodb, stream.lease(FIRST).key)
    stream.make(initial=initial).sync(TableScan(), TableScan())
    found = table.scan(consistent=True)
    assert [*(one.key for one in found.broken), *(one.key for one in found.leases)] == [
        stream.lease(FIRST).key
    ]


def test_a_small_table_is_scanned(
    stream: OneOfMany, table: LeaseTable, calls: Counter[str]
) -> None:
    stream.split()
    table.create(stream.lease(LOW))
    table.create(stream.lease(HIGH))
    calls.clear()
    begin = AtTimestamp(stream.client.list_shards()[1])
    stream.make(size=3, initial=begin).sync(TableScan(), TableScan())
    assert (calls["Scan"], calls["GetItem"]) == (1, 0)


def test_the_lease_of_a_parent_that_has_expired_is_read_too(
    stream: OneOfMany, table: LeaseTable, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells that its children are not new."""
    leases = stream.make()._leases
    table.create(stream.lease(FIRST))
    calls.clear()
    listed = [Shard(LOW, (FIRST,)), Shard(HIGH, (FIRST,))]
    monkeypatch.setattr(StreamClient, "list_shards", lambda self, **_: (listed, 0))
    leases.list_shards()
    assert [one.shard_id for one in leases.read()] == [FIRST]
    assert calls == {"GetItem": 3}


def finish(table: LeaseTable, lease: Lease) -> None:
    taken = table.write(requests.take(lease, "reader"))
    table.write(requests.checkpoint(taken, ExtendedSequenceNumber(SHARD_END)))


def leases_of(table: LeaseTable, stream: OneOfMany) -> tuple[Lease, ...]:
    return table.scan().of(stream.id).leases


def resharded(stream: OneOfMany, table: LeaseTable) -> list[Lease]:
    """Split the first shard, whose lease is finished then; returns the leases of its children."""
    stream.split()
    for one in (FIRST, LOW, HIGH):
        table.create(stream.lease(one))
    first, *children = sorted(leases_of(table, stream), key=lambda one: one.key)
    finish(table, table.write(requests.add_children(first, [LOW, HIGH])))
    return children


@pytest.mark.parametrize("cleans", [True, False])
def test_a_cleanup_reads_the_leases_of_its_stream_only(
    stream: OneOfMany, table: LeaseTable, time: ManualTime, calls: Counter[str], *, cleans: bool
) -> None:
    syncer = stream.make(settings=replace(SYNC, cleanup_leases=cleans))
    children = resharded(stream, table)
    for child in children:
        begun = requests.checkpoint(
            table.write(requests.take(child, "reader")), ExtendedSequenceNumber("7")
        )
        table.write(begun)
    seen = leases_of(table, stream)
    calls.clear()
    time.now += SYNC.cleanup_interval
    syncer.step(seen, audits=True)
    assert calls == ({"ListShards": 1, "GetItem": 3, "DeleteItem": 1} if cleans else {})
    left = {one.shard_id for one in leases_of(table, stream)}
    assert left == ({LOW, HIGH} if cleans else {FIRST, LOW, HIGH})


def test_a_cleanup_that_can_delete_nothing_yet_lists_the_shards_once_an_hour(
    stream: OneOfMany, table: LeaseTable, time: ManualTime, calls: Counter[str]
) -> None:
    """The children of a quiet stream may not begin for days."""
    syncer = stream.make()
    resharded(stream, table)
    seen = leases_of(table, stream)
    calls.clear()
    for _ in range(121):
        time.now += SYNC.cleanup_interval
        syncer.step(seen, audits=True)
    assert calls == {"ListShards": 3}


def test_a_cleanup_notes_the_children_of_a_shard_whose_end_did_not(
    stream: OneOfMany, table: LeaseTable, time: ManualTime, calls: Counter[str]
) -> None:
    """As a KCL 1.x, which leaves them out: without them, the finished lease would never go."""
    syncer = stream.make()
    low, _ = resharded(stream, table)
    stream.split(1, 2**126)
    time.now += SYNC.cleanup_interval
    syncer.step(leases_of(table, stream), audits=True)
    finish(table, low)
    seen = leases_of(table, stream)
    calls.clear()
    time.now += SYNC.cleanup_interval
    syncer.step(seen, audits=True)
    assert calls == {"ListShards": 1, "UpdateItem": 1}, "at once, although it has just listed them"
    found = {one.shard_id: one.child_ids for one in leases_of(table, stream)}
    assert found == {FIRST: (LOW, HIGH), LOW: tuple(IDS[3:5]), HIGH: ()}


@pytest.mark.parametrize(
    ("audit", "cleanup", "phase", "seconds"),
    [(120, 60, 0.0, 60), (120, 60, 0.5, 90), (120, 1000, 0.0, 120), (120, 1000, 0.5, 180)],
)
def test_a_leader_comes_back_when_the_next_audit_or_cleanup_is_due(
    stream: OneOfMany,
    time: ManualTime,
    calls: Counter[str],
    *,
    audit: float,
    cleanup: float,
    phase: float,
    seconds: float,
) -> None:
    settings = replace(SYNC, audit_interval=audit, cleanup_interval=cleanup)
    syncer = stream.make(settings=settings, phase=phase)
    lease = stream.lease(FIRST)
    calls.clear()
    assert syncer.step([lease], audits=True) == seconds
    time.now += seconds
    assert 0 < syncer.step([lease], audits=True) <= audit
    time.now += 10_000
    syncer.step([lease], audits=True)
    assert syncer.step([lease], audits=True) == min(audit, cleanup)
    assert not calls


def test_audits_and_cleanups_of_healthy_streams_call_nothing(
    stream: OneOfMany, table: LeaseTable, time: ManualTime, calls: Counter[str]
) -> None:
    syncers = [stream.make(phase=n / 10) for n in range(10)]
    table.create(stream.lease(FIRST))
    seen = leases_of(table, stream)
    calls.clear()
    for _ in range(600):
        time.now += 1
        for syncer in syncers:
            syncer.step(seen, audits=True)
    assert not calls


def test_audits_of_many_streams_are_spread_over_their_interval(
    stream: OneOfMany, table: LeaseTable, time: ManualTime, calls: Counter[str]
) -> None:
    """Each lists its stream's shards, as its lease is finished."""
    syncers = [stream.make(phase=n / 100) for n in range(100)]
    table.create(stream.lease(FIRST))
    (lease,) = leases_of(table, stream)
    finish(table, lease)
    seen = leases_of(table, stream)
    calls.clear()
    by_second = []
    for _ in range(180):
        time.now += 1
        before = calls["ListShards"]
        for syncer in syncers:
            syncer.step(seen, audits=True)
        by_second.append(calls["ListShards"] - before)
    assert sum(by_second[:59]) == 0
    assert sum(by_second[:120]) >= 100
    assert max(by_second) <= 6


def test_the_note_for_operators_of_java_workers_comes_once_for_all_streams(
    stream: OneOfMany, table: LeaseTable, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    notes, begin = [JAVA_NOTE], AtTimestamp(1_790_000_000_000)
    for number in range(3):
        other = StreamIdentifier("123456789012", f"s{number}", 1_790_000_000)
        stream.make(initial=begin, notes=notes, of=other).sync(TableScan(), TableScan())
    (told,) = [line for line in caplog.messages if "A Java KCL that shares" in line]
    assert "sparkinesis reset" in told
    begins = {(row.checkpoint.sequence_number, row.timestamp_ms) for row in table.leases()}
    assert begins == {("AT_TIMESTAMP", begin.ms)}
