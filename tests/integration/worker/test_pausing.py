"""Pausing a shard: the lease is kept, nothing is fetched or delivered, and nothing is lost.

The server's clock runs, and a test moves it on by minutes and hours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.errors import OptionError
from sparkinesis.local import LocalServer
from sparkinesis.metrics.catalogue import APPLICATION_LAG, LAG, PAUSED_AGE
from sparkinesis.status import ShardState, ShardStatus
from sparkinesis.worker.lifecycle.worker import Worker
from tests.integration.worker.conftest import MINUTE, RunningClock
from tests.integration.worker.scene import (
    FIRST,
    ONCE,
    SECOND,
    UPPER,
    Gate,
    Scene,
    checkpoint,
    wait_for_look,
)
from tests.journal import PATIENCE, Journal
from tests.pace import eventually

RETRIEVALS = ("polling", "efo")

READS = {"GetRecords", "GetShardIterator", "SubscribeToShard", "SubscribeToShardEvent"}


@pytest.fixture(scope="module")
def server(clocked_server: LocalServer) -> LocalServer:
    return clocked_server


@pytest.fixture
def subscription_clock(clock: RunningClock) -> Callable[[], float]:
    return clock.seconds


def reads(scene: Scene, shard: str = FIRST) -> int:
    """The number of calls so far that read a shard of the test's stream."""
    return sum(
        (call.stream, call.shard) == (scene.stream, shard) and call.operation in READS
        for call in scene.server.kinesis.calls
    )


def status_of(worker: Worker, shard: str = FIRST) -> ShardStatus:
    return next(one for one in worker.status() if one.shard_id == shard)


def wait_until_paused(worker: Worker, shard: str = FIRST) -> None:
    eventually(
        lambda: (shard, ShardState.PAUSED) in [(o.shard_id, o.state) for o in worker.status()]
    )


def rounds(scene: Scene, count: int = 3) -> None:
    """Wait for so many renewals of the first shard's lease."""
    first = scene.row().counter
    eventually(lambda: scene.row().counter >= first + count)


def test_nothing_is_read_or_delivered_until_the_shard_is_resumed(
    scene: Scene, clock: RunningClock
) -> None:
    """For ten minutes under load; the other shard is read, and the lease is renewed."""
    worker = scene.start()
    scene.put(b"before")
    scene.journal.wait_for_data(b"before")
    assert worker.pause(FIRST)
    wait_until_paused(worker)
    held, before = worker._state.consumers[FIRST].held, reads(scene)
    for minute in range(10):
        for n in range(20):
            scene.put(b"%d of minute %d" % (n, minute) + b"." * 50_000)
        scene.put(b"other %d" % minute, UPPER)
        clock.advance(MINUTE)
    scene.journal.wait_for_data(*(b"other %d" % minute for minute in range(10)))
    rounds(scene)
    assert reads(scene) == before
    assert scene.journal.data(FIRST) == [b"before"]
    assert worker._state.consumers[FIRST].held is held
    assert worker._state.consumers[FIRST].batcher.bytes_held == 0
    assert worker.why_not_live() == ()
    assert worker.resume(FIRST)
    scene.journal.wait(lambda: len(scene.journal.data(FIRST)) == 201)
    found = [data.rstrip(b".") for data in scene.journal.data(FIRST)]
    assert found == [b"before"] + [
        b"%d of minute %d" % (n, m) for m in range(10) for n in range(20)
    ]
    assert status_of(worker).state is ShardState.PROCESSING
    assert [call for shard, call in scene.journal.calls("initialize", "lease_lost")] == [
        "initialize",
        "initialize",
    ]


def test_an_open_subscription_ends_even_during_a_call(scene: Scene) -> None:
    """Pages that wait are dropped: their memory is free, and they are read again."""
    gate = Gate()
    scene.put(b"1")
    worker = scene.start({"max_pages_ahead": 1}, on_records=gate)
    gate.wait_for_work()
    scene.put(b"2")
    worker.pause(FIRST)
    retrieval = worker._state.consumers[FIRST].fetching._fetcher
    assert retrieval is not None
    eventually(lambda: retrieval._source is None)
    before = reads(scene)
    assert status_of(worker).state is ShardState.PROCESSING, "the call goes on to its end"
    gate.go_on.set()
    wait_until_paused(worker)
    rounds(scene)
    assert scene.journal.data(FIRST) == [b"1"]
    assert reads(scene) == before
    assert worker._state.consumers[FIRST].batcher.bytes_held == 0, "the batch's memory is free"
    worker.resume(FIRST)
    scene.journal.wait_for_data(b"2")
    assert scene.journal.data(FIRST) == [b"1", b"2"]


