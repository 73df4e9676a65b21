"""The operations on streams, and their settings; records and closed shards expire in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sparkinesis.local import KinesisError, Limits, LocalKinesis, ManualClock
from tests.unit.local.calls import (
    ARN,
    DAY,
    HOUR,
    ON_DEMAND,
    SHARD_0,
    SHARD_1,
    Stream,
    data,
    numbers,
)
from tests.unit.local.subscribing import register


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


MIB = 1 << 20
METRICS = [
    "IncomingBytes",
    "IncomingRecords",
    "OutgoingBytes",
    "OutgoingRecords",
    "WriteProvisionedThroughputExceeded",
    "ReadProvisionedThroughputExceeded",
    "IteratorAgeMilliseconds",
]


def refused(match: str) -> Any:
    return pytest.raises(KinesisError, match=match)


def set_mode(kinesis: LocalKinesis, mode: str, **more: Any) -> None:
    details = {"StreamMode": mode}
    kinesis.call("UpdateStreamMode", StreamARN=ARN, StreamModeDetails=details, **more)


def commit(kinesis: LocalKinesis, status: str = "ENABLED") -> dict[str, Any]:
    answer = kinesis.call(
        "UpdateAccountSettings", MinimumThroughputBillingCommitment={"Status": status}
    )
    return dict(answer["MinimumThroughputBillingCommitment"])


# Encryption


def test_records_put_while_encryption_is_on_say_so(stream: Stream) -> None:
    key = {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}
    iterator = stream.iterator()
    entry = {"Data": b"x", "PartitionKey": "k"}
    assert "EncryptionType" not in stream("PutRecord", **entry)
    stream("StartStreamEncryption", **key)
    assert (stream.summary()["EncryptionType"], stream.summary()["KeyId"]) == tuple(key.values())
    described = stream("DescribeStream")["StreamDescription"]
    assert (described["EncryptionType"], described["KeyId"]) == tuple(key.values())
    assert stream("PutRecord", **entry)["EncryptionType"] == "KMS"
    assert stream("PutRecords", Records=[entry])["EncryptionType"] == "KMS"
    stream("StopStreamEncryption", **key)
    assert stream.summary()["EncryptionType"] == "NONE"
    assert "KeyId" not in stream.summary()
    assert "EncryptionType" not in stream("PutRecords", Records=[entry])
    records = stream.get(iterator)["Records"]
    assert [r.get("EncryptionType") for r in records] == [None, "KMS", "KMS", None]


@pytest.mark.parametrize("operation", ["StartStreamEncryption", "StopStreamEncryption"])
def test_kms_is_the_only_encryption_type(kinesis: LocalKinesis, operation: str) -> None:
    with refused("InvalidArgumentException.*NONE"):
        kinesis.call(operation, StreamName="unknown", EncryptionType="NONE", KeyId="k")


# Monitoring


def test_metrics_are_enabled_and_disabled_one_by_one_or_all(stream: Stream) -> None:
    def change(operation: str, *metrics: str) -> tuple[list[str], list[str]]:
        answer = stream(operation, ShardLevelMetrics=list(metrics))
        assert (answer["StreamName"], answer["StreamARN"]) == ("s", ARN)
        (shown,) = stream.summary()["EnhancedMonitoring"]
        assert shown["ShardLevelMetrics"] == answer["DesiredShardLevelMetrics"]
        return answer["CurrentShardLevelMetrics"], answer["DesiredShardLevelMetrics"]

    enable, disable = "EnableEnhancedMonitoring", "DisableEnhancedMonitoring"
    assert change(enable, METRICS[3]) == ([], [METRICS[3]])
    assert change(enable, METRICS[0], METRICS[3]) == ([METRICS[3]], [METRICS[0], METRICS[3]])
    assert change(enable, "ALL") == ([METRICS[0], METRICS[3]], METRICS)
    assert change(disable, METRICS[0]) == (METRICS, METRICS[1:])
    assert change(disable, "ALL") == (METRICS[1:], [])


# The mode


def test_a_stream_keeps_its_shards_when_its_mode_changes(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    stream.split()
    set_mode(kinesis, "ON_DEMAND")
    assert stream.summary()["StreamModeDetails"] == {"StreamMode": "ON_DEMAND"}
    assert numbers(stream.shards()) == [0, 1, 2]
    with refused("ValidationException.* is in On-Demand mode"):
        stream.split(SHARD_1, 2**126)
    set_mode(kinesis, "PROVISIONED")
    stream.split(SHARD_1, 2**126)


def test_a_provisioned_stream_has_nothing_that_only_on_demand_streams_have(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    commit(kinesis)
    set_mode(kinesis, "ON_DEMAND", WarmThroughputMiBps=1)
    strategy = {"RecordDistributionStrategy": "AUTO"}
    kinesis.call("UpdateStreamRecordDistributionStrategy", StreamARN=ARN, **strategy)
    assert stream.summary().keys() >= {"RecordDistributionStrategy", "WarmThroughput"}
    set_mode(kinesis, "PROVISIONED")
    assert not stream.summary().keys() & {"RecordDistributionStrategy", "WarmThroughput"}
    with refused("'partitionKey'"):
        stream("PutRecord", Data=b"x")


# The maximum record size


def test_records_may_have_up_to_10_mib(stream: Stream, kinesis: LocalKinesis) -> None:
    with refused("ValidationException.*less than or equal to 1048576"):
        stream.put("x" * MIB)
    kinesis.call("UpdateMaxRecordSize", StreamARN=ARN, MaxRecordSizeInKiB=10_240)
    assert stream.summary()["MaxRecordSizeInKiB"] == 10_240
    iterator = stream.iterator()
    stream.put("x" * (10 * MIB - 1))
    with refused("ValidationException.*less than or equal to 10485760"):
        stream.put("x" * (10 * MIB))
    (record,) = stream.get(iterator)["Records"]
    assert len(record["Data"]) == -(-(10 * MIB - 1) // 3) * 4
    for size in (1023, 10_241):
        with refused("ValidationException.*'maxRecordSizeInKiB'"):
            kinesis.call("UpdateMaxRecordSize", StreamARN=ARN, MaxRecordSizeInKiB=size)


def test_a_smaller_maximum_holds_for_new_records_only(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    kinesis.call("UpdateMaxRecordSize", StreamARN=ARN, MaxRecordSizeInKiB=2048)
    stream.put("x" * (MIB + 1))
    kinesis.call("UpdateMaxRecordSize", StreamARN=ARN, MaxRecordSizeInKiB=1024)
    with refused("1048576"):
        stream.put("x" * (MIB + 1))
    assert [len(text) for text in stream.read()] == [MIB + 1]


def test_a_record_larger_than_the_quota_of_a_second_delays_the_next_ones(
    clock: ManualClock,
) -> None:
    kinesis = LocalKinesis(clock=clock)
    stream = Stream(kinesis, shards=1)
    kinesis.call("UpdateMaxRecordSize", StreamARN=ARN, MaxRecordSizeInKiB=10_240)
    throttled = "ProvisionedThroughputExceededException"
    stream.put("small")
    with refused(throttled):
        stream.put("x" * 5 * MIB)
    clock.advance(1000)
    stream.put("x" * (5 * MIB - 1))
    clock.advance(4000)
    with refused(throttled):
        stream.put("small")
    clock.advance(1000)
    stream.put("small")


# Warm throughput


def test_warm_throughput_reshards_an_on_demand_stream(
    stream: Stream, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    commit(kinesis)
    set_mode(kinesis, "ON_DEMAND")
    kinesis.reshard_delay_ms = 1000
    answer = stream("UpdateStreamWarmThroughput", WarmThroughputMiBps=6)
    assert answer == {
        "StreamName": "s",
        "StreamARN": ARN,
        "WarmThroughput": {"TargetMiBps": 6, "CurrentMiBps": 1},
    }
    assert stream.summary()["StreamStatus"] == "UPDATING"
    clock.advance(1000)
    assert stream.summary()["WarmThroughput"] == {"TargetMiBps": 6, "CurrentMiBps": 6}
    assert stream.summary()["OpenShardCount"] == 6
    stream("UpdateStreamWarmThroughput", WarmThroughputMiBps=0)
    clock.advance(1000)
    assert stream.summary()["OpenShardCount"] == 4


def test_warm_throughput_is_set_with_the_stream_or_with_its_mode(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    commit(kinesis)
    other = Stream(kinesis, name="t", WarmThroughputMiBps=7, **ON_DEMAND)
    set_mode(kinesis, "ON_DEMAND", WarmThroughputMiBps=7)
    for each in (stream, other):
        assert each.summary()["WarmThroughput"] == {"TargetMiBps": 7, "CurrentMiBps": 7}
        assert each.summary()["OpenShardCount"] == 7


def test_warm_throughput_needs_an_on_demand_stream_and_the_commitment(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    warm: dict[str, Any] = {"WarmThroughputMiBps": 5}
    with refused("ValidationException.* is in Provisioned mode"):
        stream("UpdateStreamWarmThroughput", **warm)
    with refused("ValidationException.* is in Provisioned mode"):
        kinesis.call("CreateStream", StreamName="t", ShardCount=1, **warm)
    set_mode(kinesis, "ON_DEMAND")
    with refused("InvalidArgumentException.*MinimumThroughputBillingCommitment"):
        stream("UpdateStreamWarmThroughput", **warm)
    commit(kinesis)
    stream("UpdateStreamWarmThroughput", **warm)
    kinesis.limits = Limits()
    with refused("LimitExceededException.*10240"):
        stream("UpdateStreamWarmThroughput", WarmThroughputMiBps=10_241)


# A dry run

ENTRY: dict[str, Any] = {"Data": b"x", "PartitionKey": "k"}


def calls_with_dry_runs(stream: Stream, kinesis: LocalKinesis) -> list[Callable[..., object]]:
    """The calls of the five operations that take DryRun."""
    begin = {"ShardId": SHARD_0, "ShardIteratorType": "LATEST"}
    at: dict[str, Any] = {"ShardId": SHARD_0, "StartingPosition": {"Type": "LATEST"}}
    consumer, iterator = register(stream), stream.iterator()
    return [
        partial(stream, "PutRecord", **ENTRY),
        partial(stream, "PutRecords", Records=[ENTRY]),
        partial(stream, "GetShardIterator", **begin),
        partial(stream.get, iterator),
        partial(kinesis.subscribe, ConsumerARN=consumer, **at),
    ]


def test_a_dry_run_checks_the_call_and_has_no_effect(stream: Stream, kinesis: LocalKinesis) -> None:
    calls = calls_with_dry_runs(stream, kinesis)
    for call in calls:
        with refused("DryRunOperationException"):
            call(DryRun=True)
    assert stream.read() == []
    with refused("ValidationException"):
        stream("PutRecord", Data=b"x", PartitionKey="", DryRun=True)
    stream("PutRecord", **ENTRY, DryRun=False)
    assert stream.read() == ["x"]


def test_a_stream_has_one_dry_run_a_second(
    stream: Stream, kinesis: LocalKinesis, clock: ManualClock
) -> None:
    """Of all five operations together, and beside the calls that are none."""
    kinesis.limits = Limits()
    other = Stream(kinesis, 1, "other")
    calls = calls_with_dry_runs(stream, kinesis)
    for first, second in zip(calls, calls[1:] + calls[:1], strict=True):
        with refused("DryRunOperationException"):
            first(DryRun=True)
        with refused("ThrottlingException: .*stream s "):
            second(DryRun=True)
        with refused("DryRunOperationException"):
            other("PutRecord", **ENTRY, DryRun=True)
        stream("PutRecord", **ENTRY)
        clock.advance(1000)
    kinesis.limits = None
    for call in calls[:1] * 3:
        with refused("DryRunOperationException"):
            call(DryRun=True)
