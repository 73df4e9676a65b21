"""What a receiver measures is what happened to its records."""

from __future__ import annotations

import threading

import pytest

from sparkinesis.local import Call, Fault
from sparkinesis.metrics.catalogue import (
    QUEUE_ACKNOWLEDGED,
    QUEUE_AGE,
    QUEUE_EMPTY_RECEIVES,
    QUEUE_EXTENSIONS,
    QUEUE_FAILED,
    QUEUE_HOLDS_LOST,
    QUEUE_IN_HAND,
    QUEUE_RECEIVED,
    QUEUE_RECEIVES_FAILED,
    QUEUE_REDELIVERED,
    QUEUE_REFUSALS,
)
from sparkinesis.metrics.tally import Tally
from sparkinesis.queue.record import QueueRecord
from tests.integration.queue.scene import VISIBILITY, Handled, QueueScene
from tests.integration.queue.test_pits import aggregate
from tests.journal import PATIENCE
from tests.pace import eventually
from tests.tallies import Tallied, counted, seconds

OURS = ("orders",)


@pytest.fixture
def exporter() -> Tallied:
    return Tallied()


@pytest.fixture
def tally(exporter: Tallied) -> Tally:
    return exporter.tally


def test_what_is_received_again_is_counted_apart(
    scene: QueueScene, handled: Handled, exporter: Tallied, tally: Tally
) -> None:
    def fail_first(record: QueueRecord) -> None:
        if record.data == b"bad" and record.receive_count == 1:
            raise ValueError("bad")

    handled.does = fail_first
    scene.put(b"bad")
    scene.clock.advance(7_000)
    scene.put(b"good")
    worker = scene.start(handled, {"metrics": (exporter,)}, concurrency=2)
    handled.wait(2)
    eventually(lambda: worker.in_hand == 0)
    assert counted(tally, QUEUE_RECEIVED) == {OURS: 2}
    assert counted(tally, QUEUE_REDELIVERED) == {}
    assert seconds(tally, QUEUE_AGE) == {OURS: 7.0}, "of the oldest one"
    assert counted(tally, QUEUE_FAILED) == {OURS: 1}
    assert counted(tally, QUEUE_ACKNOWLEDGED) == {OURS: 1}
    assert counted(tally, QUEUE_IN_HAND) == {OURS: 0}
    scene.pass_time(11)
    handled.wait(3)
    eventually(lambda: worker.in_hand == 0)
    assert counted(tally, QUEUE_REDELIVERED) == {OURS: 1}
    assert counted(tally, QUEUE_EMPTY_RECEIVES) == {}
    scene.pass_time(2)
    eventually(lambda: OURS in counted(tally, QUEUE_EMPTY_RECEIVES))
    assert counted(tally, QUEUE_HOLDS_LOST) == {}


def test_calls_that_fail_are_counted_by_their_code(
    scene: QueueScene, held_up: Handled, exporter: Tallied, tally: Tally
) -> None:
    faults = {
        ("ReceiveQueueRecords", 1): Fault.error("ThrottlingException"),
        ("UpdateQueueRecordsVisibility", 1): Fault.error("ThrottlingException"),
        ("AcknowledgeQueueRecords", 1): Fault(
            "InternalFailureException", entries=frozenset({0}), status=200
        ),
    }

    def fault(call: Call) -> Fault | None:
        return faults.get((call.operation, call.ordinal))

    scene.put(b"one")
    scene.server.kinesis.faults = fault
    worker = scene.start(held_up, {"metrics": (exporter,)})
    held_up.wait(1)
    assert counted(tally, QUEUE_RECEIVES_FAILED) == {(*OURS, "ThrottlingException"): 1}

    def is_extended() -> bool:
        scene.pass_time(0.2)  # the lane's back-off
        return counted(tally, QUEUE_EXTENSIONS) == {OURS: 1}

    scene.pass_time(0.75 * VISIBILITY)
    eventually(is_extended)
    held_up.gate.set()

    def is_settled() -> bool:
        scene.pass_time(0.2)
        return worker.in_hand == 0

    eventually(is_settled)
    assert counted(tally, QUEUE_REFUSALS) == {
        (*OURS, "extend", "ThrottlingException"): 1,
        (*OURS, "acknowledge", "InternalFailureException"): 1,
    }
    assert counted(tally, QUEUE_ACKNOWLEDGED) == {OURS: 1}


def test_a_hold_that_ends_says_how_far_its_record_was(
    scene: QueueScene, held_up: Handled, exporter: Tallied, tally: Tally
) -> None:
    options = {"metrics": (exporter,), "extend": False, "time_limit": 29.0}
    scene.put(aggregate(b"first", b"second"))
    scene.start(held_up, options)
    held_up.wait(1)
    scene.pass_time(VISIBILITY)
    eventually(lambda: counted(tally, QUEUE_HOLDS_LOST) == {(*OURS, "running"): 1})
    assert counted(tally, QUEUE_ACKNOWLEDGED) == {}


def test_a_record_that_expired_before_its_handler_began_was_waiting(
    scene: QueueScene, held_up: Handled, exporter: Tallied, tally: Tally
) -> None:
    options = {"metrics": (exporter,), "extend": False, "time_limit": 29.0}
    scene.put(aggregate(b"first", b"second"))
    worker = scene.start(held_up, options)
    held_up.wait(1)
    eventually(lambda: worker._keeper._changed._waiters)  # type: ignore[attr-defined]
    scene.clock.advance((VISIBILITY + 1) * 1000)  # nobody has been told yet
    held_up.gate.set()
    eventually(lambda: counted(tally, QUEUE_HOLDS_LOST) == {(*OURS, "waiting"): 1})
    held_up.wait(2)
    assert held_up.data[:2] == [b"first", b"first"], "the second one had no handler"


def test_an_acknowledgement_that_comes_too_late_or_is_void_is_a_lost_hold(
    scene: QueueScene, handled: Handled, exporter: Tallied, tally: Tally
) -> None:
    options = {"metrics": (exporter,), "extend": False, "time_limit": 29.0}
    void = Fault("InvalidArgumentException", entries=frozenset({0}))
    scene.fail("AcknowledgeQueueRecords", lambda _: void)
    scene.put(b"void")
    scene.start(handled, options)
    handled.wait(1)
    eventually(lambda: counted(tally, QUEUE_HOLDS_LOST) == {(*OURS, "ended"): 1})
    scene.fail("AcknowledgeQueueRecords", lambda _: Fault.error("ThrottlingException"))
    scene.put(b"late")
    handled.wait(2)
    scene.pass_time(VISIBILITY)
    eventually(lambda: counted(tally, QUEUE_HOLDS_LOST).get((*OURS, "ended")) == 2)
    assert counted(tally, QUEUE_ACKNOWLEDGED) == {}


def test_an_acknowledgement_whose_answer_comes_behind_the_hold_is_no_lost_one(
    scene: QueueScene, handled: Handled, exporter: Tallied, tally: Tally
) -> None:
    sent = threading.Event()

    def late(_: Call) -> Fault:
        sent.set()
        return Fault.delay(700)  # it takes effect at once

    scene.fail("AcknowledgeQueueRecords", late)
    scene.put(b"one")
    options = {"metrics": (exporter,), "extend": False, "time_limit": 29.0}
    worker = scene.start(handled, options)
    assert sent.wait(PATIENCE)
    scene.pass_time(VISIBILITY + 1)
    eventually(lambda: worker.in_hand == 0)
    assert counted(tally, QUEUE_ACKNOWLEDGED) == {OURS: 1}
    assert counted(tally, QUEUE_HOLDS_LOST) == {}
