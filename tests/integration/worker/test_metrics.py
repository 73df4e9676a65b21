"""What a worker measures is what its record processors did, and its events say the same."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from sparkinesis import errors, events
from sparkinesis.application import Application
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.metrics.tally import Distribution, Tally
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.on_error import DeadLetter, Retry, Skip
from tests.heard import Heard
from tests.integration.worker.scene import FIRST, ONCE, SECOND, UPPER, Scene, wait_for_look
from tests.journal import PATIENCE, Journal, Journaling

RETRIEVALS = ("polling", "efo")


SOON = Retry(2, base=0.0, cap=0.0, then=Skip())


class Kept(Heard):
    """An exporter that keeps all measurements in memory; also an ``on_event``."""

    def __init__(self) -> None:
        super().__init__()
        self.tallies: dict[str, Tally] = {}

    def open(self, measured: Measured) -> Metrics:
        return self.tallies.setdefault(measured.labels["worker"], Tally())

    def options(self, **more: Any) -> dict[str, Any]:
        return {"metrics": (self,), "on_event": self, **more}

    def count(self, name: str, *labels: str) -> float:
        """The sum of a counter, or the calls of a histogram, over all workers and other labels."""
        values = [
            one.value.count if isinstance(one.value, Distribution) else one.value
            for tally in list(self.tallies.values())
            for one in tally.series()
            if one.metric == name and set(labels) <= set(one.labels)
        ]
        return sum(values)

    def gauges(self) -> dict[tuple[str, ...], float]:
        return {
            (one.metric, *one.labels): one.value
            for tally in list(self.tallies.values())
            for one in tally.series()
            if isinstance(one.value, float | int)
        }


@pytest.fixture
def kept() -> Kept:
    return Kept()


def sizes(datas: list[bytes]) -> int:
    return sum(map(len, datas))


def agree(kept: Kept, journal: Journal) -> None:
    """Metrics, events and the processors' own journal say the same."""
    records, calls = journal.records(), Counter(call for _, call in journal.calls())
    assert kept.count("records.processed") == len(records)
    assert kept.count("bytes.processed") == sizes([record.data for record in records])
    assert kept.count("process.records.duration", "ok") == calls["process_records"]
    assert kept.count("process.records.duration", "failed") == calls["failed"]
    assert kept.count("batches.failed") == calls["failed"] == len(kept.of(events.BatchFailed))
    assert kept.count("initialize.duration") == calls["initialize"]
    ends = calls["lease_lost"] + calls["shard_ended"] + calls["shutdown_requested"]
    assert kept.count("shutdown.duration") == ends
    for name, kind in (
        ("records.skipped", events.RecordsSkipped),
        ("dead.letters", events.DeadLettersStored),
    ):
        assert kept.count(name) == sum(event.records for event in kept.of(kind))
    taken, ended = kept.of(events.LeaseTaken), kept.of(events.LeaseEnded)
    assert kept.count("leases.taken") == len(taken)
    lost = [event for event in ended if not event.reason.is_planned]
    assert kept.count("leases.lost") == len(lost)
    assert kept.count("leases.released") == len(ended) - len(lost)
    assert len(kept.of(events.ShardStarted)) == calls["initialize"]


