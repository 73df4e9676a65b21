"""The events of SubscribeToShard: content, times, sizes, and the end."""

from __future__ import annotations

import gc
import random
import weakref
from typing import Any

import msgspec
import pytest

from sparkinesis.local import Fault, KinesisError, Limits, LocalKinesis, ManualClock
from sparkinesis.local.clock import IdleUntil
from sparkinesis.local.encoding.codecs import JsonCodec
from sparkinesis.local.model.registered_consumer import PushedEvent
from tests.unit.local.calls import HOUR, SHARD_0, SHARD_1, Stream, data, numbers
from tests.unit.local.subscribing import Listener, register

SECOND = 1000
LIFE = 300 * SECOND
MIB = 1 << 20


@pytest.fixture
def app(stream: Stream) -> str:
    return register(stream)


@pytest.mark.parametrize(
    ("kind", "start", "expected"),
    [
        ("TRIM_HORIZON", "", "abcd"),
        ("LATEST", "", "d"),
        ("AT_SEQUENCE_NUMBER", "SequenceNumber", "bcd"),
        ("AFTER_SEQUENCE_NUMBER", "SequenceNumber", "cd"),
        ("AT_TIMESTAMP", "Timestamp", "cd"),
    ],
)
def test_it_begins_where_it_is_told_to(
    stream: Stream, clock: ManualClock, kind: str, start: str, expected: str
) -> None:
    app, begin, sent = register(stream), clock(), []
    for text in "abc":
        sent.append(stream.put(text))
        clock.advance(SECOND)
    values: dict[str, Any] = {"SequenceNumber": sent[1], "Timestamp": (begin + 1500) / 1000}
    named = {start: values[start]} if start else {}
    listener = Listener(stream.kinesis, app, kind, **named)
    stream.put("d")
    assert "".join(listener.all()) == expected


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({"Type": "AT_SEQUENCE_NUMBER"}, "InvalidArgument.* no StartingSequenceNumber"),
        (
            {"Type": "LATEST", "SequenceNumber": "1"},
            "InvalidArgument.* also a StartingSequenceNumber",
        ),
        (
            {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "1"},
            "InvalidArgument.* used in SubscribeToShard on shard shardId-000000000000",
        ),
        ({"Type": "AT_TIMESTAMP"}, "InvalidArgument.* timestampInMillis"),
        ({"Type": "AT_TIMESTAMP", "Timestamp": 1e308}, "InvalidArgument.* cannot be greater"),
        ({"Type": "SHARD_END"}, "ValidationException.* 'startingPosition.type'"),
        ({}, "ValidationException.* 'startingPosition.type'"),
        ({"Type": "LATEST", "Timestamp": "x"}, "SerializationException.* timestamp"),
    ],
)
def test_a_bad_start_is_refused(
    kinesis: LocalKinesis, app: str, start: dict[str, Any], said: str
) -> None:
    with pytest.raises(KinesisError, match=said):
        kinesis.subscribe(ConsumerARN=app, ShardId=SHARD_0, StartingPosition=start)


def test_what_is_not_there_is_not_found(kinesis: LocalKinesis, app: str) -> None:
    with pytest.raises(KinesisError, match="ResourceNotFoundException: Shard shardId-0000") as e:
        Listener(kinesis, app, shard=SHARD_1)
    assert "in stream s under account 123456789012 does not exist" in e.value.message
    gone = "ResourceNotFoundException: Consumer no, stream s under account 123456789012 not found."
    with pytest.raises(KinesisError, match=gone):
        Listener(kinesis, app.replace("/app:", "/no:"))
    with pytest.raises(KinesisError, match="Consumer app, stream s"):
        Listener(kinesis, app + "0")
    with pytest.raises(KinesisError, match="Stream t under account"):
        Listener(kinesis, app.replace("stream/s", "stream/t"))
    with pytest.raises(KinesisError, match="ValidationException"):
        Listener(kinesis, "app")


