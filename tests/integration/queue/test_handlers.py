"""Handlers: plain or ``async def``, for a record or a batch; by hand; with each policy."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkinesis.errors import OptionError, ProcessorError
from sparkinesis.local import Fault
from sparkinesis.metrics.health.liveness import SignOfLife, expect
from sparkinesis.queue.application import SupervisedQueue
from sparkinesis.queue.finding import NewQueue
from sparkinesis.queue.record import QueueRecord
from sparkinesis.sinks import FailedRecords
from sparkinesis.worker.on_error import DeadLetter, Skip, Stop
from tests.integration.queue.scene import REGION, VISIBILITY, Handled, QueueScene
from tests.integration.queue.test_pits import aggregate, worker_looked
from tests.pace import eventually


def wait_until_settled(scene: QueueScene) -> None:
    (worker,) = scene.workers
    eventually(lambda: worker.in_hand == 0)


def many_records(scene: QueueScene, handled: Handled) -> set[int]:
    """Put 400 records; return how many receives run, as the handler sees it for each of them."""
    receives: set[int] = set()
    handled.does = lambda _: receives.add(len(scene.workers[0]._receiving._threads))
    scene.server.kinesis.limits = None
    scene.put(*[b"%d" % number for number in range(400)])
    return receives


def test_full_answers_have_further_receives_run_and_an_idle_queue_has_one(
    scene: QueueScene, handled: Handled
) -> None:
    receives = many_records(scene, handled)
    scene.start(handled, concurrency=100)
    handled.wait(400)
    assert max(receives) > 1
    (queue,) = scene.server.kinesis._regions[REGION].queues.values()

    def is_single() -> bool:
        scene.pass_time(1)
        return len(queue.polls) == 1 and len(scene.workers[0]._receiving._threads) == 1

    eventually(is_single)


def test_after_a_receive_that_fails_there_is_a_single_one(
    scene: QueueScene, handled: Handled
) -> None:
    """Eight that back off each on its own would call eight times as often."""
    receives = many_records(scene, handled)
    throttled = Fault.error("ThrottlingException")
    scene.fail("ReceiveQueueRecords", lambda call: throttled if call.ordinal > 20 else None)
    worker = scene.start(handled, concurrency=100)
    handled.wait(100)
    assert max(receives) > 1
    eventually(lambda: len(worker._receiving._threads) == 1)


def test_a_record_says_where_it_comes_from(scene: QueueScene, handled: Handled) -> None:
    scene.put(b"one")
    scene.start(handled)
    handled.wait(1)
    (record,) = handled.records
    assert (record.partition_key, record.receive_count, record.is_held) == ("k", 1, True)
    arrived = record.approximate_arrival_timestamp
    assert arrived is not None
    assert arrived.timestamp() == scene.clock() / 1000
    assert record.first_received == arrived
    assert record.record_id.isalnum()


def test_coroutines_run_at_the_same_time(scene: QueueScene) -> None:
    met: list[asyncio.Event] = []
    together: set[bytes] = set()
    done = threading.Semaphore(0)

    async def handle(record: QueueRecord) -> None:
        if not met:
            met.append(asyncio.Event())
        together.add(record.data)
        if len(together) == 3:
            met[0].set()
        await met[0].wait()
        done.release()

    scene.put(b"one", b"two", b"three")
    scene.start(handle, concurrency=3)
    for _ in range(3):
        assert done.acquire(timeout=60)
    wait_until_settled(scene)
    assert scene.calls("AcknowledgeQueueRecords") >= 1


@dataclass
class Hanging:
    """A coroutine that ends only if it is cancelled."""

    began: threading.Event = field(default_factory=threading.Event)
    cancelled: threading.Event = field(default_factory=threading.Event)

    async def handle(self, _: QueueRecord) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def test_a_coroutine_whose_hold_is_lost_is_cancelled(scene: QueueScene) -> None:
    hanging = Hanging()
    scene.put(b"slow")
    scene.start(hanging.handle, {"extend": False, "time_limit": 29.0})
    assert hanging.began.wait(60)
    scene.pass_time(VISIBILITY)
    assert hanging.cancelled.wait(60)
    assert scene.calls("AcknowledgeQueueRecords") == 0


def test_a_coroutine_is_cancelled_behind_the_time_limit(scene: QueueScene) -> None:
    hanging = Hanging()
    scene.put(b"slow")
    scene.start(hanging.handle, {"time_limit": 40.0})
    assert hanging.began.wait(60)
    scene.pass_time(0.75 * VISIBILITY)
    scene.wait_for_calls("UpdateQueueRecordsVisibility", 1)
    eventually(lambda: worker_looked(scene))
    scene.pass_time(0.75 * VISIBILITY)
    eventually(lambda: worker_looked(scene))
    assert not hanging.cancelled.is_set()
    scene.pass_time(10)
    assert hanging.cancelled.wait(60)


def test_a_forced_shutdown_cancels_coroutines(scene: QueueScene) -> None:
    hanging = Hanging()
    scene.put(b"slow")
    worker = scene.start(hanging.handle)
    assert hanging.began.wait(60)
    assert not worker.shutdown(0.0)
    assert hanging.cancelled.wait(60)


def test_a_batch_of_a_coroutine_is_cancelled_if_one_of_its_holds_is_lost(
    scene: QueueScene,
) -> None:
    """The other one is released at once: its handler did not fail."""
    batches: list[list[QueueRecord]] = []
    cancelled = threading.Event()

    async def handle(records: list[QueueRecord]) -> None:
        batches.append(records)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    scene.put(b"one", b"two")
    worker = scene.start(handle, batch_size=2)
    eventually(lambda: batches)
    # As if another process had it, and were done.
    entry = {"ReceiptHandle": batches[0][1]._held.handle}
    scene.kinesis.acknowledge_queue_records(QueueARN=scene.arn, Entries=[entry])
    scene.pass_time(0.75 * VISIBILITY)
    assert cancelled.wait(60)
    eventually(lambda: len(batches) == 2)
    ((again,),) = batches[1:]
    assert (again.data, again.receive_count) == (batches[0][0].data, 2)
    assert worker.failures() == ()


def test_a_coroutine_that_cancels_itself_has_failed(scene: QueueScene) -> None:
    async def handle(_: QueueRecord) -> None:
        raise asyncio.CancelledError

    scene.put(b"one")
    worker = scene.start(handle, on_error=Skip())
    scene.wait_for_calls("AcknowledgeQueueRecords", 1)
    assert [failure.count for failure in worker.failures()] == [1]


def test_a_batch_names_the_records_that_failed(scene: QueueScene) -> None:
    batches: list[list[bytes]] = []
    changed = threading.Condition()

    def handle(records: list[QueueRecord]) -> list[QueueRecord]:
        with changed:
            batches.append([record.data for record in records])
            changed.notify_all()
        return [one for one in records if one.data == b"bad" and one.receive_count == 1]

    scene.put(b"good", b"bad", b"fine")
    worker = scene.start(handle, batch_size=10)
    with changed:
        assert changed.wait_for(lambda: len(batches) == 1, 60)
    wait_until_settled(scene)
    assert worker.records_total() == 2
    scene.pass_time(11)
    with changed:
        assert changed.wait_for(lambda: len(batches) == 2, 60)
    assert [sorted(batch) for batch in batches] == [[b"bad", b"fine", b"good"], [b"bad"]]


def test_a_batch_that_raises_comes_again_whole(scene: QueueScene) -> None:
    counts: list[list[int]] = []

    def handle(records: list[QueueRecord]) -> None:
        counts.append([record.receive_count for record in records])
        if len(counts) == 1:
            raise ValueError("none of them")

    scene.put(b"one", b"two")
    scene.start(handle, batch_size=10)
    eventually(lambda: len(counts) == 1)
    wait_until_settled(scene)
    scene.pass_time(11)
    eventually(lambda: len(counts) == 2)
    assert counts == [[1, 1], [2, 2]]


def test_decode_makes_a_value_and_its_error_is_the_records(
    scene: QueueScene, handled: Handled
) -> None:
    letters: list[FailedRecords] = []
    scene.put(b'{"n": 1}', b"{")
    scene.start(
        handled,
        decode=json.loads,
        concurrency=2,
        on_error=DeadLetter(letters.append),
    )
    handled.wait(1)
    wait_until_settled(scene)
    assert [record.value for record in handled.records] == [{"n": 1}]
    (letter,) = letters
    assert isinstance(letter.error, json.JSONDecodeError)
    assert [record.data for record in letter.batch.records] == [b"{"]


def test_by_hand(scene: QueueScene, handled: Handled) -> None:
    def settle(record: QueueRecord) -> None:
        if record.data == b"ack":
            assert record.ack()
            assert not record.release(), "it is settled already"
            raise ValueError("after it was acknowledged")
        if record.data == b"later":
            assert record.retry_in(99.5)
        else:
            assert record.release()

    handled.does = settle
    scene.put(b"ack", b"later")
    worker = scene.start(handled, concurrency=2)
    handled.wait(2)
    wait_until_settled(scene)
    assert worker.failures() == (), "what it settled itself has not failed"
    scene.pass_time(99)
    assert not scene.receive()
    assert len(handled.data) == 2
    scene.pass_time(1)
    handled.wait(3)
    assert (handled.data[2], handled.records[2].receive_count) == (b"later", 2)


def test_retry_in_takes_what_the_service_takes(scene: QueueScene, handled: Handled) -> None:
    errors: list[str] = []

    def settle(record: QueueRecord) -> None:
        with pytest.raises(OptionError) as raised:
            record.retry_in(43_201)
        errors.append(str(raised.value))

    handled.does = settle
    scene.put(b"one")
    scene.start(handled)
    wait_for(errors)
    assert "takes 0 to 43,200" in errors[0]


def wait_for(found: list[Any]) -> None:
    eventually(lambda: found)


def fail(_: QueueRecord) -> None:
    raise ValueError("bad")


def test_a_dead_letter_of_an_aggregate_is_the_user_record(
    scene: QueueScene, handled: Handled
) -> None:
    letters: list[FailedRecords] = []

    def second_fails(record: QueueRecord) -> None:
        if record.data == b"second":
            raise ValueError("bad")

    handled.does = second_fails
    scene.put(aggregate(b"first", b"second", b"third"))
    scene.start(handled, on_error=DeadLetter(letters.append))
    handled.wait(3)
    wait_until_settled(scene)
    (letter,) = letters
    assert [record.data for record in letter.batch.records] == [b"second"]
    assert scene.calls("AcknowledgeQueueRecords") == 1


def test_stop_ends_the_application_and_releases_the_record(
    scene: QueueScene, handled: Handled
) -> None:
    def fail_while_polled(record: QueueRecord) -> None:
        eventually(lambda: scene.polls)
        fail(record)

    handled.does = fail_while_polled
    scene.put(b"bad")
    worker = scene.start(handled, on_error=Stop(), concurrency=2)
    handled.wait(1)
    with pytest.raises(ValueError, match="bad"):
        scene.wait_for_end(worker)
    assert [one["ReceiveCount"] for one in scene.receive()] == [2], "its own poll did not get it"


def test_what_fails_behind_the_last_receive_is_released_as_well(scene: QueueScene) -> None:
    second_began, gate = threading.Event(), threading.Event()

    def handle(record: QueueRecord) -> None:
        if record.data == b"second":
            second_began.set()
            assert gate.wait(60)
        assert second_began.wait(60)
        raise ValueError(record.data.decode())

    scene.put(b"first", b"second")
    worker = scene.start(handle, {"shutdown_timeout": 1_000.0}, on_error=Stop(), concurrency=2)
    eventually(lambda: worker.failure)
    scene.pass_time(1)
    eventually(lambda: worker.in_hand == 1)
    gate.set()
    with pytest.raises(ValueError, match="first"):
        scene.wait_for_end(worker)
    assert worker.was_graceful
    assert [one["ReceiveCount"] for one in scene.receive()] == [2, 2]


def test_the_first_error_is_the_one_that_is_raised(scene: QueueScene) -> None:
    both = threading.Barrier(2)
    second_raised = threading.Event()

    def handle(record: QueueRecord) -> None:
        both.wait(60)
        if record.data == b"second":
            eventually(lambda: scene.workers and scene.workers[0].failure)
            second_raised.set()
        raise ValueError(record.data.decode())

    scene.put(b"first", b"second")
    worker = scene.start(handle, on_error=Stop(), concurrency=2)
    assert second_raised.wait(60)
    eventually(lambda: worker._places.taken == 0)
    with pytest.raises(ValueError, match="first"):
        scene.wait_for_end(worker)
    assert worker.why_not_live() == (), "threads that have ended are no news"


def test_a_supervisor_that_looks_seldom_sees_a_thread_that_stands_still(
    scene: QueueScene, handled: Handled
) -> None:
    """Between two looks the process has run: that time counts, and not the usual half second."""
    worker = SupervisedQueue.of(scene.application(handled)).worker("w", None, 5.0)
    now, gate = [0.0], threading.Event()
    worker._live._clock = clock = lambda: now[0]
    thread = threading.Thread(target=gate.wait, daemon=True)
    thread.start()
    worker._parts.add("the thread 'still'", thread, SignOfLife(clock), lambda: False)
    for now[0] in (100.0, 105.0):
        worker.look_at_health()
    gate.set()
    (found,) = worker.why_not_live()
    assert found.startswith("the thread 'still' stands still")


def test_a_handler_gives_no_sign_of_life_of_the_receive_that_brought_its_record(
    scene: QueueScene, handled: Handled
) -> None:
    """Calls that a handler makes may announce a silence, of their own thread."""
    due: list[float] = []

    def announce(_: QueueRecord) -> None:
        eventually(lambda: scene.polls)
        expect(10_000.0)
        (worker,) = scene.workers
        due.extend(part.due for part in worker._parts.now() if "receive" in part.name)

    handled.does = announce
    scene.put(b"one")
    scene.start(handled, concurrency=2)
    wait_for(due)
    assert due[0] < scene.clock() / 1000 + 1_000.0


def test_a_mistake_in_the_program_spends_one_delivery(scene: QueueScene) -> None:
    def handle(record: QueueRecord) -> Any:
        return (each for each in [record])

    scene.put(b"one")
    worker = scene.start(handle, on_error=Skip())
    eventually(lambda: worker.failure)
    with pytest.raises(ProcessorError, match="a generator"):
        scene.wait_for_end(worker)
    assert [one["ReceiveCount"] for one in scene.receive()] == [2]


def test_an_error_in_what_a_batch_returns_ends_the_application(scene: QueueScene) -> None:
    class Broken:
        def __iter__(self) -> Iterator[QueueRecord]:
            raise ValueError("bad")

    scene.put(b"one")
    worker = scene.start(lambda _: Broken(), on_error=Skip(), batch_size=1)
    eventually(lambda: worker.failure)
    with pytest.raises(ValueError, match="bad"):
        scene.wait_for_end(worker)


def test_a_queue_is_made_and_found_by_its_name(scene: QueueScene, handled: Handled) -> None:
    scene.put(b"one")
    application = scene.application(handled)
    named = type(application)(
        "made-here",
        handled,
        region="eu-west-1",
        endpoint=scene.server.endpoint_url,
        create=NewQueue("s", starting_position="trim_horizon", visibility_timeout=7),
        options=application.options,
    )
    worker = named.worker().start()
    handled.wait(1)
    worker.request_shutdown(0.0)
    queues = scene.kinesis.list_queues()["QueueSummaries"]
    assert {one["QueueName"] for one in queues} == {"orders", "made-here"}
    scene.pass_time(5)
    worker.shutdown(0.0)


def test_a_visibility_timeout_that_is_too_short_is_refused(
    scene: QueueScene, handled: Handled
) -> None:
    with pytest.raises(
        OptionError, match="held for 30 s, of which the receive may wait 1, and extend is off"
    ):
        scene.application(handled, {"extend": False, "time_limit": 60.0}).worker()
    scene.kinesis.update_queue(QueueARN=scene.arn, QueueAttributes={"VisibilityTimeoutSeconds": 0})
    with pytest.raises(OptionError, match="has a visibility timeout of 0 s"):
        scene.application(handled).worker()
