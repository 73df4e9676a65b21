"""W6: ``skip_older_than``: a processor that is too far behind goes on at the bound.

The server's clock runs, and a test moves it on by hours.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.local import Call, Fault, LocalServer
from tests.integration.worker.conftest import MINUTE, RunningClock
from tests.integration.worker.scene import FIRST, Scene, checkpoint
from tests.journal import PATIENCE, Journal
from tests.streams import merge_neighbours, split

RETRIEVALS = ("polling", "efo")


@pytest.fixture(scope="module")
def server(clocked_server: LocalServer) -> LocalServer:
    return clocked_server


@pytest.fixture
def subscription_clock(clock: RunningClock) -> Callable[[], float]:
    return clock.seconds


def skipping(seconds: float) -> dict[str, Any]:
    return {"skip_older_than": seconds, "parent_poll_interval": 0.1}


def read_one(scene: Scene) -> None:
    """A worker begins with the stream, and ends."""
    before = Journal()
    scene.put(b"done")
    worker = scene.start(on_records=checkpoint, journal=before)
    before.wait_for_data(b"done")
    assert worker.shutdown(PATIENCE)


def test_resuming_too_far_behind_goes_on_at_the_bound(scene: Scene, clock: RunningClock) -> None:
    """What is younger than the bound was not delivered yet, and is."""
    read_one(scene)
    for n in range(5):
        scene.put(b"missed %d" % n)
    clock.advance(10 * MINUTE)
    scene.put(b"young")
    clock.advance(MINUTE)
    scene.put(b"new")
    scene.start(options=skipping(2 * MINUTE))
    scene.journal.wait_for_data(b"new")
    assert scene.journal.data() == [b"young", b"new"]


def test_children_are_read_from_the_bound_on(scene: Scene, clock: RunningClock) -> None:
    """Resharded twice while nobody read: hours of records in four generations, all skipped."""
    read_one(scene)
    for turn, reshard in enumerate((split, merge_neighbours)):
        scene.put(b"old %d" % turn)
        clock.advance(60 * MINUTE)
        reshard(scene.kinesis, scene.stream)
        scene.put(b"old child %d" % turn)
    clock.advance(60 * MINUTE)
    scene.put(b"young")
    clock.advance(MINUTE)
    scene.start(options=skipping(2 * MINUTE))
    scene.put(b"new")
    scene.journal.wait_for_data(b"new")
    assert scene.journal.data() == [b"young", b"new"]
    # The parents came to their end all the same, first and by the book.
    ended = [shard for shard, _ in scene.journal.calls("shard_ended")]
    assert ended[0] == FIRST
    assert len(ended) == 3


def test_falling_behind_while_running_goes_on_at_the_bound(
    scene: Scene, clock: RunningClock
) -> None:
    """The service refuses to read for a while, as it does with too many readers."""
    is_refused, refused = threading.Event(), threading.Event()
    refusals = {
        "GetRecords": "ProvisionedThroughputExceededException",
        "SubscribeToShard": "LimitExceededException",
    }

    def refuse(call: Call) -> Fault | None:
        if call.operation in refusals and is_refused.is_set() and call.stream == scene.stream:
            refused.set()
            return Fault.error(refusals[call.operation])
        return None

    scene.start(options=skipping(2 * MINUTE))
    scene.put(b"in time")
    scene.journal.wait_for_data(b"in time")
    scene.server.kinesis.faults = refuse
    is_refused.set()
    clock.advance(6 * MINUTE)  # which is the end of a subscription, too
    scene.put(b"stale")
    assert refused.wait(PATIENCE)
    clock.advance(60 * MINUTE)
    scene.put(b"young")
    clock.advance(MINUTE)
    scene.server.kinesis.faults = None
    scene.put(b"new")
    scene.journal.wait_for_data(b"new")
    assert scene.journal.data() == [b"in time", b"young", b"new"]


def test_0_means_from_the_workers_start_each_time(scene: Scene, clock: RunningClock) -> None:
    scene.put(b"before")
    for turn in range(2):
        clock.advance(2)
        journal = Journal()
        worker = scene.start(on_records=checkpoint, journal=journal, options=skipping(0))
        scene.put(b"now %d" % turn)
        journal.wait_for_data(b"now %d" % turn)
        # However long it runs: nothing is behind the worker's start any more.
        clock.advance(60 * MINUTE)
        scene.put(b"later %d" % turn)
        journal.wait_for_data(b"later %d" % turn)
        assert worker.shutdown(PATIENCE)
        assert journal.data() == [b"now %d" % turn, b"later %d" % turn]
        scene.put(b"while stopped")