def test_it_has_no_one_answer(kinesis: LocalKinesis, app: str) -> None:
    latest: dict[str, Any] = {"ShardId": SHARD_0, "StartingPosition": {"Type": "LATEST"}}
    with pytest.raises(TypeError, match=r"use subscribe\(\)"):
        kinesis.call("SubscribeToShard", ConsumerARN=app, **latest)


def waiting(kinesis: LocalKinesis, app: str) -> Listener:
    """A listener that has had its first event, and waits for the next one."""
    listener = Listener(kinesis, app)
    listener.event()
    listener.waits_until()
    return listener


# Going on


@pytest.mark.parametrize("seed", range(10))
def test_a_subscription_goes_on_exactly_behind_any_event(
    kinesis: LocalKinesis, stream: Stream, app: str, clock: ManualClock, seed: int
) -> None:
    """The history includes empty events and trimmed records."""
    rng = random.Random(seed)
    sent: list[str] = []
    got: list[str] = []
    seen: list[int] = []
    listener = Listener(kinesis, app, rng.choice(("LATEST", "TRIM_HORIZON")))
    for _ in range(60):
        for _ in range(rng.choice((0, 0, 1, 3))):
            sent.append(f"{len(sent):03}")
            stream.put(sent[-1])
        while not isinstance(step := listener.step(), IdleUntil):
            if not isinstance(step, PushedEvent):
                number = str(seen[-1])
                listener = Listener(kinesis, app, "AFTER_SEQUENCE_NUMBER", SequenceNumber=number)
                continue
            got += data(msgspec.json.decode(JsonCodec().encode(step.page)))
            number = step.page.rest["ContinuationSequenceNumber"]
            seen.append(int(number))
            if rng.random() < 0.5:
                # A new subscription says at once that there is nothing: this ends some day.
                listener = Listener(kinesis, app, "AFTER_SEQUENCE_NUMBER", SequenceNumber=number)
        clock.advance(rng.choice((0, 1, 700, 6000, 6000, 13 * HOUR)))
    assert got == sent
    assert len(seen) > len(got) / 3
    assert seen == sorted(seen)


def test_an_empty_shard_says_so_at_once_and_every_5_seconds(
    kinesis: LocalKinesis, stream: Stream, app: str, clock: ManualClock
) -> None:
    listener = Listener(kinesis, app, "LATEST")
    begin = clock()
    assert listener.event()["Records"] == []
    assert listener.waits_until() == begin + 5 * SECOND
    clock.advance(3 * SECOND)
    stream.put("a")
    assert listener.data() == ["a"]
    clock.advance(5 * SECOND - 1)
    assert listener.waits_until() == clock() + 1
    clock.advance(1)
    empty = listener.event()
    assert (empty["Records"], empty["MillisBehindLatest"]) == ([], 0)
    listener.waits_until()


def test_millis_behind_latest_is_that_of_the_next_record(
    kinesis: LocalKinesis, stream: Stream, app: str, clock: ManualClock
) -> None:
    for text in ("a" * MIB, "b" * (MIB - 1)):
        stream("PutRecord", Data=text[1:].encode(), PartitionKey="k")
        clock.advance(1500)
    listener = Listener(kinesis, app)
    assert listener.event()["MillisBehindLatest"] == 1500
    assert listener.event()["MillisBehindLatest"] == 0


# How much


def test_an_event_holds_a_mebibyte_or_one_record(kinesis: LocalKinesis) -> None:
    stream = Stream(kinesis, shards=1, MaxRecordSizeInKiB=4096)
    for size in (300_000, 300_000, 300_000, 300_000, 3_000_000, 10, 20):
        stream.put("x" * size)
    listener = Listener(kinesis, register(stream))
    assert [len(listener.data()) for _ in range(4)] == [3, 1, 1, 2]