def test_a_pause_too_short_to_be_noticed_does_no_harm(scene: Scene) -> None:
    worker = scene.start()
    for n in range(20):
        scene.put(b"%d" % n)
        worker.pause()
        worker.resume()
    scene.journal.wait_for_data(*(b"%d" % n for n in range(20)))
    assert scene.journal.data(FIRST) == [b"%d" % n for n in range(20)]


@ONCE
def test_a_processor_pauses_its_own_shard_and_a_thread_of_its_own_resumes_it(scene: Scene) -> None:
    """A failed call is not tried again before the pause has ended."""
    shards: list[Any] = []
    is_down = threading.Event()
    is_down.set()

    def process(batch: Any, checkpointer: Any) -> None:
        if is_down.is_set():
            shards[0].pause()
            raise RuntimeError("downstream refuses")
        checkpointer.checkpoint()

    scene.put(b"1")
    worker = scene.start(
        on_records=process,
        on_initialize=lambda shard: shards.append(shard) if shard.id == FIRST else None,
    )
    wait_until_paused(worker)
    rounds(scene)
    assert scene.calls_of() == ["initialize", "failed"]
    is_down.clear()
    shards[0].resume()
    scene.journal.wait_for_data(b"1")
    assert scene.calls_of() == ["initialize", "failed", "process_records"]


@ONCE
def test_all_shards_are_paused_also_those_that_come_later(scene: Scene) -> None:
    """A worker that is paused before it starts holds its leases, and reads nothing."""
    scene.put(b"1")
    worker = scene.application().worker()
    worker.pause()
    worker.start()
    try:
        wait_for_look(
            worker,
            lambda: [one.state for one in worker.status()] == [ShardState.PAUSED] * 2,
        )
        rounds(scene)
        assert reads(scene) == reads(scene, SECOND) == 0
        assert set(scene.owners().values()) == {worker._settings.worker_id}
        scene.split()
        worker.resume(FIRST)
        scene.journal.wait(lambda: (FIRST, "shard_ended") in scene.journal.calls())
        # Its children begin, and are paused as well.
        eventually(lambda: len(worker.status()) == 3)
        eventually(lambda: {one.state for one in worker.status()} == {ShardState.PAUSED})
        worker.resume()
        eventually(lambda: {one.state for one in worker.status()} == {ShardState.PROCESSING})
    finally:
        assert worker.shutdown(PATIENCE)


@ONCE
def test_a_pause_ends_with_the_lease(scene: Scene) -> None:
    scene.put(b"1")
    worker = scene.start()
    scene.journal.wait_for_data(b"1")
    worker.pause(FIRST)
    wait_until_paused(worker)
    other = Journal()
    assert worker.shutdown(PATIENCE)
    assert scene.calls_of()[-2:] == ["shutdown_requested", "lease_lost"]
    second = scene.start(journal=other)
    other.wait_for_data(b"1")
    assert status_of(second).paused_for is None


@ONCE
def test_a_lease_that_comes_back_is_read(scene: Scene) -> None:
    """The operator's reset takes it away: the same worker reads it again, from there."""
    scene.put(b"1")
    worker = scene.start(on_records=checkpoint)
    scene.journal.wait_for_data(b"1")
    worker.pause(FIRST)
    wait_until_paused(worker)
    held = worker._state.consumers[FIRST].held
    held.lose("the test says so")
    scene.put(b"2")
    scene.journal.wait_for_data(b"2")
    assert scene.calls_of().count("initialize") == 2


@ONCE
def test_what_was_processed_is_checkpointed_during_a_pause(scene: Scene) -> None:
    last = scene.put(b"1")
    worker = scene.start({"checkpoint_seconds": 1})
    scene.journal.wait_for_data(b"1")
    worker.pause(FIRST)
    eventually(lambda: scene.row().checkpoint.sequence_number == last)
    wait_until_paused(worker)


@ONCE
def test_a_reset_during_a_pause_is_followed_after_it(scene: Scene) -> None:
    kept: list[Any] = []
    scene.put(b"1")
    worker = scene.start(on_records=lambda batch, checkpointer: kept.append(checkpointer))
    scene.journal.wait_for_data(b"1")
    worker.pause(FIRST)
    wait_until_paused(worker)
    kept[0].reset("TRIM_HORIZON")
    before = reads(scene)
    rounds(scene)
    assert reads(scene) == before
    worker.resume(FIRST)
    scene.journal.wait(lambda: scene.journal.data(FIRST) == [b"1", b"1"])


