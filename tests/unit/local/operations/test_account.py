"""The limits of the account, and its settings."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.local import KinesisError, Limits, LocalKinesis, ManualClock
from tests.unit.local.calls import ARN, DAY, ON_DEMAND, SHARD_0, Stream

START_S = 1_800_000_000


@pytest.fixture
def limited(clock: ManualClock) -> LocalKinesis:
    """Four shards and two on-demand streams, and any number of calls."""
    return LocalKinesis(
        clock=clock,
        limits=Limits(account_shards=4, account_on_demand_streams=2, account_calls={}),
    )


def limit_exceeded(text: str) -> Any:
    return pytest.raises(KinesisError, match=f"LimitExceededException.*{text}")


def too_many_shards(current: int, additional: int) -> Any:
    return limit_exceeded(
        "This request would exceed the shard limit for the account 123456789012 in us-east-1. "
        f"Current shard count for the account: {current}. Limit: 4. Number of additional shards "
        f"that would have resulted from this request: {additional}. "
    )


def create(kinesis: LocalKinesis, name: str, shards: int, region: str = "us-east-1") -> None:
    kinesis.call("CreateStream", region=region, StreamName=name, ShardCount=shards)


def test_the_open_shards_of_all_provisioned_streams_are_limited(limited: LocalKinesis) -> None:
    stream = Stream(limited, shards=2)
    limited.call("CreateStream", StreamName="on-demand", **ON_DEMAND)
    with too_many_shards(2, 3):
        create(limited, "t", 3)
    create(limited, "t", 1)
    create(limited, "t", 4, region="eu-west-1")
    stream.split(at=2**126)
    with too_many_shards(4, 1):
        stream.split("shardId-000000000001", at=2**127 + 2**126)
    with too_many_shards(4, 1):
        stream.rescale(4)
    stream.merge("shardId-000000000002", "shardId-000000000003")
    stream.rescale(3)
    limited.call("DeleteStream", StreamName="t")
    stream.rescale(4)
    with limit_exceeded("cannot be greater than 4. Current open shard count: 4, Target .*: 5"):
        stream.rescale(5)


def test_a_stream_comes_to_10_000_shards_whatever_the_account_may_have(clock: ManualClock) -> None:
    limits = Limits(account_shards=1_000_000)
    stream = Stream(LocalKinesis(clock=clock, limits=limits), shards=1)
    with limit_exceeded("greater than 10000"):
        stream.rescale(10_001)


@pytest.mark.parametrize(
    ("region", "limit"),
    [("us-east-1", 20_000), ("us-west-2", 20_000), ("eu-west-1", 20_000), ("eu-west-3", 1000)],
)
def test_the_shard_limit_is_the_default_of_the_region(
    clock: ManualClock, region: str, limit: int
) -> None:
    kinesis = LocalKinesis(clock=clock)
    assert kinesis.call("DescribeLimits", region=region)["ShardLimit"] == limit
    with limit_exceeded(f"Limit: {limit}"):
        create(kinesis, "s", limit + 1, region)


def test_on_demand_streams_are_limited_however_they_come_about(limited: LocalKinesis) -> None:
    Stream(limited, shards=1)
    for name in "ab":
        limited.call("CreateStream", StreamName=name, **ON_DEMAND)
    with limit_exceeded("2 streams in ON_DEMAND mode"):
        limited.call("CreateStream", StreamName="c", **ON_DEMAND)
    with limit_exceeded("2 streams in ON_DEMAND mode"):
        limited.call("UpdateStreamMode", StreamARN=ARN, **ON_DEMAND)
    limited.call("DeleteStream", StreamName="a")
    limited.call("UpdateStreamMode", StreamARN=ARN, **ON_DEMAND)


def test_a_stream_becomes_provisioned_only_within_the_shard_limit(limited: LocalKinesis) -> None:
    Stream(limited, shards=1)
    limited.call("CreateStream", StreamName="a", **ON_DEMAND)
    provisioned: dict[str, Any] = {"StreamModeDetails": {"StreamMode": "PROVISIONED"}}
    with too_many_shards(1, 4):
        limited.call("UpdateStreamMode", StreamARN=ARN.replace("/s", "/a"), **provisioned)
    limited.call("UpdateStreamMode", StreamARN=ARN, **ON_DEMAND)
    limited.call("UpdateStreamMode", StreamARN=ARN.replace("/s", "/a"), **provisioned)


def test_describe_limits_may_be_called_once_a_second(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock)
    kinesis.call("DescribeLimits")
    with limit_exceeded("Rate exceeded"):
        kinesis.call("DescribeLimits")
    clock.advance(1000)
    kinesis.call("DescribeLimits")


def test_describe_limits_counts_streams_and_shards(limited: LocalKinesis) -> None:
    stream = Stream(limited, shards=2)
    stream.split(SHARD_0, at=2**126)
    limited.call("CreateStream", StreamName="a", **ON_DEMAND)
    expected = {
        "ShardLimit": 4,
        "OpenShardCount": 3,
        "ChannelCount": 0,
        "OnDemandStreamCount": 1,
        "OnDemandStreamCountLimit": 2,
    }
    assert limited.call("DescribeLimits") == expected
    limited.limits = None
    free = limited.call("DescribeLimits")
    assert (free["OpenShardCount"], free["ShardLimit"]) == (3, 1_000_000)
    create(limited, "t", 5)


def commitment(kinesis: LocalKinesis, status: str | None = None) -> dict[str, Any]:
    """Update the commitment, if a status is given, and return it."""
    described = "MinimumThroughputBillingCommitment"
    if status is not None:
        wanted: dict[str, Any] = {described: {"Status": status}}
        answer = kinesis.call("UpdateAccountSettings", **wanted)
        assert answer == kinesis.call("DescribeAccountSettings")
    return dict(kinesis.call("DescribeAccountSettings")[described])


def test_a_commitment_lasts_for_24_hours_at_least(
    kinesis: LocalKinesis, clock: ManualClock
) -> None:
    assert commitment(kinesis) == {"Status": "DISABLED"}
    assert commitment(kinesis, "DISABLED") == {"Status": "DISABLED"}
    times = {"StartedAt": START_S, "EarliestAllowedEndAt": START_S + 86_400}
    assert commitment(kinesis, "ENABLED") == {"Status": "ENABLED", **times}
    clock.advance(1000)
    assert commitment(kinesis, "ENABLED") == {"Status": "ENABLED", **times}
    ending = {"Status": "ENABLED_UNTIL_EARLIEST_ALLOWED_END", **times}
    assert commitment(kinesis, "DISABLED") == ending
    assert commitment(kinesis, "ENABLED") == {"Status": "ENABLED", **times}
    assert commitment(kinesis, "DISABLED") == ending
    clock.advance(DAY - 1001)
    assert commitment(kinesis) == ending
    clock.advance(1)
    ended = {"Status": "DISABLED", **times, "EndedAt": START_S + 86_400}
    assert commitment(kinesis) == ended
    clock.advance(1000)
    again = commitment(kinesis, "ENABLED")
    assert (again["Status"], again["StartedAt"]) == ("ENABLED", START_S + 86_401)
    assert "EndedAt" not in again


def test_a_commitment_of_more_than_24_hours_ends_at_once(
    kinesis: LocalKinesis, clock: ManualClock
) -> None:
    commitment(kinesis, "ENABLED")
    clock.advance(2 * DAY)
    ended = commitment(kinesis, "DISABLED")
    assert (ended["Status"], ended["EndedAt"]) == ("DISABLED", START_S + 2 * 86_400)
    other = kinesis.call("DescribeAccountSettings", region="eu-west-1")
    assert other == {"MinimumThroughputBillingCommitment": {"Status": "DISABLED"}}


def test_with_the_commitment_an_on_demand_stream_has_50_consumers(kinesis: LocalKinesis) -> None:
    kinesis.call("CreateStream", StreamName="s", **ON_DEMAND)

    def register(name: str) -> None:
        kinesis.call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName=name)

    for number in range(20):
        register(f"{number}")
    with limit_exceeded("20 registered consumers"):
        register("20")
    commitment(kinesis, "ENABLED")
    for number in range(20, 50):
        register(f"{number}")
    with limit_exceeded("50 registered consumers"):
        register("50")
