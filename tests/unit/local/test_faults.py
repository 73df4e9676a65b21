"""Fault plans, and the log of calls."""

from __future__ import annotations

import pytest

from sparkinesis.local import Call, Fault, KinesisError, LocalKinesis, ManualClock
from tests.unit.local.calls import ARN, SHARD_0, SHARD_1, Stream, data
from tests.unit.local.subscribing import register


def test_a_plan_sees_operation_stream_shard_ordinal_and_time(
    kinesis: LocalKinesis, clock: ManualClock
) -> None:
    stream = Stream(kinesis, shards=2)
    seen: list[Call] = []
    kinesis.faults = seen.append
    iterator = stream.iterator(shard=SHARD_1)
    clock.advance(5)
    stream.get(iterator)
    stream.get(iterator)
    stream.get(stream.iterator(shard=SHARD_0))
    assert [(c.operation, c.stream, c.shard, c.ordinal) for c in seen] == [
        ("GetShardIterator", "s", SHARD_1, 1),
        ("GetRecords", "s", SHARD_1, 1),
        ("GetRecords", "s", SHARD_1, 2),
        ("GetShardIterator", "s", SHARD_0, 1),
        ("GetRecords", "s", SHARD_0, 1),
    ]
    assert seen[1].time_ms == seen[0].time_ms + 5


def test_a_plan_sees_the_stream_of_a_resource(kinesis: LocalKinesis, stream: Stream) -> None:
    consumer = register(stream)
    seen: list[Call] = []
    kinesis.faults = seen.append
    for resource in (ARN, consumer):
        kinesis.call("ListTagsForResource", ResourceARN=resource)
    assert [call.stream for call in seen] == ["s", "s"]


@pytest.mark.parametrize(("takes_effect", "left"), [(False, ["b"]), (True, ["a", "b"])])
def test_an_injected_error_has_an_effect_on_the_stream_only_if_it_says_so(
    kinesis: LocalKinesis, stream: Stream, left: list[str], *, takes_effect: bool
) -> None:
    fault = Fault("InternalFailure", "boom", 500, takes_effect=takes_effect)
    kinesis.faults = lambda call: fault if call.ordinal == 1 else None
    with pytest.raises(KinesisError, match="InternalFailure: boom") as caught:
        stream.put("a")
    assert caught.value.status == 500
    stream.put("b")
    kinesis.faults = None
    assert stream.read() == left


@pytest.mark.parametrize(("takes_effect", "left"), [(False, ["b"]), (True, ["a", "b", "c"])])
def test_put_records_fails_for_the_entries_that_a_fault_names(
    kinesis: LocalKinesis, stream: Stream, left: list[str], *, takes_effect: bool
) -> None:
    fault = Fault("InternalFailure", entries=frozenset({0, 2}), takes_effect=takes_effect)
    kinesis.faults = lambda call: fault if call.operation == "PutRecords" else None
    entries = [{"Data": name.encode(), "PartitionKey": "k"} for name in "abc"]
    answer = stream("PutRecords", Records=entries)
    errors = [entry.get("ErrorCode") for entry in answer["Records"]]
    assert errors == ["InternalFailure", None, "InternalFailure"]
    assert answer["FailedRecordCount"] == 2
    assert data(stream.get(stream.iterator())) == left


def test_the_log_says_what_each_call_did(
    kinesis: LocalKinesis, stream: Stream, clock: ManualClock
) -> None:
    kinesis.calls.clear()
    stream.put("abc", key="kk")
    clock.advance(7)
    stream.get(stream.iterator())
    with pytest.raises(KinesisError):
        kinesis.call("DescribeStream", StreamName="none")
    stream("PutRecords", Records=[{"Data": b"abc", "PartitionKey": "kk"}] * 3)
    put, iterator, get, describe, puts = kinesis.calls
    assert (put.operation, put.shard, put.records, put.bytes) == ("PutRecord", SHARD_0, 1, 5)
    assert (iterator.operation, iterator.shard) == ("GetShardIterator", SHARD_0)
    assert (get.operation, get.shard, get.records, get.bytes) == ("GetRecords", SHARD_0, 1, 5)
    assert get.time_ms == put.time_ms + 7
    assert (describe.stream, describe.error) == ("none", "ResourceNotFoundException")
    assert (puts.records, puts.bytes) == (3, 15)


def test_calls_are_counted_per_shard_and_in_windows(
    kinesis: LocalKinesis, clock: ManualClock
) -> None:
    stream = Stream(kinesis, shards=2)
    start = clock()
    iterators = [stream.iterator(shard=shard) for shard in (SHARD_0, SHARD_1)]
    for step in (0, 400, 400, 400, 5000):
        clock.advance(step)
        stream.get(iterators[0])
    stream.get(iterators[1])
    calls = kinesis.calls
    assert calls.per_shard("GetRecords") == {SHARD_0: 5, SHARD_1: 1}
    assert calls.count("GetRecords", shard=SHARD_0, since_ms=start, until_ms=start + 800) == 2
    assert calls.peak("GetRecords", shard=SHARD_0, window_ms=1000) == 3
    assert calls.peak("GetRecords", shard=SHARD_0, window_ms=1201) == 4
