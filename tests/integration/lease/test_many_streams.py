"""The leases of one stream among those of a thousand: what they cost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.shards.shard_syncer import ShardSyncer
from sparkinesis.lease.shards.stream_leases import JAVA_NOTE
from sparkinesis.lease.table import requests
from sparkinesis.lease.table.rows import TableScan
from sparkinesis.lease.table.table import LeaseTable
from sparkinesis.local import LocalServer
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.position import LATEST, TRIM_HORIZON, AtTimestamp, InitialPosition
from sparkinesis.stream.shard import Shard
from tests.integration.lease.conftest import (
    IDS,
    SYNC,
    Leased,
    Scene,
    leased,
)

FIRST, LOW, HIGH = IDS[:3]


class OneOfMany(Leased):
    """One of a thousand streams, as far as its syncer is told."""

    def split(self, number: int = 0, middle: int = 2**127) -> None:
        """Split a shard, as soon as the account may split one more."""
        Backoff().call(lambda: super(OneOfMany, self).split(number, middle))

    def syncer(self, size: int = 1000, **given: Any) -> ShardSyncer:
        return super().syncer(table_size=lambda: size, **given)

    @property
    def rows(self) -> tuple[Lease, ...]:
        return self.scene.table.scan().of(self.id).leases


@pytest.fixture
def stream(scene: Scene) -> OneOfMany:
    made = leased(scene, 1, is_named=True)
    return OneOfMany(made.client, made.kinesis, scene, made.id)


@pytest.fixture
def calls(server: LocalServer, stream: OneOfMany) -> Counter[str]:
    """The calls since the stream was created."""
    del stream
    found: Counter[str] = Counter()
    server.kinesis.faults = lambda call: found.update([call.operation])
    return found


@pytest.mark.parametrize("initial", [TRIM_HORIZON, LATEST])
def test_a_new_stream_takes_one_listing_and_a_write_for_each_lease(
    stream: OneOfMany, calls: Counter[str], initial: InitialPosition
) -> None:
    stream.syncer(initial=initial).sync(TableScan(), TableScan())
    assert calls == {"ListShards": 1, "PutItem": 1}


def test_a_new_stream_beside_a_java_kcl_of_other_streams_has_records_in_place_of_instants(
    stream: OneOfMany,
) -> None:
    """A Java worker may take its leases, too, and would take LATEST for a later moment."""
    stream.syncer(initial=LATEST).sync(TableScan(), TableScan(has_entities=True))
    (lease,) = stream.scene.table.leases()
    assert (lease.timestamp_ms, lease.checkpoint.is_latest) == (None, False)
    assert lease.application_ms is not None


def test_a_stream_whose_leases_are_all_there_takes_no_call(
    stream: OneOfMany, calls: Counter[str]
) -> None:
    lease = stream.lease(0)
    stream.scene.table.create(lease)
    calls.clear()
    syncer = stream.syncer()
    syncer.sync(TableScan((lease,)), TableScan())
    assert not calls
    assert syncer._leases.read() == [lease]
    assert calls == {"GetItem": 1}, "which lease to read is known"


def test_a_stream_that_another_worker_is_faster_with_takes_no_scan(
    stream: OneOfMany, calls: Counter[str]
) -> None:
    stream.create(0)
    calls.clear()
    stream.syncer().sync(TableScan(), TableScan())
    assert calls == {"ListShards": 1, "PutItem": 1, "GetItem": 1}


def test_the_rest_is_created_if_the_other_worker_has_died_after_its_first_lease(
    stream: OneOfMany, calls: Counter[str]
) -> None:
    stream.split()
    stream.create(1)
    calls.clear()
    begin = AtTimestamp(stream.client.list_shards()[1])  # both children are open at that time
    stream.syncer(initial=begin).sync(TableScan(), TableScan())
    # For leases of older shards, and whether a Java KCL may read the table.
    assert calls["Scan"] <= 2
    assert {one.shard_id for one in stream.scene.table.leases()} >= {LOW, HIGH}


@pytest.mark.parametrize("is_broken", [False, True])
@pytest.mark.parametrize("initial", [LATEST, AtTimestamp])
def test_a_stream_that_another_worker_began_before_two_reshards_is_not_begun_again(
    stream: OneOfMany, initial: Any, *, is_broken: bool
) -> None:
    """The last scan of the table was before, and the first shard has only grandchildren now."""
    stream.split()
    stream.split(1, 2**126)
    stream.split(2, 3 * 2**126)
    stream.create(0)
    if initial is AtTimestamp:  # the tracker named the stream to each worker at another time
        initial = AtTimestamp(stream.client.list_shards()[1])
    if is_broken:
        stream.break_row(0)
    stream.syncer(initial=initial).sync(TableScan(), TableScan())
    found = stream.scene.table.scan(consistent=True)
    assert [*(one.key for one in found.broken), *(one.key for one in found.leases)] == [
        stream.lease(0).key
    ]


def test_a_small_table_is_scanned(stream: OneOfMany, calls: Counter[str]) -> None:
    stream.split()
    stream.create(1, 2)
    calls.clear()
    begin = AtTimestamp(stream.client.list_shards()[1])
    stream.syncer(size=3, initial=begin).sync(TableScan(), TableScan())
    assert (calls["Scan"], calls["GetItem"]) == (1, 0)


def test_the_lease_of_a_parent_that_has_expired_is_read_too(
    stream: OneOfMany, calls: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells that its children are not new."""
    leases = stream.syncer()._leases
    stream.create(0)
    calls.clear()
    listed = [Shard(LOW, (FIRST,)), Shard(HIGH, (FIRST,))]
    monkeypatch.setattr(StreamClient, "list_shards", lambda self, **_: (listed, 0))
    leases.list_shards()
    assert [one.shard_id for one in leases.read()] == [FIRST]
    assert calls == {"GetItem": 3}


