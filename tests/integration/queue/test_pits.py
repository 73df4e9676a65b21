"""The ten pits of receivers that are written by hand: each test fails where the pit is dug."""

from __future__ import annotations

import json
import threading

import pytest

from sparkinesis.errors import AccessDeniedError
from sparkinesis.local import Call, Fault
from sparkinesis.queue.record import QueueRecord
from sparkinesis.stream.kpl import pack
from sparkinesis.worker.on_error import Skip
from tests.integration.queue.scene import VISIBILITY, Handled, QueueScene
from tests.journal import PATIENCE
from tests.pace import eventually


def test_1_no_more_is_received_than_there_are_free_handlers(
    scene: QueueScene, held_up: Handled
) -> None:
    scene.put(*[b"%d" % number for number in range(10)])
    worker = scene.start(held_up, concurrency=3)
    held_up.wait(3)
    assert worker.in_hand == 3
    assert len(scene.receive()) == 7, "the others are left to other receivers"


def test_1_a_record_that_no_handler_gets_says_nothing_of_how_quick_they_are(
    scene: QueueScene, held_up: Handled
) -> None:
    """Else ten records would wait in hand for a handler that is slow."""
    scene.put(b"{")
    scene.start(held_up, decode=json.loads, on_error=Skip())
    scene.wait_for_calls("AcknowledgeQueueRecords", 1)
    waiting: list[int] = []

    def polls() -> list[int]:
        waiting[:] = [poll.limit for poll in scene.polls if not poll.is_answered]
        return waiting

    eventually(polls)
    assert waiting == [1]


def test_2_records_that_wait_are_extended_like_those_that_run(
    scene: QueueScene, held_up: Handled
) -> None:
    scene.put(aggregate(b"runs", b"waits"), b"runs too")
    scene.start(held_up, concurrency=2)
    held_up.wait(2)
    for _ in range(8):
        before = scene.calls("UpdateQueueRecordsVisibility")
        scene.pass_time(0.75 * VISIBILITY)
        scene.wait_for_calls("UpdateQueueRecordsVisibility", before + 1)
    eventually(lambda: all(record.is_held for record in held_up.records))
    assert not scene.receive(), "no other receiver gets one of them"


def test_3_a_hold_that_was_lost_is_never_acknowledged(scene: QueueScene, held_up: Handled) -> None:
    scene.put(b"slow")
    scene.fail("UpdateQueueRecordsVisibility", lambda _: Fault.error("ThrottlingException"))
    worker = scene.start(held_up)
    held_up.wait(1)
    scene.pass_time(VISIBILITY + 1)
    eventually(lambda: not held_up.records[0].is_held)
    (again,) = scene.receive()
    assert again["ReceiveCount"] == 2
    held_up.gate.set()
    eventually(lambda: worker.in_hand == 0)
    scene.pass_time(1)
    assert scene.calls("AcknowledgeQueueRecords") == 0
    assert not held_up.records[0].ack(), "told, not believed"


def test_3_the_clock_says_so_before_any_call(scene: QueueScene, held_up: Handled) -> None:
    """A process that was suspended wakes up: its handler returns at once, and nothing is sent."""
    scene.put(b"slow")
    scene.fail(
        "ReceiveQueueRecords",
        lambda call: Fault.error("ThrottlingException") if call.ordinal > 1 else None,
    )
    worker = scene.start(held_up)
    held_up.wait(1)
    scene.clock.advance((VISIBILITY + 1) * 1000)  # nobody has been told yet
    held_up.gate.set()
    eventually(lambda: worker.in_hand == 0)
    assert scene.calls("AcknowledgeQueueRecords") == 0


def test_4_entries_that_failed_are_acknowledged_again(scene: QueueScene, handled: Handled) -> None:
    scene.put(b"one")

    def first_two(call: Call) -> Fault | None:
        return Fault("ThrottlingException", entries=frozenset({0})) if call.ordinal <= 2 else None

    scene.fail("AcknowledgeQueueRecords", first_two)
    worker = scene.start(handled)
    handled.wait(1)

    def moves() -> bool:
        scene.pass_time(0.2)  # the lane's back-off
        return worker.in_hand == 0

    eventually(moves)
    assert scene.calls("AcknowledgeQueueRecords") == 3
    scene.pass_time(VISIBILITY)
    assert not scene.receive(), "it is acknowledged"


