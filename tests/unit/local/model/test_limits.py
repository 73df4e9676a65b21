"""Each quota returns the service's error, per shard, and recovers as time passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from sparkinesis.local import KinesisError, Limits, LocalKinesis, ManualClock
from tests.unit.local.calls import SHARD_0, SHARD_1, Stream

MIB = 1 << 20


@pytest.fixture
def limited(clock: ManualClock) -> Stream:
    """A stream with two shards and the service's limits."""
    return Stream(LocalKinesis(clock=clock), shards=2)


def refused(call: Callable[[], object]) -> str | None:
    """Return the error code of a call; None for success."""
    try:
        call()
    except KinesisError as error:
        return error.code
    return None


THROTTLED = "ProvisionedThroughputExceededException"


def test_5_get_records_and_5_get_shard_iterators_a_second_per_shard(
    limited: Stream, clock: ManualClock
) -> None:
    iterators = {shard: limited.iterator(shard=shard) for shard in (SHARD_0, SHARD_1)}
    answers = [refused(partial(limited.iterator, shard=SHARD_0)) for _ in range(5)]
    assert answers == [None] * 4 + [THROTTLED]
    assert refused(partial(limited.iterator, shard=SHARD_1)) is None
    for iterator in iterators.values():
        answers = [refused(partial(limited.get, iterator)) for _ in range(6)]
        assert answers == [None] * 5 + [THROTTLED]
    named = "Rate exceeded for shard shardId-000000000000 in stream s under account 123456789012."
    with pytest.raises(KinesisError, match=named):
        limited.get(iterators[SHARD_0])
    clock.advance(200)
    answers = [refused(lambda: limited.get(iterators[SHARD_0])) for _ in range(2)]
    assert answers == [None, THROTTLED]


def test_a_10_mb_page_uses_up_5_seconds_of_reading(limited: Stream, clock: ManualClock) -> None:
    limited.kinesis.limits = False
    for _ in range(11):
        limited.put("x" * (MIB - 1), ExplicitHashKey="0")
    limited.kinesis.limits = True
    iterator = limited.iterator()
    assert len(limited.get(iterator)["Records"]) == 10
    clock.advance(4999)
    assert refused(lambda: limited.get(iterator)) == THROTTLED
    clock.advance(1)
    assert refused(lambda: limited.get(iterator)) is None


def test_small_pages_may_come_in_a_burst_up_to_2_mb(limited: Stream, clock: ManualClock) -> None:
    limited.kinesis.limits = False
    limited.put("x" * 700_000, ExplicitHashKey="0")
    limited.kinesis.limits = True
    iterator = limited.iterator()
    answers = [refused(lambda: limited.get(iterator)) for _ in range(4)]
    assert answers == [None, None, None, THROTTLED]
    clock.advance(1002)
    assert refused(lambda: limited.get(iterator)) is None


def test_1_mb_a_second_into_a_shard(limited: Stream, clock: ManualClock) -> None:
    half = "x" * (MIB // 2 - 1)

    def put(key: int) -> str | None:
        return refused(lambda: limited.put(half, ExplicitHashKey=str(key)))

    assert [put(0), put(0), put(0)] == [None, None, THROTTLED]
    assert put(2**127) is None
    clock.advance(500)
    assert [put(0), put(0)] == [None, THROTTLED]


def test_1000_records_a_second_into_a_shard_and_put_records_fails_in_part(
    limited: Stream,
) -> None:
    entries = [{"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": "0"}] * 500
    for _ in range(2):
        assert limited("PutRecords", Records=entries)["FailedRecordCount"] == 0
    other = {"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": str(2**127)}
    answer = limited("PutRecords", Records=[entries[0], other])
    assert answer["FailedRecordCount"] == 1
    assert answer["Records"][0]["ErrorCode"] == THROTTLED
    assert "shardId-000000000000 in stream s" in answer["Records"][0]["ErrorMessage"]
    assert "SequenceNumber" not in answer["Records"][0]
    assert answer["Records"][1]["ShardId"] == SHARD_1


def test_list_shards_a_second_per_stream(clock: ManualClock) -> None:
    stream = Stream(LocalKinesis(clock=clock, limits=Limits(stream_list_shards=3)), shards=1)
    answers = [refused(stream.shards) for _ in range(4)]
    assert answers == [None] * 3 + ["LimitExceededException"]


def test_control_calls_are_limited_per_account_and_region(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock)
    for name in "abcde":
        Stream(kinesis, shards=1, name=name)
    with pytest.raises(KinesisError, match="LimitExceededException"):
        Stream(kinesis, shards=1, name="f")
    kinesis.call("CreateStream", region="eu-west-1", StreamName="f", ShardCount=1)
    clock.advance(200)
    Stream(kinesis, shards=1, name="f")


def test_update_shard_count_at_most_doubles_or_halves(limited: Stream) -> None:
    for target in (5, 0):
        with pytest.raises(KinesisError):
            limited.rescale(target)
    limited.rescale(4)
