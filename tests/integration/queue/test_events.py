"""``on_event`` of a queue's application gets what its users act on, once, as the log does."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from sparkinesis.errors import AccessDeniedError
from sparkinesis.events import (
    BatchAction,
    DeadLetterRefused,
    DeadLetterStored,
    Event,
    HandlerFailed,
    HoldLost,
    ReceivingFailed,
    ReceivingRecovered,
    WorkerFailed,
)
from sparkinesis.local import Call, Fault
from sparkinesis.queue.record import QueueRecord
from sparkinesis.worker.on_error import DeadLetter, Retry, Skip, Stop
from tests.heard import Heard
from tests.integration.queue.scene import VISIBILITY, Handled, QueueScene
from tests.pace import eventually


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def fail(_: QueueRecord) -> None:
    raise ValueError("bad")


def logged(caplog: pytest.LogCaptureFixture) -> list[Event]:
    """The events of the log's lines."""
    found = [getattr(line, "sparkinesis_event", None) for line in caplog.records]
    return [event for event in found if event is not None]


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[type[Event]]:
    """The kinds of events whose lines show a traceback."""
    return [type(line.sparkinesis_event) for line in caplog.records if line.exc_info]  # type: ignore[attr-defined]


def test_a_failure_is_told_with_what_becomes_of_the_record(
    scene: QueueScene, handled: Handled, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Any] = []

    def target(failed: Any) -> None:
        asked.append(failed)
        if len(asked) == 1:
            raise OSError("full")

    handled.does = fail
    scene.put(b"bad")
    policy = Retry(attempts=2, base=1.0, then=DeadLetter(target))
    worker = scene.start(handled, {"on_event": heard}, on_error=policy)
    for times, seconds in ((1, 2), (2, 21)):
        handled.wait(times)
        eventually(lambda: worker.in_hand == 0)
        scene.pass_time(seconds)
    heard.wait_for(DeadLetterStored)
    worker.request_shutdown()
    scene.wait_for_end(worker)

    retry, gone, refused, again, stored = heard.events
    assert isinstance(retry, HandlerFailed)
    (name, place), record = (retry.queue, retry.place), handled.records[0].record_id
    assert (name, place) == ("orders", str(worker._settings.client.address))
    assert retry == HandlerFailed(name, place, record, 1, BatchAction.RETRY, 1, "ValueError: bad")
    letter = BatchAction.DEAD_LETTER
    assert gone == HandlerFailed(name, place, record, 2, letter, None, "ValueError: bad")
    assert isinstance(refused, DeadLetterRefused)
    assert (refused.record_id, refused.error) == (record, "OSError: full")
    assert refused.seconds is not None
    assert 10 <= refused.seconds <= 20
    assert again == HandlerFailed(name, place, record, 3, letter, None, "ValueError: bad")
    assert stored == DeadLetterStored(name, place, record)
    assert [one.receive_count for one in handled.records] == [1, 2, 3]
    assert asked[1].shard_id == record
    assert [(one.data, one.partition_key) for one in asked[1].batch.records] == [(b"bad", "k")]
    assert scene.calls("AcknowledgeQueueRecords") == 1, "once it is stored"
    assert logged(caplog) == heard.events
    assert tracebacks(caplog) == [HandlerFailed], "of the first delivery"


def test_what_is_skipped_is_told(scene: QueueScene, handled: Handled, heard: Heard) -> None:
    handled.does = fail
    scene.put(b"bad")
    scene.start(handled, {"on_event": heard}, on_error=Skip())
    (event,) = heard.wait_for(HandlerFailed)
    assert (event.action, event.seconds, event.line().level) == (
        BatchAction.SKIP,
        None,
        logging.ERROR,
    )
    scene.wait_for_calls("AcknowledgeQueueRecords", 1)