def test_4_an_acknowledgement_whose_answer_was_lost_is_no_lost_hold(
    scene: QueueScene, handled: Handled, caplog: pytest.LogCaptureFixture
) -> None:
    """It is made again, and the service says that the handle is void: the first one had it."""
    scene.put(b"one")
    scene.fail(
        "AcknowledgeQueueRecords",
        lambda call: Fault.dropped("after") if call.ordinal == 1 else None,
    )
    worker = scene.start(handled)
    handled.wait(1)

    def moves() -> bool:
        scene.pass_time(0.2)  # the lane's back-off
        return worker.in_hand == 0

    eventually(moves)
    assert len(scene.server.kinesis.calls.select("AcknowledgeQueueRecords")) == 2
    assert "The hold of record" not in caplog.text


def test_4_an_entry_that_cannot_succeed_is_not_tried_again(
    scene: QueueScene, handled: Handled
) -> None:
    scene.put(b"one")
    void = Fault("InvalidArgumentException", entries=frozenset({0}))
    scene.fail("AcknowledgeQueueRecords", lambda _: void)
    worker = scene.start(handled)
    handled.wait(1)
    eventually(lambda: worker.in_hand == 0)
    scene.pass_time(5)
    assert scene.calls("AcknowledgeQueueRecords") == 1


@pytest.mark.parametrize("operation", ["ReceiveQueueRecords", "AcknowledgeQueueRecords"])
def test_4_a_call_that_is_not_allowed_ends_the_worker(
    scene: QueueScene, handled: Handled, operation: str
) -> None:
    scene.put(b"one")
    scene.fail(operation, lambda _: Fault.error("AccessDeniedException"))
    worker = scene.start(handled)
    with pytest.raises(AccessDeniedError, match=operation):
        scene.wait_for_end(worker)


def test_5_a_shutdown_finishes_what_runs_and_returns_what_waits(
    scene: QueueScene, held_up: Handled
) -> None:
    scene.put(b"one", b"two")
    worker = scene.start(held_up)
    held_up.wait(1)
    worker.request_shutdown()
    held_up.gate.set()
    scene.wait_for_end(worker)
    assert worker.was_graceful
    assert held_up.data == [b"one"], "nothing has begun after the request"
    (left,) = scene.receive()
    assert (left["ReceiveCount"], left["PartitionKey"]) == (1, "k"), "no delivery was spent"


def test_5_what_a_forced_shutdown_leaves_is_visible_at_once(
    scene: QueueScene, held_up: Handled
) -> None:
    scene.put(b"slow")
    worker = scene.start(held_up)
    held_up.wait(1)
    worker.request_shutdown()
    assert not worker.shutdown(0.0), "the second request shortens the time of the first"
    assert not held_up.records[0].is_held, "its handler is told"
    (again,) = scene.receive()
    assert again["ReceiveCount"] == 2


def test_5_a_handler_that_ends_after_a_forced_release_settles_nothing_again(
    scene: QueueScene, held_up: Handled
) -> None:
    scene.put(b"slow")
    scene.fail("UpdateQueueRecordsVisibility", lambda _: Fault.error("ThrottlingException"))
    worker = scene.start(held_up)
    held_up.wait(1)
    worker.request_shutdown(0.0)
    eventually(lambda: worker._keeper._settling == 1)
    held_up.gate.set()
    eventually(lambda: worker._places.taken == 0)
    scene.wait_for_end(worker)
    assert scene.calls("AcknowledgeQueueRecords") == 0


def test_5_what_waits_is_released_once_no_receive_of_ours_can_get_it(scene: QueueScene) -> None:
    """That would spend another delivery."""
    began, gate = threading.Event(), threading.Event()

    def handle(_: list[QueueRecord]) -> None:
        began.set()
        assert gate.wait(PATIENCE)

    scene.put(b"runs")
    worker = scene.start(handle, batch_size=10)
    assert began.wait(PATIENCE)
    scene.put(b"waits")
    eventually(lambda: worker.in_hand == 2 and scene.polls)
    worker.request_shutdown()
    eventually(lambda: worker._handling._left)
    gate.set()
    scene.wait_for_end(worker)
    assert worker.was_graceful
    (left,) = scene.receive()
    assert (left["Data"], left["ReceiveCount"]) == ("d2FpdHM=", 2)


def test_5_what_the_last_receive_brings_is_released(scene: QueueScene, handled: Handled) -> None:
    worker = scene.start(handled)
    eventually(lambda: scene.polls)
    worker.request_shutdown()
    assert worker._ending.seconds_left() == 1 + 30, "wait_time and shutdown_timeout"
    scene.put(b"late")
    scene.wait_for_end(worker)
    assert worker.was_graceful
    assert handled.data == []
    assert [one["ReceiveCount"] for one in scene.receive()] == [2]


def test_5_a_shutdown_at_once_is_graceful_if_nothing_is_in_hand(
    scene: QueueScene, handled: Handled
) -> None:
    scene.fail("ReceiveQueueRecords", lambda _: Fault.error("ThrottlingException"))
    worker = scene.start(handled)
    eventually(lambda: scene.server.kinesis.calls.select("ReceiveQueueRecords"))
    eventually(lambda: worker._places.taken == 0)
    assert worker.shutdown(0.0)