def finish(table: LeaseTable, lease: Lease) -> None:
    taken = table.write(requests.take(lease, "reader"))
    table.write(requests.checkpoint(taken, ExtendedSequenceNumber(SHARD_END)))


def resharded(stream: OneOfMany, table: LeaseTable) -> list[Lease]:
    """Split the first shard, whose lease is finished then; returns the leases of its children."""
    stream.split()
    stream.create(0, 1, 2)
    first, *children = sorted(stream.rows, key=lambda one: one.key)
    finish(table, table.write(requests.add_children(first, [LOW, HIGH])))
    return children


@pytest.mark.parametrize("cleans", [True, False])
def test_a_cleanup_reads_the_leases_of_its_stream_only(
    stream: OneOfMany, calls: Counter[str], *, cleans: bool
) -> None:
    syncer = stream.syncer(settings=replace(SYNC, cleanup_leases=cleans))
    children = resharded(stream, stream.scene.table)
    for child in children:
        begun = requests.checkpoint(
            stream.scene.table.write(requests.take(child, "reader")), ExtendedSequenceNumber("7")
        )
        stream.scene.table.write(begun)
    seen = stream.rows
    calls.clear()
    stream.scene.time.now += SYNC.cleanup_interval
    syncer.step(seen, audits=True)
    assert calls == ({"ListShards": 1, "GetItem": 3, "DeleteItem": 1} if cleans else {})
    left = {one.shard_id for one in stream.rows}
    assert left == ({LOW, HIGH} if cleans else {FIRST, LOW, HIGH})


def test_a_cleanup_that_can_delete_nothing_yet_lists_the_shards_once_an_hour(
    stream: OneOfMany, calls: Counter[str]
) -> None:
    """The children of a quiet stream may not begin for days."""
    syncer = stream.syncer()
    resharded(stream, stream.scene.table)
    seen = stream.rows
    calls.clear()
    for _ in range(121):
        stream.scene.time.now += SYNC.cleanup_interval
        syncer.step(seen, audits=True)
    assert calls == {"ListShards": 3}


def test_a_cleanup_notes_the_children_of_a_shard_whose_end_did_not(
    stream: OneOfMany, calls: Counter[str]
) -> None:
    """As a KCL 1.x, which leaves them out: without them, the finished lease would never go."""
    syncer = stream.syncer()
    low, _ = resharded(stream, stream.scene.table)
    stream.split(1, 2**126)
    stream.scene.time.now += SYNC.cleanup_interval
    syncer.step(stream.rows, audits=True)
    finish(stream.scene.table, low)
    seen = stream.rows
    calls.clear()
    stream.scene.time.now += SYNC.cleanup_interval
    syncer.step(seen, audits=True)
    assert calls == {"ListShards": 1, "UpdateItem": 1}, "at once, although it has just listed them"
    found = {one.shard_id: one.child_ids for one in stream.rows}
    assert found == {FIRST: (LOW, HIGH), LOW: tuple(IDS[3:5]), HIGH: ()}


@pytest.mark.parametrize(
    ("audit", "cleanup", "phase", "seconds"),
    [(120, 60, 0.0, 60), (120, 60, 0.5, 90), (120, 1000, 0.0, 120), (120, 1000, 0.5, 180)],
)
def test_a_leader_comes_back_when_the_next_audit_or_cleanup_is_due(
    stream: OneOfMany,
    calls: Counter[str],
    *,
    audit: float,
    cleanup: float,
    phase: float,
    seconds: float,
) -> None:
    settings = replace(SYNC, audit_interval=audit, cleanup_interval=cleanup)
    syncer = stream.syncer(settings=settings, phase=phase)
    lease = stream.lease(0)
    calls.clear()
    assert syncer.step([lease], audits=True) == seconds
    stream.scene.time.now += seconds
    assert 0 < syncer.step([lease], audits=True) <= audit
    stream.scene.time.now += 10_000
    syncer.step([lease], audits=True)
    assert syncer.step([lease], audits=True) == min(audit, cleanup)
    assert not calls


def test_audits_of_many_streams_are_spread_over_their_interval(
    stream: OneOfMany, calls: Counter[str]
) -> None:
    """Each lists its stream's shards, as its lease is finished."""
    syncers = [stream.syncer(phase=n / 100) for n in range(100)]
    stream.create(0)
    (lease,) = stream.rows
    finish(stream.scene.table, lease)
    seen = stream.rows
    calls.clear()
    by_second = []
    for _ in range(180):
        stream.scene.time.now += 1
        before = calls["ListShards"]
        for syncer in syncers:
            syncer.step(seen, audits=True)
        by_second.append(calls["ListShards"] - before)
    assert sum(by_second[:59]) == 0
    assert sum(by_second[:120]) >= 100
    assert max(by_second) <= 6


def test_the_note_for_operators_of_java_workers_comes_once_for_all_streams(
    stream: OneOfMany, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    notes, begin = [JAVA_NOTE], AtTimestamp(1_790_000_000_000)
    for number in range(3):
        other = StreamIdentifier("123456789012", f"s{number}", 1_790_000_000)
        stream.syncer(initial=begin, notes=notes, stream=other).sync(TableScan(), TableScan())
    (told,) = [line for line in caplog.messages if "A Java KCL that shares" in line]
    assert "sparkinesis reset" in told
    begins = {
        (row.checkpoint.sequence_number, row.timestamp_ms) for row in stream.scene.table.leases()
    }
    assert begins == {("AT_TIMESTAMP", begin.ms)}
