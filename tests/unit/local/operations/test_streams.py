"""Records and closed shards expire at the end of retention."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.local import KinesisError, LocalKinesis, ManualClock
from tests.unit.local.calls import DAY, HOUR, SHARD_0, Stream, data, numbers


def test_records_vanish_once_older_than_retention(stream: Stream, clock: ManualClock) -> None:
    stream.put("old")
    clock.advance(1)
    stream.put("new")
    clock.advance(DAY - 1)
    assert stream.read() == ["old", "new"]
    clock.advance(1)
    assert stream.read() == ["new"]
    clock.advance(1)
    assert stream.read() == []


def test_a_trimmed_position_begins_at_the_oldest_record_left(
    stream: Stream, clock: ManualClock
) -> None:
    numbers_ = []
    for name in "abcdef":
        numbers_.append(stream.put(name))
        clock.advance(HOUR)
    clock.advance(DAY - 3 * HOUR)
    for trimmed in numbers_[:2]:
        for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
            assert stream.read(kind, StartingSequenceNumber=trimmed) == ["d", "e", "f"]
    assert stream.read("AFTER_SEQUENCE_NUMBER", StartingSequenceNumber=numbers_[3]) == ["e", "f"]


def test_positions_hold_while_trimming_goes_on(stream: Stream, clock: ManualClock) -> None:
    iterator = stream.iterator()
    got: list[str] = []
    for i in range(200):
        stream.put(str(i))
        clock.advance(DAY // 20)
        if i % 10 == 9:  # half of what is kept
            page = stream.get(stream.iterator("TRIM_HORIZON"))
            assert data(page)[-1] == str(i)
            assert len(page["Records"]) == min(i + 1, 20)
            last = page["Records"][-1]["SequenceNumber"]
            behind = stream.read("AT_SEQUENCE_NUMBER", StartingSequenceNumber=last)
            assert behind == [str(i)]
            got += data(page)[-10:]
    assert got == [str(i) for i in range(200)]
    with pytest.raises(KinesisError, match="ExpiredIterator"):
        stream.get(iterator)


def test_page_sizes_are_right_after_all_was_trimmed(
    kinesis: LocalKinesis, stream: Stream, clock: ManualClock
) -> None:
    stream.put("x" * 1000)
    clock.advance(2 * DAY)
    assert stream.read() == []
    stream.put("y" * 10)
    stream.put("z" * 20)
    assert len(stream.read()) == 2
    (*_, last) = kinesis.calls.select("GetRecords")
    assert (last.records, last.bytes) == (2, 10 + 20 + 2 * len("k"))


def test_closed_shards_vanish_once_all_they_held_is_over(
    stream: Stream, clock: ManualClock
) -> None:
    stream.put("a")
    iterator = stream.iterator()
    stream.split()
    clock.advance(DAY)
    assert numbers(stream.shards()) == [0, 1, 2]
    clock.advance(10)
    assert numbers(stream.shards()) == [1, 2]
    assert stream.shards()[0]["ParentShardId"] == SHARD_0
    with pytest.raises(KinesisError, match=r"ResourceNotFoundException.*does not exist"):
        stream.iterator()
    with pytest.raises(KinesisError, match="Expired"):
        stream.get(iterator)


def test_longer_retention_keeps_what_is_there_and_brings_nothing_back(
    stream: Stream, clock: ManualClock
) -> None:
    stream.put("a")
    clock.advance(20 * HOUR)
    stream.put("b")
    clock.advance(5 * HOUR)
    stream("IncreaseStreamRetentionPeriod", RetentionPeriodHours=48)
    clock.advance(20 * HOUR)
    assert stream.read() == ["b"]


def test_shorter_retention_trims_at_once(stream: Stream, clock: ManualClock) -> None:
    stream("IncreaseStreamRetentionPeriod", RetentionPeriodHours=100)
    stream.put("a")
    clock.advance(50 * HOUR)
    stream.put("b")
    assert stream.read() == ["a", "b"]
    stream("DecreaseStreamRetentionPeriod", RetentionPeriodHours=24)
    assert stream.read() == ["b"]


@pytest.mark.parametrize(
    ("operation", "hours", "words"),
    [
        ("IncreaseStreamRetentionPeriod", 47, "shorter than .* Use Decrease"),
        ("DecreaseStreamRetentionPeriod", 49, "longer than .* Use Increase"),
    ],
)
def test_retention_changes_in_the_direction_of_the_call(
    stream: Stream, operation: str, hours: int, words: str
) -> None:
    for _ in range(2):  # the same once more is no error
        stream("IncreaseStreamRetentionPeriod", RetentionPeriodHours=48)
    with pytest.raises(KinesisError, match=f"InvalidArgumentException: .*{words}RetentionPeriod"):
        stream(operation, RetentionPeriodHours=hours)


def test_a_listing_has_100_results_at_most_whatever_its_limit(kinesis: LocalKinesis) -> None:
    Stream(kinesis, shards=101)
    for number in range(100):
        kinesis.call("CreateStream", StreamName=f"t{number}", ShardCount=1)
    limits: list[dict[str, Any]] = [{}, {"Limit": 101}, {"Limit": 10_000}]
    for limit in limits:
        described = kinesis.call("DescribeStream", StreamName="s", **limit)["StreamDescription"]
        assert (len(described["Shards"]), described["HasMoreShards"]) == (100, True)
        listed = kinesis.call("ListStreams", **limit)
        assert (len(listed["StreamNames"]), listed["HasMoreStreams"]) == (100, True)