def test_5_a_later_request_gives_no_more_time(scene: QueueScene, held_up: Handled) -> None:
    scene.put(b"slow")
    worker = scene.start(held_up)
    held_up.wait(1)
    worker.request_shutdown(0.0)
    worker.request_shutdown()
    assert worker._ending.ended.wait(PATIENCE), "no time passes here"
    assert not worker.was_graceful


def test_6_a_receive_whose_answer_is_lost_is_not_made_again_at_once(
    scene: QueueScene, handled: Handled
) -> None:
    """Its records are out; a second request would take further ones without need."""
    scene.put(b"lost")
    scene.fail(
        "ReceiveQueueRecords", lambda call: Fault.dropped("after") if call.ordinal == 1 else None
    )
    scene.start(handled)
    eventually(lambda: len(scene.server.kinesis.calls.select("ReceiveQueueRecords")) >= 1)
    (first, *_) = scene.server.kinesis.calls.select("ReceiveQueueRecords")
    assert (first.error, first.records) == ("Dropped", 1)
    scene.pass_time(VISIBILITY + 1)
    handled.wait(1)
    assert handled.records[0].receive_count == 2


def test_6_a_receive_that_succeeds_ends_the_back_off(
    scene: QueueScene, handled: Handled, caplog: pytest.LogCaptureFixture
) -> None:
    scene.fail(
        "ReceiveQueueRecords",
        lambda call: Fault.error("ThrottlingException") if call.ordinal in {1, 3} else None,
    )
    scene.put(b"one")
    scene.start(handled)
    handled.wait(1)
    eventually(lambda: caplog.text.count("A receive from") == 2)


def test_7_a_poll_that_waits_holds_up_no_acknowledgement(
    scene: QueueScene, handled: Handled
) -> None:
    scene.put(b"one")
    worker = scene.start(handled, {"wait_time": 20}, concurrency=20)
    handled.wait(1)
    # The next poll waits: the clock stands still, so it never ends by itself.
    eventually(lambda: worker.in_hand == 0)
    assert scene.calls("AcknowledgeQueueRecords") == 1


def test_7_throttled_receives_slow_neither_acknowledgements_nor_extensions(
    scene: QueueScene, held_up: Handled
) -> None:
    scene.put(b"slow")
    scene.fail(
        "ReceiveQueueRecords",
        lambda call: Fault.error("ThrottlingException") if call.ordinal > 1 else None,
    )
    worker = scene.start(held_up, concurrency=2)
    held_up.wait(1)
    scene.pass_time(0.75 * VISIBILITY)
    scene.wait_for_calls("UpdateQueueRecordsVisibility", 1)
    held_up.gate.set()
    eventually(lambda: worker.in_hand == 0)
    assert scene.calls("AcknowledgeQueueRecords") == 1


def test_8_a_hold_is_counted_from_before_its_request(scene: QueueScene, held_up: Handled) -> None:
    """An answer that took 20 of 30 seconds leaves 10, not 30."""
    arrived = threading.Event()

    def slow(call: Call) -> Fault | None:
        if call.ordinal == 1:
            scene.clock.advance(20_000)  # after the call has begun, at the service's clock
            arrived.set()
        return None

    scene.fail("ReceiveQueueRecords", slow)
    scene.put(b"one")
    scene.start(held_up, {"extend": False, "time_limit": 29.0})
    held_up.wait(1)
    assert arrived.is_set()
    assert held_up.records[0].is_held
    scene.clock.advance(10_001)
    assert not held_up.records[0].is_held


def test_8_a_visibility_timeout_that_is_changed_meanwhile_shortens_no_hold(
    scene: QueueScene, held_up: Handled
) -> None:
    scene.start(held_up)
    scene.kinesis.update_queue(QueueARN=scene.arn, QueueAttributes={"VisibilityTimeoutSeconds": 5})
    scene.put(b"one")
    held_up.wait(1)
    scene.pass_time(VISIBILITY / 2 - 1)
    assert not scene.receive(), "another receiver gets it while its handler runs"


def test_8_a_record_that_is_returned_is_not_extended(scene: QueueScene, handled: Handled) -> None:
    """An extension that came after the return would lengthen the wait for the next delivery."""

    def fail(_: QueueRecord) -> None:
        raise ValueError("bad")

    handled.does = fail
    scene.put(b"bad")
    scene.fail("UpdateQueueRecordsVisibility", lambda _: Fault.error("ThrottlingException"))
    worker = scene.start(handled)
    handled.wait(1)
    eventually(lambda: worker._keeper._settling == 1)
    (held,) = worker._keeper._held
    scene.pass_time(0.8 * VISIBILITY)
    eventually(lambda: worker_looked(scene))
    assert not held.is_extending