def test_failures_splits_retries_skips_and_a_reshard(scene: Scene, kept: Kept) -> None:
    datas = [b"%04d" % n for n in range(40)]
    bad = {b"0003", b"0017", b"0039"}

    def process(batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if any(record.data in bad for record in batch.records):
            raise ValueError("bad")
        checkpointer.checkpoint()

    for n, data in enumerate(datas):
        scene.put(data, UPPER * (n % 2))
    worker = scene.start(kept.options(), on_records=process, on_error=SOON)
    scene.journal.wait_for_data(*(set(datas) - bad))
    kept.wait_for(events.RecordsSkipped, len(bad))
    scene.split()
    started = {event.shard_id: event for event in kept.wait_for(events.ShardStarted, 4)}
    (began,) = kept.of(events.WorkerStarted)
    place = f"application '{scene.stream}' reads stream '{scene.stream}' in us-east-1 at http://"
    assert f" has started: {place}" in began.line()[1]
    assert (started[FIRST].stream, started[FIRST].position) == (scene.stream, "TRIM_HORIZON")
    scene.put(b"later")
    scene.journal.wait_for_data(b"later")
    assert worker.shutdown(PATIENCE)
    threads = {thread.name for thread in threading.enumerate()}
    assert f"{scene.stream}-events" not in threads, "the last events are told before the end"
    agree(kept, scene.journal)
    assert kept.count("records.processed") == len(datas) - len(bad) + 1
    assert kept.count("records.skipped") == len(bad)
    actions = Counter(event.action.value for event in kept.of(events.BatchFailed))
    assert actions["skip"] == len(bad)
    assert {name: kept.count("batches.failed", name) for name in actions} == actions
    (ended,) = kept.of(events.ShardEnded)
    assert ended.shard_id == FIRST
    assert ended.children == ("shardId-000000000002", "shardId-000000000003")
    assert isinstance(kept.events[-1], events.WorkerEnded)
    assert kept.events[-1].records == kept.count("records.processed") == worker.records_total()
    assert kept.count("checkpoint.duration", "ok") >= 4
    assert kept.gauges().keys() & {("leases.held",), ("bytes.held",)} == set(), "the worker is gone"


def test_dead_letters_are_counted_once_they_are_stored(scene: Scene, kept: Kept) -> None:
    stored: list[bytes] = []

    def target(failed: Any) -> None:
        if not stored:
            stored.append(b"refused once")
            raise OSError("not now")
        stored.extend(record.data for record in failed.batch.records)

    def refuse(batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if batch.records[0].data == b"bad":
            raise ValueError("bad")

    scene.put(b"bad")
    worker = scene.start(
        kept.options(task_backoff=0.01), on_records=refuse, on_error=DeadLetter(target)
    )
    kept.wait_for(events.DeadLettersStored)
    scene.put(b"good")
    scene.journal.wait_for_data(b"good")
    assert worker.shutdown(PATIENCE)
    agree(kept, scene.journal)
    assert stored == [b"refused once", b"bad"]
    assert kept.count("dead.letters") == 1
    (failed,) = kept.of(events.TaskFailed)
    assert failed.failure.error == "OSError: not now"


def test_a_steal_and_a_shutdown_in_the_middle_of_a_batch(scene: Scene, kept: Kept) -> None:
    """A batch that fails while its shard is released is not processed; the next owner gets it."""
    first_is_in, go_on = threading.Event(), threading.Event()

    def process(batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if batch.records[0].data == b"slow" and not go_on.is_set():
            first_is_in.set()
            assert go_on.wait(PATIENCE)
            raise ValueError("interrupted")
        checkpointer.checkpoint()

    def make(name: str) -> Application:
        return scene.application(
            kept.options(),
            worker_id=name,
            processor=lambda: Journaling(scene.journal, on_records=process),
        )

    scene.put(b"slow")
    first = scene.run(make("first"))
    assert first_is_in.wait(PATIENCE)
    kept.wait_for(events.LeaseTaken, 2)
    scene.run(make("second"))
    kept.wait_for(events.HandoffRequested)
    first.request_shutdown()
    consumer = first._state.running_consumers()[FIRST]
    wait_for_look(first, consumer._is_ending)
    go_on.set()
    scene.journal.wait_for_data(b"slow")
    assert first.wait(PATIENCE)
    scene.put(b"other", UPPER)
    scene.journal.wait_for_data(b"other")
    assert first.was_graceful
    kept.wait(lambda: kept.count("records.processed") == 2)
    assert kept.count("leases.requested") == len(kept.of(events.HandoffRequested)) >= 1
    (failed,) = kept.of(events.BatchFailed)
    assert failed.action is events.BatchAction.RELEASE
    assert kept.count("batches.failed", "release") == 1


def test_gauges_follow_the_worker(scene: Scene, kept: Kept) -> None:
    is_in, go_on = threading.Event(), threading.Event()

    def process(batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if batch.records[0].data == b"block":
            is_in.set()
            assert go_on.wait(PATIENCE)
        elif batch.records[0].data != b"kept":
            checkpointer.checkpoint()

    worker = scene.start(kept.options(), on_records=process)
    scene.put(b"1")
    scene.journal.wait_for_data(b"1")
    scene.put(b"kept")
    scene.journal.wait_for_data(b"kept")
    scene.put(b"block")
    assert is_in.wait(PATIENCE)

    def is_settled() -> bool:
        found = kept.gauges()
        is_started = ("checkpoint.age", scene.stream, SECOND) in found
        return is_started and found.get(("workers",)) == 1 and ("leases.unread",) in found

    wait_for_look(worker, is_settled)
    status = {one.shard_id: one for one in worker.status()}
    gauges = kept.gauges()
    processing_for, age = status[FIRST].processing_for, status[FIRST].checkpoint_age
    assert processing_for is not None
    assert age is not None
    assert 0 < processing_for <= gauges["processing.age", scene.stream, FIRST]
    assert processing_for < age <= gauges["checkpoint.age", scene.stream, FIRST]
    assert gauges["processing.age", scene.stream, SECOND] == 0.0
    assert gauges["checkpoint.age", scene.stream, SECOND] == 0.0
    assert gauges["leases.held",] == gauges["leases.total",] == 2
    assert gauges["workers",] == 1
    assert gauges["leader",] == 1
    assert gauges["leases.unread",] == gauges["leases.expired",] == 0
    assert gauges["bytes.held",] > 0
    assert gauges["lag", scene.stream, FIRST] >= 0
    row = scene.row()
    assert status[FIRST].checkpoint == str(row.checkpoint)
    go_on.set()
    assert worker.shutdown(PATIENCE)


@ONCE
def test_a_worker_that_cannot_start_publishes_nothing_more(scene: Scene, kept: Kept) -> None:
    closed: list[str] = []

    class Closing(Tally):
        def close(self) -> None:
            closed.append("closed")

    class Exporter:
        def open(self, measured: Measured) -> Metrics:
            return Closing()

    with pytest.raises(errors.StreamNotFoundError):
        scene.application({"metrics": (Exporter(),)}, stream="not-there").worker()
    assert closed == ["closed"]
    worker = scene.application({"metrics": (Exporter(),)}).worker()
    worker.shutdown()
    worker.shutdown()
    assert closed == ["closed"] * 2, "once for each worker"
