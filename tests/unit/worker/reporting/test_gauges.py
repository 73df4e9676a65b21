"""The gauges of a worker: which there are, for which shards, and their values."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from sparkinesis.lease.extended_sequence_number import SHARD_END, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.observations import Snapshot
from sparkinesis.status import ShardState, ShardStatus
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.worker.reporting.gauges import (
    LeaseCounts,
    StreamCounts,
    WorkerGauges,
    WorkerSnapshot,
    lease_counts,
    samples_of,
)

WAITING = ShardStatus("s1", ShardState.WAITING_ON_PARENT_SHARDS, None, None, stream="flights")
READING = replace(
    WAITING,
    shard_id="s0",
    state=ShardState.PROCESSING,
    millis_behind_latest=1500,
    processing_for=2.5,
    checkpoint_age=7.0,
    page_millis_behind_latest=250,
    standing_for=2.75,
)


def values(look: WorkerSnapshot) -> dict[tuple[str, ...], float]:
    found = samples_of(look)
    by_labels = {(one.metric.name, *one.labels): one.value for one in found}
    assert len(by_labels) == len(found), "no series is there twice"
    return by_labels


def test_each_shard_has_its_own_and_unknown_values_are_left_out() -> None:
    counts = LeaseCounts(total=5, expired=1, workers=2, is_leader=True)
    assert values(WorkerSnapshot([READING, WAITING], 1024, 2, counts, 3, 0.5)) == {
        ("lag", "flights", "s0"): 1.5,
        ("page.lag", "flights", "s0"): 0.25,
        ("standing.age", "flights", "s0"): 2.75,
        ("processing.age", "flights", "s0"): 2.5,
        ("processing.age", "flights", "s1"): 0.0,
        ("checkpoint.age", "flights", "s0"): 7.0,
        ("application.lag",): 1.5,
        ("application.page.lag",): 0.25,
        ("bytes.held",): 1024,
        ("leases.held",): 2,
        ("table.unseen",): 0.5,
        ("leases.unread",): 3,
        ("leases.total",): 5,
        ("leases.expired",): 1,
        ("workers",): 2,
        ("leader",): 1.0,
    }


def test_the_streams_of_an_application_of_several_are_counted() -> None:
    streams = StreamCounts(active=3, former=1, unreadable={"trains": 61.5})
    assert values(WorkerSnapshot([], 0, 0, None, None, 5.0, streams)) == {
        ("bytes.held",): 0,
        ("leases.held",): 0,
        ("table.unseen",): 5.0,
        ("streams",): 3,
        ("streams.former",): 1,
        ("stream.unreadable", "trains"): 61.5,
    }


def test_of_shards_with_the_same_labels_the_worse_value_counts() -> None:
    other = replace(READING, millis_behind_latest=9000, processing_for=None, checkpoint_age=1.0)
    found = values(WorkerSnapshot([READING, other], 0, 2, None, None))
    assert found["lag", "flights", "s0"] == found["application.lag",] == 9.0
    assert found["processing.age", "flights", "s0"] == 2.5
    assert found["checkpoint.age", "flights", "s0"] == 7.0


def lease(shard: str, owner: str | None, checkpoint: str = "1") -> Lease:
    return Lease(shard, shard, ExtendedSequenceNumber(checkpoint), owner=owner)


def test_finished_leases_count_for_nothing() -> None:
    rows = (
        lease("a", "me"),
        lease("b", "other"),
        lease("c", "dead"),
        lease("d", None),
        lease("e", "gone", SHARD_END),
        msgspec.structs.replace(lease("f", "other"), checkpoint_owner="me"),
    )
    seen = Snapshot(rows, 1.0, frozenset({"c", "e"}))
    counts = lease_counts(seen, "me")
    assert counts is not None
    assert (counts.total, counts.expired, counts.workers) == (5, 1, 3)
    leaders = [w for w in ("me", "other", "dead") if (c := lease_counts(seen, w)) and c.is_leader]
    assert len(leaders) == 1
    assert leaders != ["dead"]
    assert lease_counts(Snapshot(), "me") is None


def test_a_worker_that_leads_on_one_of_several_streams_leads() -> None:
    one, two = (StreamIdentifier("1", name, 1) for name in ("one", "two"))
    rows = (lease("a", "me").in_stream(one), lease("a", "other").in_stream(two))
    for worker, leads in (("me", True), ("other", True), ("third", False)):
        counts = lease_counts(Snapshot(rows, 1.0), worker)
        assert counts is not None
        assert counts.is_leader is leads


def test_a_snapshot_is_counted_once() -> None:
    looks: list[LeaseCounts | None] = []

    def look(counts: LeaseCounts | None) -> WorkerSnapshot:
        looks.append(counts)
        return WorkerSnapshot([], 0, 0, counts, None)

    seen = Snapshot((lease("a", "me"),), 1.0)
    gauges = WorkerGauges("me", lambda: seen, look)
    gauges()
    gauges()
    seen = Snapshot((), 2.0)
    gauges()
    assert looks[0] is looks[1]
    assert [one.total for one in looks if one is not None] == [1, 1, 0]