def test_9_a_record_that_fails_comes_again_later_and_later_and_is_a_dead_letter_then(
    scene: QueueScene, handled: Handled
) -> None:
    def fail(_: QueueRecord) -> None:
        raise ValueError("bad")

    handled.does = fail
    scene.put(b"bad")
    worker = scene.start(handled)
    for count in range(1, 6):
        handled.wait(count)
        eventually(lambda: worker.in_hand == 0)
        least = 5 * 2 ** (count - 1)
        scene.pass_time(least - 1)
        assert len(handled.records) == count, "not before half of the back-off"
        while len(handled.records) == count:
            scene.pass_time(least / 4)
            with handled.changed:
                handled.changed.wait(0.1)
    eventually(lambda: worker.in_hand == 0)
    assert [record.receive_count for record in handled.records] == [1, 2, 3, 4, 5, 6]
    scene.pass_time(700)
    (letter,) = scene.server.kinesis.call(
        "ReceiveDeadLetterQueueRecords", region="eu-west-1", QueueARN=scene.arn
    )["QueueRecords"]
    assert letter["ReceiveCount"] >= 6


def test_9_a_handler_that_hangs_keeps_its_record_for_the_time_limit_only(
    scene: QueueScene, held_up: Handled
) -> None:
    scene.put(b"hangs")
    scene.start(held_up, {"time_limit": 100.0})
    held_up.wait(1)
    since = scene.clock()
    while held_up.records[0].is_held:
        before = scene.calls("UpdateQueueRecordsVisibility")
        scene.pass_time(0.75 * VISIBILITY)
        if scene.clock() - since < 100_000 - 1000 * VISIBILITY:
            scene.wait_for_calls("UpdateQueueRecordsVisibility", before + 1)
        else:
            eventually(lambda: worker_looked(scene))
    assert 100_000 <= scene.clock() - since <= 100_000 + 2000 * VISIBILITY
    scene.pass_time(VISIBILITY)
    assert [one["ReceiveCount"] for one in scene.receive()] == [2]


def worker_looked(scene: QueueScene) -> bool:
    """Whether the worker has nothing to do now but wait for time to pass."""
    (worker,) = scene.workers
    keeper = worker._keeper
    with keeper._changed:
        return keeper._pause(scene.clock() / 1000) > 0


def test_10_an_aggregate_is_acknowledged_when_all_of_its_records_are_done(
    scene: QueueScene, handled: Handled
) -> None:
    failing = True

    def second_fails(record: QueueRecord) -> None:
        if record.data == b"second" and failing:
            raise ValueError("bad")

    handled.does = second_fails
    scene.put(aggregate(b"first", b"second", b"third"))
    worker = scene.start(handled)
    handled.wait(3)
    eventually(lambda: worker.in_hand == 0)
    assert scene.calls("AcknowledgeQueueRecords") == 0
    failing = False
    scene.pass_time(11)
    handled.wait(6)
    scene.wait_for_calls("AcknowledgeQueueRecords", 1)
    assert handled.data == [b"first", b"second", b"third"] * 2
    eventually(lambda: worker._places._bytes <= 0)
    assert worker._places._bytes == 0, "its memory is given back once"


def test_10_bytes_bound_what_is_in_hand(scene: QueueScene, held_up: Handled) -> None:
    """Records of 900 kB, once one was seen: as many as fit into 2 MiB, and not ten."""
    scene.server.kinesis.limits = None
    scene.put(*[bytes([number]) * 900_000 for number in range(6)])
    worker = scene.start(held_up, {"max_held_bytes": 2 << 20}, concurrency=1, batch_size=None)
    held_up.wait(1)
    assert worker.in_hand == 1
    held_up.gate.set()
    held_up.wait(6)
    most = max(one.records for one in scene.server.kinesis.calls.select("ReceiveQueueRecords"))
    assert most <= 3


def test_10_acknowledgements_that_fail_bound_what_is_received(
    scene: QueueScene, handled: Handled
) -> None:
    scene.server.kinesis.limits = None
    scene.put(*[b"%d" % number for number in range(400)])
    scene.fail("AcknowledgeQueueRecords", lambda _: Fault.error("ThrottlingException"))
    worker = scene.start(handled, concurrency=20)
    eventually(lambda: not worker._keeper.has_room)
    assert worker.in_hand < 400


def aggregate(*datas: bytes) -> bytes:
    (blob,) = pack.aggregate([("k", None, data) for data in datas])
    return blob.data
