"""Records of queues: each is out for a time, comes again, and ends acknowledged or dead."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sparkinesis.local import Call, Fault, KinesisError, Limits, LocalKinesis, ManualClock
from sparkinesis.local.service_errors import ConnectionDroppedError
from tests.unit.local.calls import ARN, DAY, ON_DEMAND, Stream, data
from tests.unit.local.queueing import COMMITTED, Queue, letters, on_demand, text

GONE = "ResourceNotFoundException"
NO_HANDLE = "InvalidArgumentException"
EARLIEST = {"Type": "TRIM_HORIZON"}


@pytest.fixture
def stream(kinesis: LocalKinesis) -> Stream:
    return on_demand(kinesis)


@pytest.fixture
def queue(stream: Stream, kinesis: LocalKinesis) -> Queue:
    """A queue on the stream "s" with the defaults: 30 seconds, 6 receives."""
    return Queue(kinesis)


def put(stream: Stream, count: int) -> list[str]:
    """Put records into all shards, and return their data in order."""
    for number in range(count):
        stream.put(f"{number:03}", key=f"{number}")
    return [f"{number:03}" for number in range(count)]


# Receiving


def test_each_record_is_received_once(stream: Stream, queue: Queue) -> None:
    wanted = put(stream, 25)
    got = [queue.data() for _ in range(4)]
    assert [len(some) for some in got] == [10, 10, 5, 0]
    assert sorted(name for some in got for name in some) == wanted


def test_no_more_are_received_than_asked_for(stream: Stream, queue: Queue) -> None:
    put(stream, 9)
    assert [len(queue.receive(limit)) for limit in (1, 3, 4, 3)] == [1, 3, 4, 1]


def test_no_shard_has_to_wait_for_another(stream: Stream, queue: Queue) -> None:
    shards = {}
    for number in range(40):
        answer = stream("PutRecord", Data=str(number).encode(), PartitionKey=str(number))
        shards[str(number)] = answer["ShardId"]
    first = [shards[text(queue.one(limit=1))] for _ in range(4)]
    assert len({*first}) == 4, "of each shard one"


def test_a_record_is_told_without_its_place_in_the_stream(
    stream: Stream, queue: Queue, clock: ManualClock
) -> None:
    number = stream.put("a", key="ké")
    clock.advance(1500)
    record = queue.one()
    handle, identity = record.pop("ReceiptHandle"), record.pop("RecordId")
    assert record == {
        "Data": "YQ==",
        "PartitionKey": "ké",
        "ApproximateArrivalTimestamp": (clock() - 1500) / 1000,
        "FirstReceiveTimestamp": clock() / 1000,
        "ReceiveCount": 1,
    }
    assert 1 <= len(handle) <= 1024
    assert re.fullmatch("[a-z0-9]{1,64}", identity)
    assert number not in identity


def test_a_record_without_a_key_has_none(stream: Stream, kinesis: LocalKinesis) -> None:
    strategy = {"RecordDistributionStrategy": "AUTO"}
    kinesis.call("UpdateStreamRecordDistributionStrategy", StreamARN=ARN, **strategy)
    queue = Queue(kinesis)
    kinesis.call("PutRecord", StreamName="s", Data=b"a")
    assert "PartitionKey" not in queue.one()


def test_a_queue_does_not_see_shards(kinesis: LocalKinesis) -> None:
    stream = Stream(kinesis, shards=1)
    stream.put("before")
    stream.split()
    kinesis.call("UpdateStreamMode", StreamARN=ARN, **ON_DEMAND)
    whole, late = Queue(kinesis, "whole", start=EARLIEST), Queue(kinesis, "late")
    stream.put("between")
    kinesis.call("UpdateAccountSettings", **COMMITTED)
    kinesis.call("UpdateStreamWarmThroughput", StreamName="s", WarmThroughputMiBps=8)
    wanted = put(stream, 8)
    assert len(whole.data() + whole.data()) == 10
    assert late.data() == sorted(["between", *wanted])


# Visibility


def test_a_record_is_out_for_its_timeout_and_comes_again(
    stream: Stream, queue: Queue, clock: ManualClock
) -> None:
    stream.put("a")
    first, began = queue.one(), clock()
    clock.advance(29_999)
    assert queue.receive() == []
    clock.advance(1)
    again = queue.one()
    assert again["ReceiptHandle"] != first["ReceiptHandle"]
    assert again["RecordId"] == first["RecordId"]
    assert (again["ReceiveCount"], again["FirstReceiveTimestamp"]) == (2, began / 1000)
    assert queue.acknowledge(first) == [GONE], "its hold was over"
    assert queue.hold(60, first) == [GONE]
    assert queue.acknowledge(again) == [None]
    clock.advance(DAY // 2)
    assert queue.receive() == []


def test_a_handle_is_void_when_its_time_is_over_though_nobody_received(
    stream: Stream, queue: Queue, clock: ManualClock
) -> None:
    stream.put("a")
    record = queue.one()
    clock.advance(30_000)
    assert queue.acknowledge(record) == [GONE]
    assert queue.one()["ReceiveCount"] == 2


def test_a_receive_has_a_timeout_of_its_own(
    stream: Stream, queue: Queue, clock: ManualClock
) -> None:
    put(stream, 2)
    queue.one(limit=1, VisibilityTimeoutSeconds=5)
    queue.one()
    clock.advance(5000)
    assert queue.one()["ReceiveCount"] == 2
    queue("UpdateQueue", QueueAttributes={"VisibilityTimeoutSeconds": 100})
    clock.advance(25_000)
    assert queue.one()["ReceiveCount"] == 2, "the timeout of 30 seconds that it was received with"
    clock.advance(99_999)
    assert [record["ReceiveCount"] for record in queue.receive()] == [3]
    clock.advance(1)
    assert queue.one()["ReceiveCount"] == 3


def test_a_timeout_of_nothing_hides_nothing(stream: Stream, queue: Queue) -> None:
    put(stream, 3)
    assert len(queue.receive(VisibilityTimeoutSeconds=0)) == 3, "each once in one answer"
    assert [record["ReceiveCount"] for record in queue.receive()] == [2, 2, 2]


def test_a_hold_is_extended_from_the_call_on(
    stream: Stream, queue: Queue, clock: ManualClock
) -> None:
    stream.put("a")
    record = queue.one()
    clock.advance(20_000)
    assert queue.hold(30, record) == [None]
    clock.advance(29_999)
    assert queue.receive() == []
    assert queue.hold(5, record) == [None], "shorter"
    clock.advance(4999)
    assert queue.hold(43_200, record) == [None], "the longest"
    clock.advance(43_199_999)
    assert queue.acknowledge(record) == [None]


def test_a_released_record_comes_at_once(stream: Stream, queue: Queue) -> None:
    stream.put("a")
    record = queue.one()
    assert queue.hold(0, record) == [None]
    assert queue.hold(0, record) == [GONE]
    assert queue.one()["ReceiveCount"] == 2


# Acknowledging


def test_an_acknowledged_record_stays_in_the_stream_and_other_queues(
    stream: Stream, queue: Queue, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    other = Queue(kinesis, "other")
    shard = stream("PutRecord", Data=b"a", PartitionKey="k")["ShardId"]
    record = queue.one()
    theirs = other.one()
    assert theirs["RecordId"] == record["RecordId"]
    assert other.acknowledge(record) == [NO_HANDLE], "a handle is of one queue"
    assert queue.acknowledge(record) == [None]
    assert queue.acknowledge(record) == [GONE], "twice"
    clock.advance(30_000)
    assert queue.receive() == []
    assert other.one()["ReceiveCount"] == 2
    page = stream.get(stream.iterator(shard=shard))
    assert data(page) == ["a"]


def test_entries_fail_each_on_its_own(stream: Stream, queue: Queue) -> None:
    put(stream, 3)
    a, b, c = queue.receive()
    nonsense = {"ReceiptHandle": "nonsense"}
    queue.acknowledge(b)
    codes = queue.acknowledge(a, nonsense, b, c, a)
    assert codes == [None, NO_HANDLE, GONE, None, GONE], "a stands there twice"


def test_ids_differ_between_streams(kinesis: LocalKinesis) -> None:
    ids = set()
    for name in ("s", "t"):
        stream = on_demand(kinesis, name)
        queue = Queue(kinesis, name, stream=ARN.replace("/s", f"/{name}"))
        ids |= {stream.put("a"), queue.one()["RecordId"]}
    assert len(ids) == 3, "the sequence numbers are the same"


# Dead letters


def test_a_record_dies_when_its_last_hold_ends(
    stream: Stream, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    queue = Queue(kinesis, QueueAttributes=letters(2))
    put(stream, 2)
    queue.receive()
    clock.advance(30_000)
    dies, lives = queue.receive()
    assert queue.receive(dead=True) == [], "not before"
    assert queue.acknowledge(lives) == [None]
    clock.advance(30_000)
    assert queue.receive() == []
    letter = queue.one(dead=True)
    for name in ("RecordId", "Data", "PartitionKey", "FirstReceiveTimestamp"):
        assert letter[name] == dies[name]


def test_a_release_is_a_spent_receive(stream: Stream, queue: Queue) -> None:
    stream.put("a")
    for count in range(1, 7):
        record = queue.one()
        assert record["ReceiveCount"] == count
        queue.hold(0, record)
    assert queue.receive() == []
    assert len(queue.receive(dead=True)) == 1


def test_without_dead_letters_a_record_comes_for_ever(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    queue = Queue(kinesis, QueueAttributes=letters(None) | {"VisibilityTimeoutSeconds": 0})
    stream.put("a")
    assert [queue.one()["ReceiveCount"] for _ in range(50)] == [*range(1, 51)]
    assert queue.receive(dead=True) == []


@pytest.fixture
def dying(stream: Stream, kinesis: LocalKinesis) -> Queue:
    """A queue with three dead letters, which die of one receive."""
    queue = Queue(kinesis, QueueAttributes=letters(1))
    put(stream, 3)
    queue.hold(0, *queue.receive())
    return queue


def test_dead_letters_are_held_extended_and_acknowledged(dying: Queue, clock: ManualClock) -> None:
    a, b, c = dying.receive(dead=True)
    assert dying.receive(dead=True) == []
    assert dying.hold(100, a, dead=True) == [None]
    assert dying.acknowledge(b, dead=True) == [None]
    assert dying.acknowledge(b, dead=True) == [GONE]
    clock.advance(30_000)
    assert dying.data(dead=True) == [text(c)]
    clock.advance(70_000)
    assert dying.data(dead=True) == sorted([text(a), text(c)])
    assert dying.receive() == []


def test_a_dead_letter_is_none_of_the_queues_records(dying: Queue, stream: Stream) -> None:
    stream.put("alive")
    letter, alive = dying.receive(1, dead=True)[0], dying.one()
    assert dying.acknowledge(letter) == [GONE]
    assert dying.hold(0, letter) == [GONE]
    assert dying.acknowledge(alive, dead=True) == [GONE]
    assert dying.hold(0, alive, dead=True) == [GONE]
    assert dying.restore(alive) == [GONE]
    assert dying.restore({"ReceiptHandle": "nonsense"}) == [NO_HANDLE]
    assert dying.acknowledge(alive) == [None]
    assert dying.acknowledge(letter, dead=True) == [None]


def test_a_restored_record_has_all_its_receives_again(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    queue = Queue(kinesis, QueueAttributes=letters(2))
    stream.put("a")
    for _ in range(3):
        counts = []
        for _ in range(2):
            record = queue.one()
            counts.append(record["ReceiveCount"])
            queue.hold(0, record)
        assert counts == [1, 2]
        letter = queue.one(dead=True)
        assert queue.restore(letter) == [None]
        assert queue.restore(letter) == [GONE]
        assert queue.receive(dead=True) == []


def test_a_lower_count_makes_dead_letters_of_what_is_visible(stream: Stream, queue: Queue) -> None:
    put(stream, 2)
    a, b = queue.receive()
    queue.hold(0, a)
    queue("UpdateQueue", QueueAttributes=letters(1))
    assert queue.data(dead=True) == [text(a)]
    assert queue.acknowledge(b) == [None], "its hold goes on"
    queue("UpdateQueue", QueueAttributes=letters(None))
    assert queue.receive() == [], "the dead stay dead"


# Retention


def test_retention_ends_records_and_dead_letters_whatever_their_state(
    stream: Stream, dying: Queue, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    queue = Queue(kinesis, "other", start=EARLIEST)
    held, released, _ = (queue.one(limit=1) for _ in range(3))
    queue.hold(0, released)
    letter, *_ = dying.receive(1, dead=True)
    clock.advance(DAY - 1000)
    held, *_ = queue.receive(1)
    letter, *_ = dying.receive(1, dead=True)
    stream.put("new")
    clock.advance(1000)
    assert len(queue.receive(2)) == 2, "those that arrived a day ago are still there"
    clock.advance(1)
    assert queue.acknowledge(held) == [GONE]
    assert dying.restore(letter) == [GONE]
    assert queue.data() == ["new"]
    assert dying.receive(dead=True) == []
    assert dying.data() == ["new"]
    clock.advance(DAY)
    assert queue.receive() == []


# Limits


def test_a_queue_has_120_000_records_in_flight(
    stream: Stream, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    assert Limits().queue_in_flight == 120_000
    kinesis.limits = Limits(queue_in_flight=12)
    queue, other = Queue(kinesis), Queue(kinesis, "other")
    put(stream, 15)
    records = queue.receive() + queue.receive()
    assert len(records) == 12, "as many as there is room for"
    full = "ThrottlingException: Queue q .* has 12 records in flight"
    for dead in (False, True):
        with pytest.raises(KinesisError, match=full):
            queue.receive(dead=dead)
    assert len(other.receive()) == 10, "each queue has its own"
    queue.acknowledge(records[0])
    assert len(queue.receive()) == 1
    clock.advance(30_000)
    assert len(queue.receive()) == 10
    kinesis.limits = None
    assert len(queue.receive()) == 4


# Faults, and the log


def fail(kinesis: LocalKinesis, operation: str, fault: Fault) -> None:
    """Give the first call of an operation this fault."""
    kinesis.faults = lambda call: (
        fault if (call.operation, call.ordinal) == (operation, 1) else None
    )


def test_an_answer_of_a_receive_is_lost(
    stream: Stream, queue: Queue, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    stream.put("a")
    fail(kinesis, "ReceiveQueueRecords", Fault.dropped("after"))
    with pytest.raises(ConnectionDroppedError):
        queue.receive()
    assert queue.receive() == [], "nobody has it, and it is out"
    clock.advance(30_000)
    assert queue.one()["ReceiveCount"] == 2


@pytest.mark.parametrize("takes_effect", [False, True])
def test_a_receive_is_throttled(
    stream: Stream, queue: Queue, kinesis: LocalKinesis, *, takes_effect: bool
) -> None:
    stream.put("a")
    fault = Fault("ThrottlingException", takes_effect=takes_effect)
    fail(kinesis, "ReceiveQueueRecords", fault)
    with pytest.raises(KinesisError, match="ThrottlingException"):
        queue.receive()
    assert len(queue.receive()) == (0 if takes_effect else 1)


@pytest.mark.parametrize("takes_effect", [False, True])
def test_entries_fail_by_a_fault(
    stream: Stream, queue: Queue, kinesis: LocalKinesis, *, takes_effect: bool
) -> None:
    put(stream, 3)
    records = queue.receive()
    entries = frozenset({0, 2})
    fault = Fault("InternalFailureException", entries=entries, takes_effect=takes_effect)
    fail(kinesis, "AcknowledgeQueueRecords", fault)
    failed = "InternalFailureException"
    assert queue.acknowledge(*records) == [failed, None, failed]
    after = GONE if takes_effect else None
    assert queue.acknowledge(*records) == [after, GONE, after]


def test_an_acknowledgement_is_forgotten(
    stream: Stream, queue: Queue, kinesis: LocalKinesis
) -> None:
    stream.put("a")
    fail(kinesis, "AcknowledgeQueueRecords", Fault(forgets_acknowledgement=True))
    record = queue.one()
    assert queue.acknowledge(record) == [None]
    assert queue.acknowledge(record) == [GONE]
    again = queue.one()
    assert (again["RecordId"], again["ReceiveCount"]) == (record["RecordId"], 2)
    assert queue.acknowledge(again) == [None]
    assert queue.receive() == []


def test_records_come_in_the_reverse_order(
    stream: Stream, kinesis: LocalKinesis, queue: Queue
) -> None:
    for name in "abc":
        stream.put(name)
    fail(kinesis, "ReceiveQueueRecords", Fault(turns_order=True))
    assert [text(record) for record in queue.receive()] == ["c", "b", "a"]


def test_a_plan_and_the_log_see_the_stream_of_a_queue(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    seen: list[Call] = []
    kinesis.faults = seen.append
    queue = Queue(kinesis)
    stream.put("abc", key="kéy")
    queue.acknowledge(queue.one())
    with pytest.raises(KinesisError):
        kinesis.call("DescribeQueue", QueueARN=queue.arn + "x")
    kinesis.call("ListTagsForResource", ResourceARN=queue.arn)
    assert [(call.operation, call.stream) for call in seen] == [
        ("CreateQueue", "s"),
        ("PutRecord", "s"),
        ("ReceiveQueueRecords", "s"),
        ("AcknowledgeQueueRecords", "s"),
        ("DescribeQueue", None),
        ("ListTagsForResource", "s"),
    ]
    (logged,) = kinesis.calls.select("ReceiveQueueRecords", stream="s")
    assert (logged.records, logged.bytes, logged.shard, logged.error) == (1, 7, None, None)


def test_a_call_in_process_does_not_wait(queue: Queue) -> None:
    assert queue.receive(WaitTimeSeconds=20) == []


@pytest.mark.parametrize(
    "request_",
    [{"Limit": 11}, {"Limit": 0}, {"WaitTimeSeconds": 0}, {"WaitTimeSeconds": 21}],
)
def test_a_receive_has_bounds(queue: Queue, request_: dict[str, Any]) -> None:
    with pytest.raises(KinesisError, match="ValidationException"):
        queue("ReceiveQueueRecords", **request_)


def test_ten_entries_are_in_a_call(queue: Queue) -> None:
    for entries in ([], [{"ReceiptHandle": f"{number}"} for number in range(11)]):
        with pytest.raises(KinesisError, match=r"ValidationException.*'entries'"):
            queue("AcknowledgeQueueRecords", Entries=entries)
