"""A stream is CREATING, UPDATING and DELETING for as long as the server is told."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from sparkinesis.local import KinesisError, Limits, LocalKinesis, ManualClock
from tests.unit.local.calls import ARN, SCALING, SHARD_0, SHARD_1, Stream, data, numbers

KEY = {"EncryptionType": "KMS", "KeyId": "k"}
PUT: dict[str, Any] = {"Data": b"x", "PartitionKey": "k"}

CHANGES: dict[str, dict[str, Any]] = {
    "AddTagsToStream": {"StreamName": "s", "Tags": {"a": "1"}},
    "DecreaseStreamRetentionPeriod": {"StreamName": "s", "RetentionPeriodHours": 24},
    "DeleteResourcePolicy": {"ResourceARN": ARN},
    "DeleteStream": {"StreamName": "s"},
    "DisableEnhancedMonitoring": {"StreamName": "s", "ShardLevelMetrics": ["ALL"]},
    "EnableEnhancedMonitoring": {"StreamName": "s", "ShardLevelMetrics": ["IncomingBytes"]},
    "IncreaseStreamRetentionPeriod": {"StreamName": "s", "RetentionPeriodHours": 48},
    "MergeShards": {"StreamName": "s", "ShardToMerge": SHARD_0, "AdjacentShardToMerge": SHARD_1},
    "PutResourcePolicy": {"ResourceARN": ARN, "Policy": "{}"},
    "RemoveTagsFromStream": {"StreamName": "s", "TagKeys": ["a"]},
    "SplitShard": {"StreamName": "s", "ShardToSplit": SHARD_0, "NewStartingHashKey": str(2**126)},
    "StartStreamEncryption": {"StreamName": "s", **KEY},
    "StopStreamEncryption": {"StreamName": "s", **KEY},
    "TagResource": {"ResourceARN": ARN, "Tags": {"a": "1"}},
    "UntagResource": {"ResourceARN": ARN, "TagKeys": ["a"]},
    "UpdateMaxRecordSize": {"StreamARN": ARN, "MaxRecordSizeInKiB": 2048},
    "UpdateShardCount": {"StreamName": "s", "TargetShardCount": 4, "ScalingType": SCALING},
    "UpdateStreamMode": {"StreamARN": ARN, "StreamModeDetails": {"StreamMode": "ON_DEMAND"}},
    "UpdateStreamRecordDistributionStrategy": {
        "StreamARN": ARN,
        "RecordDistributionStrategy": "USER_PARTITION_KEY",
    },
    "UpdateStreamWarmThroughput": {"StreamARN": ARN, "WarmThroughputMiBps": 5},
}
"""Every operation that changes a stream, with a request for it."""

TAKE_TIME = [
    "DecreaseStreamRetentionPeriod",
    "DisableEnhancedMonitoring",
    "EnableEnhancedMonitoring",
    "IncreaseStreamRetentionPeriod",
    "MergeShards",
    "SplitShard",
    "StartStreamEncryption",
    "StopStreamEncryption",
    "UpdateMaxRecordSize",
    "UpdateShardCount",
    "UpdateStreamMode",
]


@pytest.fixture
def slow(clock: ManualClock) -> LocalKinesis:
    return LocalKinesis(clock=clock, limits=False, stream_delay_ms=1000)


@pytest.fixture
def active(slow: LocalKinesis, clock: ManualClock) -> Stream:
    """An ACTIVE stream with two shards."""
    made = Stream(slow, shards=2)
    clock.advance(1000)
    return made


def status(kinesis: LocalKinesis, name: str = "s") -> str:
    summary = kinesis.call("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]
    return str(summary["StreamStatus"])


def refused(code: str) -> Any:
    return pytest.raises(KinesisError, match=code)


def test_a_new_stream_is_creating_and_shows_no_shards(
    slow: LocalKinesis, clock: ManualClock
) -> None:
    stream = Stream(slow, shards=2)
    clock.advance(999)
    described = stream("DescribeStream")["StreamDescription"]
    assert (described["StreamStatus"], described["Shards"]) == ("CREATING", [])
    assert stream("DescribeStreamSummary")["StreamDescriptionSummary"]["OpenShardCount"] == 0
    (listed,) = slow.call("ListStreams")["StreamSummaries"]
    assert listed["StreamStatus"] == "CREATING"
    clock.advance(1)
    described = stream("DescribeStream")["StreamDescription"]
    assert described["StreamStatus"] == "ACTIVE"
    assert numbers(described["Shards"]) == [0, 1]


@pytest.mark.parametrize("state", ["CREATING", "DELETING"])
def test_a_stream_that_is_not_there_yet_or_any_more_serves_no_records(
    active: Stream, slow: LocalKinesis, state: str
) -> None:
    iterator = active.iterator()
    name = "s"
    if state == "DELETING":
        active("DeleteStream")
        with refused(r"ResourceNotFoundException: Shard .* does not exist"):
            active.get(iterator)
    else:
        name = Stream(slow, shards=1, name="t").name
    assert status(slow, name) == state
    begin = {"ShardId": SHARD_0, "ShardIteratorType": "LATEST"}
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("PutRecord", PUT, "ResourceNotFoundException"),
        ("PutRecords", {"Records": [PUT]}, "ResourceNotFoundException"),
        ("GetShardIterator", begin, "ResourceNotFoundException"),
        ("ListShards", {}, f"ResourceInUseException.*{state}"),
    ]
    for operation, request, code in calls:
        with refused(code):
            slow.call(operation, StreamName=name, **request)
    with refused(f"ResourceInUseException.*{state}"):
        arn = ARN.replace("/s", f"/{name}")
        slow.call("RegisterStreamConsumer", StreamARN=arn, ConsumerName="app")


@pytest.mark.parametrize("operation", [*CHANGES])
@pytest.mark.parametrize("state", ["CREATING", "UPDATING", "DELETING"])
def test_a_stream_in_another_state_than_active_refuses_changes(
    slow: LocalKinesis, clock: ManualClock, state: str, operation: str
) -> None:
    stream = Stream(slow, shards=2)
    if state != "CREATING":
        clock.advance(1000)
        if state == "UPDATING":
            stream("StartStreamEncryption", **KEY)
        else:
            stream("DeleteStream")
    if (state, operation) == ("CREATING", "DeleteStream"):
        stream("DeleteStream")
        assert status(slow) == "DELETING"
        return
    with pytest.raises(KinesisError) as caught:
        slow.call(operation, **CHANGES[operation])
    assert caught.value.code == "ResourceInUseException"
    assert caught.value.message == (
        f"Stream s under account 123456789012 not ACTIVE, instead in state {state}"
    )


SHOWN: dict[str, tuple[str, Any, Any]] = {
    "IncreaseStreamRetentionPeriod": ("RetentionPeriodHours", 24, 48),
    "StartStreamEncryption": ("EncryptionType", "NONE", "KMS"),
    "UpdateMaxRecordSize": ("MaxRecordSizeInKiB", 1024, 2048),
    "UpdateShardCount": ("OpenShardCount", 2, 4),
    "UpdateStreamMode": (
        "StreamModeDetails",
        {"StreamMode": "PROVISIONED"},
        {"StreamMode": "ON_DEMAND"},
    ),
    "EnableEnhancedMonitoring": (
        "EnhancedMonitoring",
        [{"ShardLevelMetrics": []}],
        [{"ShardLevelMetrics": ["IncomingBytes"]}],
    ),
}
"""What DescribeStreamSummary shows of a setting, and its value before and after the change."""


@pytest.mark.parametrize("operation", TAKE_TIME)
def test_a_change_takes_its_time_while_records_are_served(
    active: Stream, slow: LocalKinesis, clock: ManualClock, operation: str
) -> None:
    member, before, after = SHOWN.get(operation, ("StreamName", "s", "s"))

    def now() -> tuple[str, Any]:
        summary = active("DescribeStreamSummary")["StreamDescriptionSummary"]
        return summary["StreamStatus"], summary[member]

    iterator = active.iterator()
    slow.call(operation, **CHANGES[operation])
    active.put("a", ExplicitHashKey="0")
    assert data(active.get(iterator)) == ["a"]
    assert numbers(active.shards()) == [0, 1]
    clock.advance(999)
    assert now() == ("UPDATING", before)
    clock.advance(1)
    assert now() == ("ACTIVE", after)


def test_a_deleted_stream_is_deleting_and_its_name_is_taken_until_it_is_gone(
    active: Stream, slow: LocalKinesis, clock: ManualClock
) -> None:
    active.put("old")
    first = active.put("last of the old stream")
    active("DeleteStream")
    described = active("DescribeStream")["StreamDescription"]
    assert (described["StreamStatus"], described["Shards"]) == ("DELETING", [])
    with refused("ResourceInUseException: Stream s under account 123456789012 already exists"):
        active("CreateStream", ShardCount=1)
    clock.advance(999)
    assert slow.call("ListStreams")["StreamNames"] == ["s"]
    clock.advance(1)
    assert slow.call("ListStreams")["StreamNames"] == []
    with refused("ResourceNotFoundException"):
        active("DescribeStream")
    active("CreateStream", ShardCount=1)
    clock.advance(1000)
    assert active.read() == []
    assert int(active.put("new")) > int(first)


def test_a_stream_that_is_deleted_while_it_is_created_never_becomes_active(
    slow: LocalKinesis, clock: ManualClock
) -> None:
    stream = Stream(slow, shards=1)
    clock.advance(500)
    stream("DeleteStream")
    clock.advance(999)
    assert status(slow) == "DELETING"
    clock.advance(1)
    with refused("ResourceNotFoundException"):
        status(slow)


def test_a_stream_that_is_gone_leaves_no_records_in_memory(
    active: Stream, slow: LocalKinesis, clock: ManualClock
) -> None:
    active.put("x")
    gone = weakref.ref(slow._regions["us-east-1"].streams["s"])
    active("DeleteStream")
    clock.advance(1000)
    slow.call("CreateStream", StreamName="other", ShardCount=1)
    gc.collect()
    assert gone() is None
    clock.advance(1000)
    slow.stream_delay_ms = 0
    gone = weakref.ref(slow._regions["us-east-1"].streams["other"])
    slow.call("DeleteStream", StreamName="other")
    gc.collect()
    assert gone() is None


def test_a_reshard_may_take_another_time_than_other_changes(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock, limits=False, stream_delay_ms=0, reshard_delay_ms=3000)
    stream = Stream(kinesis, shards=1)
    stream("StartStreamEncryption", **KEY)
    assert status(kinesis) == "ACTIVE"
    stream.split()
    assert status(kinesis) == "UPDATING"
    clock.advance(3000)
    assert status(kinesis) == "ACTIVE"
    kinesis.stream_delay_ms, kinesis.reshard_delay_ms = 3000, 0
    stream.merge("shardId-000000000001", "shardId-000000000002")
    assert status(kinesis) == "ACTIVE"


def test_the_account_may_have_five_streams_in_creating(clock: ManualClock) -> None:
    limits = Limits(account_calls={})
    kinesis = LocalKinesis(clock=clock, limits=limits, stream_delay_ms=1000)
    for name in "abcde":
        kinesis.call("CreateStream", StreamName=name, ShardCount=1)
    with refused("LimitExceededException.* 5 streams in state CREATING"):
        kinesis.call("CreateStream", StreamName="f", ShardCount=1)
    clock.advance(1000)
    kinesis.call("CreateStream", StreamName="f", ShardCount=1)
