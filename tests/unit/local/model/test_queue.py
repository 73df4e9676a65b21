"""What a queue keeps: as much as is in its hands. Whom it wakes: those who wait for that."""

from __future__ import annotations

import gc
import json

import pytest

from sparkinesis.local import LocalKinesis, ManualClock
from sparkinesis.local.clock import IdleUntil
from sparkinesis.local.kinesis import CallResult, PendingCall
from sparkinesis.local.model.queue import Queue as Model
from sparkinesis.local.model.queue import QueueLook
from tests.unit.local.calls import ARN, DAY, ON_DEMAND, Stream
from tests.unit.local.queueing import COMMITTED, Queue, letters, on_demand


@pytest.fixture
def stream(kinesis: LocalKinesis) -> Stream:
    return on_demand(kinesis)


@pytest.fixture
def queue(stream: Stream, kinesis: LocalKinesis) -> Queue:
    return Queue(kinesis)


def model(queue: Queue) -> Model:
    return queue.kinesis._regions["us-east-1"].queues[queue.arn.rpartition("/")[2]]


def fill(stream: Stream, count: int) -> None:
    entries = [{"Data": b"x", "PartitionKey": str(number)} for number in range(100)]
    for _ in range(count // 100):
        stream("PutRecords", Records=entries)


def test_what_was_not_received_costs_nothing(stream: Stream, queue: Queue) -> None:
    fill(stream, 1000)
    queue.receive(3)
    inside = model(queue)
    visible = map(len, inside._visible.values())
    assert (len(inside._held), *visible) == (3, 0, 0)
    assert len(inside._unread._next) == 4, "a position in each shard"


def test_what_is_acknowledged_leaves_nothing(stream: Stream, queue: Queue) -> None:
    fill(stream, 1000)
    waiting = queue.one(limit=1, VisibilityTimeoutSeconds=43_200)
    while records := queue.receive(VisibilityTimeoutSeconds=43_200):
        queue.hold(600, *records)
        queue.acknowledge(*records)
    inside = model(queue)
    assert len(inside._held) == 1
    assert len(inside._ends) < 100, "of holds that are over, though their time has not come"
    assert queue.acknowledge(waiting) == [None]


def test_a_hold_ends_at_its_time_whatever_else_has_ended(
    stream: Stream, queue: Queue, clock: ManualClock
) -> None:
    fill(stream, 300)
    short = [queue.one(limit=1, VisibilityTimeoutSeconds=second) for second in range(1, 6)]
    while records := queue.receive(VisibilityTimeoutSeconds=100):
        queue.acknowledge(*records)  # the ends of holds are put in order anew meanwhile
    for record in short:
        clock.advance(999)
        assert queue.receive() == []
        clock.advance(1)
        again = queue.one(VisibilityTimeoutSeconds=900)
        assert (again["RecordId"], again["ReceiveCount"]) == (record["RecordId"], 2)


def test_shards_that_are_gone_are_forgotten(kinesis: LocalKinesis, clock: ManualClock) -> None:
    stream = Stream(kinesis, shards=1)
    stream.put("a")
    stream.split()
    kinesis.call("UpdateStreamMode", StreamARN=ARN, **ON_DEMAND)
    queue = Queue(kinesis, start={"Type": "TRIM_HORIZON"})
    assert len(queue.receive()) == 1
    assert len(model(queue)._unread._next) == 3
    clock.advance(DAY + 2)
    assert queue.receive() == []
    gc.collect()
    assert len(model(queue)._unread._next) == 2


class Waiter:
    """A receive that waits, and how often it was woken."""

    def __init__(self, queue: Queue, *, dead: bool = False, seconds: int = 20) -> None:
        self.kinesis = queue.kinesis
        body = json.dumps({"QueueARN": queue.arn, "WaitTimeSeconds": seconds}).encode()
        operation = "ReceiveDeadLetterQueueRecords" if dead else "ReceiveQueueRecords"
        waiting = self.kinesis.serve(operation, body, may_wait=True).waiting
        assert waiting is not None
        assert waiting.poll is not None
        self.call: PendingCall = waiting
        self.woken = 0
        waiting.poll.alarm.wake = self._wake

    def _wake(self) -> None:
        self.woken += 1

    def until(self) -> int:
        """Wait; return until when."""
        step = self.kinesis.resume(self.call)
        assert isinstance(step, IdleUntil), step
        return step.until_ms

    def answer(self) -> CallResult:
        step = self.kinesis.resume(self.call)
        assert isinstance(step, CallResult), step
        self.kinesis.leave(self.call)
        return step


def test_a_poll_wakes_for_a_record_of_any_shard(stream: Stream, queue: Queue) -> None:
    for key in "abcdefgh":  # in several shards
        waiter = Waiter(queue)
        waiter.until()
        assert waiter.woken == 0
        stream.put("x", key=key)
        assert waiter.woken == 1
        assert b'"PartitionKey":"%b"' % key.encode() in waiter.answer().body
        woken = waiter.woken
        stream.put("y", key=key)
        queue.receive()
        assert waiter.woken == woken, "it has its answer"


def test_a_poll_wakes_when_its_time_is_over(queue: Queue, clock: ManualClock) -> None:
    waiter = Waiter(queue, seconds=7)
    assert waiter.until() == clock() + 7000
    clock.advance(6999)
    assert waiter.woken == 0
    clock.advance(1)
    assert waiter.woken == 1
    answer = waiter.answer()
    assert (answer.error, answer.body) == (None, b'{"QueueRecords":[]}')


def test_a_poll_wakes_when_a_hold_ends(stream: Stream, queue: Queue, clock: ManualClock) -> None:
    stream.put("a")
    queue.receive(VisibilityTimeoutSeconds=5)
    waiter, letters_ = Waiter(queue), Waiter(queue, dead=True)
    assert waiter.until() == letters_.until() == clock() + 5000
    clock.advance(5000)
    assert (waiter.woken, letters_.woken) == (1, 1)
    assert b'"ReceiveCount":2' in waiter.answer().body
    assert letters_.until() == clock() + 15_000, "its own time, before that of the hold"


def test_a_poll_learns_of_a_hold_that_began_after_it(
    stream: Stream, queue: Queue, clock: ManualClock
) -> None:
    waiter = Waiter(queue, dead=True)
    waiter.until()
    stream.put("a")
    assert waiter.woken == 0, "a new record is no dead letter"
    queue.receive(VisibilityTimeoutSeconds=5)
    assert waiter.woken == 1
    assert waiter.until() == clock() + 5000


def test_a_poll_wakes_for_a_release_and_a_restored_record(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    queue = Queue(kinesis, QueueAttributes=letters(2))
    stream.put("a")
    record = queue.one()
    waiter = Waiter(queue)
    waiter.until()
    queue.hold(0, record)
    assert waiter.woken == 1
    assert b'"ReceiveCount":2' in waiter.answer().body
    letters_ = Waiter(queue, dead=True)
    letters_.until()
    (held,) = model(queue)._held
    queue.hold(0, {"ReceiptHandle": held})
    assert letters_.woken == 1
    letters_.answer()
    waiter = Waiter(queue)
    waiter.until()
    (held,) = model(queue)._held
    queue.restore({"ReceiptHandle": held})
    assert waiter.woken == 1
    assert b'"ReceiveCount":1' in waiter.answer().body


def test_a_poll_sees_the_end_of_an_update(stream: Stream, queue: Queue, clock: ManualClock) -> None:
    stream.put("a")
    queue.hold(0, queue.one())
    queue.kinesis.stream_delay_ms = 1000
    waiter = Waiter(queue, dead=True)
    waiter.until()
    queue("UpdateQueue", QueueAttributes=letters(1))
    assert waiter.woken == 1
    assert waiter.until() == clock() + 1000
    clock.advance(1000)
    assert waiter.woken == 2
    assert b'"ReceiveCount":2' in waiter.answer().body


def test_a_poll_of_a_queue_that_is_deleted_ends(queue: Queue) -> None:
    waiter = Waiter(queue)
    waiter.until()
    queue("DeleteQueue")
    assert waiter.woken == 1
    assert waiter.answer().error == "ResourceNotFoundException"


def test_a_poll_whose_client_left_takes_nothing(stream: Stream, queue: Queue) -> None:
    waiter = Waiter(queue)
    waiter.until()
    queue.kinesis.leave(waiter.call)
    inside = model(queue)
    assert inside.polls == set()
    assert not any(shard._watchers for shard in inside.stream.shards)
    stream.put("a")
    assert waiter.woken == 0
    assert queue.one()["ReceiveCount"] == 1
    left, taken = queue.kinesis.calls.select("ReceiveQueueRecords")
    assert (left.error, left.records, taken.error, taken.records) == ("Dropped", 0, None, 1)


def test_of_two_polls_one_has_the_record(stream: Stream, queue: Queue) -> None:
    first, second = Waiter(queue), Waiter(queue)
    first.until()
    second.until()
    stream.put("a")
    assert (first.woken, second.woken) == (1, 1)
    assert b"ReceiptHandle" in second.answer().body
    first.until()
    (logged,) = queue.kinesis.calls.select("ReceiveQueueRecords")
    assert logged.records == 1, "one that waits is logged when it is over"


def test_a_poll_sees_the_children_of_a_shard(
    stream: Stream, queue: Queue, kinesis: LocalKinesis
) -> None:
    kinesis.call("UpdateAccountSettings", **COMMITTED)
    waiter = Waiter(queue)
    waiter.until()
    kinesis.call("UpdateStreamWarmThroughput", StreamName="s", WarmThroughputMiBps=9)
    waiter.until()
    woken = waiter.woken
    stream.put("a")
    assert waiter.woken == woken + 1
    assert b'"Data":"YQ=="' in waiter.answer().body


def test_a_look_says_what_a_receive_would_get_and_takes_nothing(
    stream: Stream, queue: Queue, clock: ManualClock
) -> None:
    def look() -> QueueLook:
        return queue.kinesis.look_at_queue(queue.arn)

    assert look() == QueueLook(is_waiting=False, polled=0, changes=0, next_end_ms=None, dead=())
    stream.put("a")
    assert look().is_waiting
    record = queue.one()
    assert look() == QueueLook(
        is_waiting=False, polled=0, changes=2, next_end_ms=clock() + 30_000, dead=()
    )
    clock.advance(29_999)
    assert not look().is_waiting
    clock.advance(1)
    assert look().is_waiting
    assert queue.one()["RecordId"] == record["RecordId"]
    clock.advance(30_000)
    assert look().is_waiting
    clock.advance(DAY)
    assert not look().is_waiting, "its retention has ended"
    stream.put("b")
    clock.advance(DAY + 1)
    assert not look().is_waiting, "also that of a record that nobody has received"


def test_a_look_says_what_receives_wait_for(
    stream: Stream, queue: Queue, clock: ManualClock
) -> None:
    def polled() -> int:
        return queue.kinesis.look_at_queue(queue.arn).polled

    waiters = [Waiter(queue, seconds=seconds) for seconds in (5, 10)]
    for waiter in (*waiters, Waiter(queue, dead=True)):
        waiter.until()
    assert polled() == 20, "those of dead letters do not count"
    clock.advance(5_000)
    assert polled() == 10, "the time of one is over"
    stream.put("a")
    assert isinstance(queue.kinesis.resume(waiters[1].call), CallResult)
    assert polled() == 0, "it has its answer, although its sender has not left"
    waiters[1] = Waiter(queue, seconds=10)
    waiters[1].until()
    assert polled() == 10
    queue.kinesis.end_receives(queue.arn)
    assert polled() == 0
    assert [waiter.answer().body for waiter in waiters] == [b'{"QueueRecords":[]}'] * 2


def test_a_look_says_which_records_are_dead_letters(
    stream: Stream, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    queue = Queue(kinesis, QueueAttributes=letters(1))
    stream.put("a")
    record = queue.one()
    assert kinesis.look_at_queue(queue.arn).dead == ()
    clock.advance(30_000)
    for _ in range(2):  # received as a dead letter, too
        seen = kinesis.look_at_queue(queue.arn)
        assert (seen.dead, seen.is_waiting) == ((record["RecordId"],), False)
        queue.receive(dead=True)
    clock.advance(DAY)
    assert kinesis.look_at_queue(queue.arn).dead == ()