@ONCE
def test_a_shard_that_ends_during_a_pause_ends_after_it(scene: Scene) -> None:
    scene.put(b"1")
    worker = scene.start({"parent_poll_interval": 0.1})
    scene.journal.wait_for_data(b"1")
    worker.pause(FIRST)
    wait_until_paused(worker)
    scene.put(b"2")
    scene.split()
    scene.put(b"child")
    rounds(scene)
    assert b"child" not in scene.journal.data()
    worker.resume(FIRST)
    scene.journal.wait_for_data(b"child")
    assert [data for data in scene.journal.data() if data != b"1"] == [b"2", b"child"]


def test_skip_older_than_applies_after_a_pause(scene: Scene, clock: RunningClock) -> None:
    worker = scene.start({"skip_older_than": 2 * MINUTE})
    scene.put(b"in time")
    scene.journal.wait_for_data(b"in time")
    worker.pause(FIRST)
    wait_until_paused(worker)
    scene.put(b"stale")
    clock.advance(60 * MINUTE)
    scene.put(b"young")
    worker.resume(FIRST)
    scene.journal.wait_for_data(b"young")
    assert scene.journal.data(FIRST) == [b"in time", b"young"]


def test_records_that_expire_during_a_pause_are_told_as_lost(
    scene: Scene, clock: RunningClock
) -> None:
    worker = scene.start()
    scene.put(b"in time")
    scene.journal.wait_for_data(b"in time")
    worker.pause(FIRST)
    wait_until_paused(worker)
    scene.put(b"expires")
    clock.advance(25 * 60 * MINUTE)
    scene.put(b"young")
    worker.resume(FIRST)
    scene.journal.wait_for_data(b"young")
    assert scene.journal.data(FIRST) == [b"in time", b"young"]
    assert any("expired" in failure.what for failure in worker.failures())


@ONCE
def test_a_paused_shard_has_an_age_and_no_lag(scene: Scene, tallied: Any) -> None:
    worker = scene.start({"metrics": (tallied,)})
    scene.put(b"1")
    scene.put(b"2", UPPER)
    scene.journal.wait_for_data(b"1", b"2")
    worker.pause(FIRST)
    wait_until_paused(worker)
    since = worker._state.consumers[FIRST].fetching.paused_since
    worker.pause(FIRST)
    assert worker._state.consumers[FIRST].fetching.paused_since == since, "counted from the first"
    found = {(one.metric, *one.labels): one.value for one in tallied.tally.series()}
    assert status_of(worker).millis_behind_latest is None
    assert (LAG.name, scene.stream, FIRST) not in found
    assert (LAG.name, scene.stream, SECOND) in found
    assert (APPLICATION_LAG.name,) in found
    age = found[PAUSED_AGE.name, scene.stream, FIRST]
    assert (PAUSED_AGE.name, scene.stream, SECOND) not in found
    later = status_of(worker).paused_for
    assert later is not None
    assert later >= age > 0


@ONCE
def test_a_shard_is_named_by_what_the_application_has(scene: Scene) -> None:
    worker = scene.start()
    eventually(lambda: len(worker.status()) == 2)
    with pytest.raises(OptionError, match=rf"no shard 'shard-9'.*{FIRST}, {SECOND}"):
        worker.pause("shard-9")
    assert worker.resume("shard-9") is False, "it may have ended during its pause"
    assert ShardState.PAUSED not in {one.state for one in worker.status()}
    assert worker.shutdown(PATIENCE)
    assert worker.pause(FIRST) is False, "this worker does not read it any more"


@ONCE
def test_calls_that_overlap_end_and_no_others_begin(scene: Scene) -> None:
    """What they have finished is checkpointed during the pause."""
    gate, begun = Gate(), []

    def process(record: Any) -> None:
        begun.append(record.data)
        gate()

    places = [scene.put(b"%d" % n, key=str(n)) for n in range(20)]
    options = {"concurrency": 4, "checkpoint_seconds": 0.2}
    worker = scene.run(scene.application(options, processor=process))
    eventually(lambda: len(begun) == 4)
    worker.pause(FIRST)
    gate.go_on.set()
    eventually(lambda: scene.row().checkpoint.sequence_number == places[3])
    rounds(scene)
    assert len(begun) == 4
    worker.resume(FIRST)
    eventually(lambda: scene.row().checkpoint.sequence_number == places[-1])
    assert sorted(begun, key=int) == [b"%d" % n for n in range(20)]