def test_a_subscription_is_sent_2_mib_a_second(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock, limits=False)
    stream = Stream(kinesis, shards=1)
    app = register(stream)
    for _ in range(100):
        stream.put("x" * (MIB // 4 - 1))
    kinesis.limits = True
    listener, begin = Listener(kinesis, app), clock()
    got = 0
    while got < 100:
        step = listener.step()
        if isinstance(step, IdleUntil):
            clock.advance(step.until_ms - clock())
        else:
            assert isinstance(step, PushedEvent)
            got += step.page.records.count
    assert clock() - begin == 11_500, "2 MiB at once, the other 23 at 2 MiB a second"


def test_a_record_beyond_the_rate_is_sent_and_paid_for_later(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock, limits=Limits(subscription_bytes=1000))
    stream = Stream(kinesis, shards=1)
    listener = Listener(kinesis, register(stream), "LATEST")
    listener.event()
    stream.put("x" * 3999)
    assert listener.data() == ["x" * 3999]
    stream.put("y")
    assert listener.waits_until() == clock() + 3002
    clock.advance(3002)
    assert listener.data() == ["y"]


# How it ends


def test_a_second_call_within_5_seconds_is_refused(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock)
    stream = Stream(kinesis, shards=2)
    app = register(stream)
    first = Listener(kinesis, app)
    clock.advance(4999)
    with pytest.raises(KinesisError, match="ResourceInUseException: Another active subscription"):
        Listener(kinesis, app)
    Listener(kinesis, app, shard=SHARD_1)
    Listener(kinesis, register(stream, "other"))
    first.release()
    with pytest.raises(KinesisError, match="ResourceInUseException"):
        Listener(kinesis, app)
    clock.advance(1)
    Listener(kinesis, app)
    clock.advance(4999)
    with pytest.raises(KinesisError, match="ResourceInUseException"):
        Listener(kinesis, app)


def test_a_later_call_takes_over(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock)
    stream = Stream(kinesis, shards=2)
    app = register(stream)
    older, elsewhere = Listener(kinesis, app), Listener(kinesis, app, shard=SHARD_1)
    older.event()
    older.waits_until()
    clock.advance(5000)
    woken = older.woken
    newer = Listener(kinesis, app)
    assert older.woken == woken + 1
    assert older.failure() == "ResourceInUseException"
    older.release()
    assert newer.event()["Records"] == []
    assert elsewhere.event()["Records"] == []
    clock.advance(5000)
    Listener(kinesis, app)
    assert newer.failure() == "ResourceInUseException", "letting go of an older one changes nothing"


def test_the_last_event_of_a_closed_shard_names_its_children(
    kinesis: LocalKinesis, stream: Stream, app: str
) -> None:
    stream.put("a")
    stream.split()
    listener = Listener(kinesis, app)
    event = listener.event()
    assert data(event) == ["a"]
    assert numbers(event["ChildShards"]) == [1, 2]
    assert event["ChildShards"][0] == {
        "ShardId": SHARD_1,
        "ParentShards": [SHARD_0],
        "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": str(2**127 - 1)},
    }
    assert event["MillisBehindLatest"] == 0
    assert "ContinuationSequenceNumber" not in event
    assert listener.has_ended()


def test_a_subscription_to_a_shard_that_was_read_to_its_end_ends_at_once(
    kinesis: LocalKinesis, stream: Stream, app: str
) -> None:
    number = stream.put("a")
    stream.split()
    ending = stream.shards()[0]["SequenceNumberRange"]["EndingSequenceNumber"]
    for kind, start in (
        ("LATEST", {}),
        ("AFTER_SEQUENCE_NUMBER", {"SequenceNumber": number}),
        ("AT_SEQUENCE_NUMBER", {"SequenceNumber": ending}),
    ):
        listener = Listener(kinesis, app, kind, **start)
        event = listener.event()
        assert (event["Records"], numbers(event["ChildShards"])) == ([], [1, 2])
        assert listener.has_ended()


@pytest.mark.parametrize("delay_ms", [0, 2000])
def test_a_reshard_reaches_a_waiting_subscription(clock: ManualClock, delay_ms: int) -> None:
    kinesis = LocalKinesis(clock=clock, limits=False, reshard_delay_ms=delay_ms)
    stream = Stream(kinesis, shards=1)
    listener = waiting(kinesis, register(stream))
    stream.split()
    assert listener.woken == 1
    if delay_ms:
        assert listener.waits_until() == clock() + delay_ms
        clock.advance(delay_ms)
        assert listener.woken == 2
    event = listener.event()
    assert (event["Records"], numbers(event["ChildShards"])) == ([], [1, 2])
    assert listener.has_ended()


def test_deregistering_ends_the_subscriptions(
    kinesis: LocalKinesis, stream: Stream, app: str
) -> None:
    listener, other = Listener(kinesis, app), Listener(kinesis, register(stream, "other"))
    stream.put("not read any more")
    kinesis.call("DeregisterStreamConsumer", ConsumerARN=app)
    assert listener.woken == 1
    assert listener.failure() == "ResourceNotFoundException"
    assert other.data() == ["not read any more"]


def test_deleting_the_stream_ends_the_subscriptions(
    kinesis: LocalKinesis, stream: Stream, app: str
) -> None:
    listener = Listener(kinesis, app)
    kinesis.stream_delay_ms = 1000
    stream("DeleteStream", EnforceConsumerDeletion=True)
    assert listener.woken == 1
    assert listener.failure() == "ResourceNotFoundException"
    with pytest.raises(KinesisError, match="ResourceNotFoundException"):
        kinesis.call("DescribeStreamConsumer", ConsumerARN=app)


# Waking


def test_only_those_are_woken_who_wait_and_only_once(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock, limits=False)
    stream = Stream(kinesis, shards=2)
    app, other = register(stream), register(stream, "other")
    here, too = waiting(kinesis, app), waiting(kinesis, other)
    elsewhere = Listener(kinesis, app, shard=SHARD_1)
    elsewhere.event()
    elsewhere.waits_until()
    listeners = [here, too, elsewhere]
    entries = [{"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": "0"}] * 100
    stream("PutRecords", Records=entries)
    stream("PutRecords", Records=entries)
    assert [listener.woken for listener in listeners] == [1, 1, 0]
    assert len(here.data()) == 200


def test_a_move_of_the_clock_wakes_whose_time_has_come(
    kinesis: LocalKinesis, stream: Stream, app: str, clock: ManualClock
) -> None:
    listener = waiting(kinesis, app)
    clock.advance(1)
    later = waiting(kinesis, register(stream, "other"))
    clock.advance(4999)
    assert (listener.woken, later.woken) == (1, 0)
    clock.advance(1)
    assert later.woken == 1


def test_nobody_is_woken_after_letting_go(
    kinesis: LocalKinesis, stream: Stream, app: str, clock: ManualClock
) -> None:
    listener = waiting(kinesis, app)
    listener.release()
    stream.put("a")
    clock.advance(LIFE)
    stream.split()
    kinesis.call("DeregisterStreamConsumer", ConsumerARN=app)
    assert listener.woken == 0


def test_nothing_is_kept_after_letting_go(kinesis: LocalKinesis, app: str) -> None:
    listener = waiting(kinesis, app)
    kept = weakref.ref(listener.subscription)
    listener.release()
    del listener
    gc.collect()
    assert kept() is None


def test_calls_and_events_are_logged(
    kinesis: LocalKinesis, stream: Stream, app: str, clock: ManualClock
) -> None:
    listener = Listener(kinesis, app)
    listener.event()
    stream.put("abc", key="de")
    listener.event()
    (call,) = kinesis.calls.select("SubscribeToShard", stream="s", shard=SHARD_0)
    assert call.error is None
    events = kinesis.calls.select("SubscribeToShardEvent", stream="s", shard=SHARD_0)
    assert [(e.records, e.bytes) for e in events] == [(0, 0), (1, 5)]
    kinesis.faults = lambda _: Fault.error("InternalFailure", status=500)
    with pytest.raises(KinesisError, match="InternalFailure"):
        Listener(kinesis, app)
    assert kinesis.calls.select("SubscribeToShard")[-1].error == "InternalFailure"
    assert listener.waits_until() == clock() + 5 * SECOND, "the call had no effect"
