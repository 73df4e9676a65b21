"""ListShards: filters over a history of reshards, and paging."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.local import KinesisError, LocalKinesis, ManualClock
from tests.unit.local.calls import DAY, HOUR, SHARD_0, SHARD_1, SHARD_2, SHARD_3, Stream, numbers


@pytest.fixture
def history(stream: Stream, clock: ManualClock) -> Stream:
    """Shard 0 from hour 0; 1 and 2 from hour 1; 3 (of 1 and 2) from hour 2; now is hour 3."""
    clock.advance(HOUR)
    stream.split(SHARD_0)
    clock.advance(HOUR)
    stream.merge(SHARD_1, SHARD_2)
    clock.advance(HOUR)
    return stream


def hour(clock: ManualClock, number: float) -> float:
    """Return the time of an hour of the history in seconds; the clock shows hour 3."""
    return (clock() + (number - 3) * HOUR) / 1000


def test_filters_without_an_instant(history: Stream) -> None:
    assert numbers(history.shards()) == [0, 1, 2, 3]
    assert history.listed("FROM_TRIM_HORIZON") == [0, 1, 2, 3]
    assert history.listed("AFTER_SHARD_ID", ShardId=SHARD_1) == [2, 3]
    assert history.listed("AFTER_SHARD_ID", ShardId=SHARD_3) == []
    assert history.listed("AT_LATEST") == [3]


def test_at_trim_horizon_the_shards_that_were_open_then(
    history: Stream, clock: ManualClock
) -> None:
    assert history.listed("AT_TRIM_HORIZON") == [0]
    clock.advance(DAY - 3 * HOUR)
    assert history.listed("AT_TRIM_HORIZON") == [0]
    clock.advance(HOUR)
    assert history.listed("AT_TRIM_HORIZON") == [1, 2]
    assert history.listed("FROM_TRIM_HORIZON") == [0, 1, 2, 3]
    clock.advance(HOUR)
    assert history.listed("AT_TRIM_HORIZON") == [3]
    assert history.listed("FROM_TRIM_HORIZON") == [1, 2, 3]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (-5, [0]),  # corrected to the horizon, here the stream's creation
        (0, [0]),
        (0.5, [0]),
        (1, [0, 1, 2]),  # both ends are inclusive
        (1.5, [1, 2]),
        (2, [1, 2, 3]),
        (3, [3]),
    ],
)
def test_at_timestamp(history: Stream, clock: ManualClock, at: float, expected: list[int]) -> None:
    assert history.listed("AT_TIMESTAMP", Timestamp=hour(clock, at)) == expected


@pytest.mark.parametrize(
    ("since", "expected"),
    [(-5, [0, 1, 2, 3]), (0.5, [0, 1, 2, 3]), (1.5, [1, 2, 3]), (2.5, [3])],
)
def test_from_timestamp(
    history: Stream, clock: ManualClock, since: float, expected: list[int]
) -> None:
    assert history.listed("FROM_TIMESTAMP", Timestamp=hour(clock, since)) == expected


@pytest.mark.parametrize(
    "filter_",
    [
        {"Type": "AFTER_SHARD_ID"},
        {"Type": "AT_TIMESTAMP"},
        {"Type": "FROM_TIMESTAMP"},
        {"Type": "AT_LATEST", "ShardId": SHARD_0},
        {"Type": "AT_LATEST", "Timestamp": 1.0},
    ],
)
def test_a_filter_needs_what_belongs_to_it_and_nothing_else(
    stream: Stream, filter_: dict[str, object]
) -> None:
    with pytest.raises(KinesisError, match=r"InvalidArgumentException: ShardFilter"):
        stream.shards(ShardFilter=filter_)


def pages(stream: Stream, size: int, **request: object) -> list[list[int]]:
    answer = stream("ListShards", MaxResults=size, **request)
    found = [numbers(answer["Shards"])]
    while "NextToken" in answer:
        answer = stream.kinesis.call("ListShards", NextToken=answer["NextToken"], MaxResults=size)
        found.append(numbers(answer["Shards"]))
    return found


def test_pages_cover_the_listing(kinesis: LocalKinesis) -> None:
    stream = Stream(kinesis, shards=7)
    assert pages(stream, 3) == [[0, 1, 2], [3, 4, 5], [6]]
    assert pages(stream, 7) == [[0, 1, 2, 3, 4, 5, 6]]
    assert pages(stream, 3, ExclusiveStartShardId=SHARD_3) == [[4, 5, 6]]


def test_pages_keep_the_filter(history: Stream, clock: ManualClock) -> None:
    filter_ = {"Type": "FROM_TIMESTAMP", "Timestamp": hour(clock, 1.5)}
    assert pages(history, 2, ShardFilter=filter_) == [[1, 2], [3]]
    history.rescale(2)
    farthest = {"Type": "AT_TIMESTAMP", "Timestamp": 1e308}
    assert pages(history, 1, ShardFilter=farthest) == [[4], [5]]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("StreamName", "s"),
        ("StreamARN", "arn:aws:kinesis:us-east-1:123456789012:stream/s"),
        ("ExclusiveStartShardId", SHARD_0),
        ("ShardFilter", {"Type": "AT_LATEST"}),
    ],
)
def test_a_next_token_stands_alone(kinesis: LocalKinesis, name: str, value: Any) -> None:
    token = Stream(kinesis, shards=2)("ListShards", MaxResults=1)["NextToken"]
    with pytest.raises(KinesisError, match=f"NextToken and {name} cannot be provided together"):
        kinesis.call("ListShards", NextToken=token, **{name: value})


def test_a_next_token_expires_after_5_minutes(kinesis: LocalKinesis, clock: ManualClock) -> None:
    token = Stream(kinesis, shards=2)("ListShards", MaxResults=1)["NextToken"]
    clock.advance(300_000)
    kinesis.call("ListShards", NextToken=token)
    clock.advance(1)
    with pytest.raises(KinesisError, match="ExpiredNextTokenException"):
        kinesis.call("ListShards", NextToken=token)


def test_describe_stream_pages_by_shard(kinesis: LocalKinesis) -> None:
    stream = Stream(kinesis, shards=3)
    first = stream("DescribeStream", Limit=2)["StreamDescription"]
    assert (numbers(first["Shards"]), first["HasMoreShards"]) == ([0, 1], True)
    rest = stream("DescribeStream", ExclusiveStartShardId=SHARD_1)["StreamDescription"]
    assert (numbers(rest["Shards"]), rest["HasMoreShards"]) == ([2], False)


def test_list_streams_pages_by_name(kinesis: LocalKinesis) -> None:
    for name in ("c", "a", "b"):
        Stream(kinesis, shards=1, name=name)
    first = kinesis.call("ListStreams", Limit=2)
    assert (first["StreamNames"], first["HasMoreStreams"]) == (["a", "b"], True)
    rest = kinesis.call("ListStreams", NextToken=first["NextToken"])
    assert (rest["StreamNames"], rest["HasMoreStreams"]) == (["c"], False)
    after = kinesis.call("ListStreams", ExclusiveStartStreamName="a")
    assert after["StreamNames"] == ["b", "c"]