def test_an_application_that_stops_tells_the_record_and_the_error_before_its_end(
    scene: QueueScene, handled: Handled, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    handled.does = fail
    scene.put(b"bad")
    worker = scene.start(handled, {"on_event": heard}, on_error=Stop())
    handled.wait(1)
    with pytest.raises(ValueError, match="bad"):
        scene.wait_for_end(worker)
    failed, ended = heard.events
    assert isinstance(failed, HandlerFailed)
    assert (failed.action, failed.seconds) == (BatchAction.STOP, None)
    assert ended == WorkerFailed(worker.log_place.worker, "ValueError: bad")
    assert logged(caplog) == heard.events
    assert tracebacks(caplog) == [WorkerFailed]
    threads = [one.name for one in threading.enumerate()]
    assert f"{worker.log_place.application}-events" not in threads, "nothing comes after the end"


def test_a_mistake_in_the_program_stops_whatever_the_policy(
    scene: QueueScene, heard: Heard
) -> None:
    scene.put(b"one")
    scene.start(lambda record: [record], {"on_event": heard}, on_error=Skip())
    (ended,) = heard.wait_for(WorkerFailed)
    assert "A handler of one record returns nothing" in ended.error
    assert [event.action for event in heard.of(HandlerFailed)] == [BatchAction.STOP]


def test_an_error_of_the_service_that_ends_an_application_is_told_once(
    scene: QueueScene, handled: Handled, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    """Both calls are refused; the first refusal counts."""
    scene.put(b"one")
    scene.server.kinesis.faults = lambda call: (
        Fault.error("AccessDeniedException")
        if call.operation == "AcknowledgeQueueRecords"
        or (call.operation == "ReceiveQueueRecords" and call.ordinal > 1)
        else None
    )
    worker = scene.start(handled, {"on_event": heard})
    with pytest.raises(AccessDeniedError) as raised:
        scene.wait_for_end(worker)
    assert heard.of(WorkerFailed) == [WorkerFailed(worker.log_place.worker, str(raised.value))]
    assert logged(caplog) == heard.events


def test_a_lost_hold_is_told_with_the_state_of_its_record(
    scene: QueueScene, held_up: Handled, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    scene.put(b"slow")
    scene.fail("UpdateQueueRecordsVisibility", lambda _: Fault.error("ThrottlingException"))
    scene.start(held_up, {"on_event": heard})
    held_up.wait(1)
    scene.pass_time(VISIBILITY + 1)
    (event,) = heard.wait_for(HoldLost)
    record = held_up.records[0].record_id
    assert (event.queue, event.record_id, event.state) == ("orders", record, "running")
    assert logged(caplog) == [event]


@pytest.mark.parametrize(
    ("fault", "said", "may_hide"),
    [
        (Fault.error("ThrottlingException", "slow down"), "ThrottlingException: slow down", False),
        (Fault.dropped("before"), "Connection was closed before", True),
    ],
)
def test_receives_that_fail_are_told_once_and_their_mending(
    scene: QueueScene,
    handled: Handled,
    heard: Heard,
    caplog: pytest.LogCaptureFixture,
    *,
    fault: Fault,
    said: str,
    may_hide: bool,
) -> None:
    def first_three(call: Call) -> Fault | None:
        return fault if call.ordinal <= 3 else None

    scene.fail("ReceiveQueueRecords", first_three)
    scene.start(handled, {"on_event": heard})
    eventually(lambda: len(scene.server.kinesis.calls.select("ReceiveQueueRecords")) == 3)
    scene.clock.advance(5_000)
    scene.put(b"one")
    handled.wait(1)
    (mended,) = heard.wait_for(ReceivingRecovered)
    (failed,) = heard.of(ReceivingFailed)
    assert said in failed.error
    assert (failed.queue, failed.times, failed.may_hide) == ("orders", 1, may_hide)
    assert 0.1 <= failed.seconds <= 0.2
    assert mended.seconds == 5.0
    assert logged(caplog) == [failed, mended]
