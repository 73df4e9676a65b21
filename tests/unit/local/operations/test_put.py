"""Streams that distribute records themselves: RecordDistributionStrategy AUTO."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sparkinesis.local import KinesisError, LocalKinesis
from tests.unit.local.calls import TOP, Stream, data
from tests.unit.local.subscribing import Listener

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/"


@pytest.fixture
def auto(kinesis: LocalKinesis) -> LocalKinesis:
    """A Kinesis with the stream ``auto`` of four shards."""
    kinesis.call(
        "CreateStream",
        StreamName="auto",
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
        RecordDistributionStrategy="AUTO",
    )
    return kinesis


def strategy(kinesis: LocalKinesis, name: str) -> str | None:
    summary = kinesis.call("DescribeStreamSummary", StreamName=name)["StreamDescriptionSummary"]
    found: str | None = summary.get("RecordDistributionStrategy")
    return found


def change(kinesis: LocalKinesis, name: str, to: str) -> None:
    kinesis.call(
        "UpdateStreamRecordDistributionStrategy",
        StreamARN=ARN + name,
        RecordDistributionStrategy=to,
    )


def stored(kinesis: LocalKinesis, name: str) -> list[dict[str, Any]]:
    found = []
    for shard in kinesis.call("ListShards", StreamName=name)["Shards"]:
        begin = {"ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = kinesis.call("GetShardIterator", StreamName=name, **begin)["ShardIterator"]
        found += kinesis.call("GetRecords", ShardIterator=iterator)["Records"]
    return found


def test_records_without_a_key_are_spread_and_come_without_the_member(auto: LocalKinesis) -> None:
    answer = auto.call("PutRecords", StreamName="auto", Records=[{"Data": b"x"}] * 40)
    assert answer["FailedRecordCount"] == 0
    assert set(Counter(each["ShardId"] for each in answer["Records"]).values()) == {10}
    found = stored(auto, "auto")
    assert len(found) == 40
    assert {frozenset(record) for record in found} == {
        frozenset({"SequenceNumber", "ApproximateArrivalTimestamp", "Data"})
    }


def test_keys_are_kept_and_do_not_count(auto: LocalKinesis) -> None:
    entry: dict[str, Any] = {"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": "0"}
    answers = [auto.call("PutRecord", StreamName="auto", **entry) for _ in range(8)]
    assert set(Counter(answer["ShardId"] for answer in answers).values()) == {2}
    assert {record["PartitionKey"] for record in stored(auto, "auto")} == {"k"}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"PartitionKey": ""}, "greater than or equal to 1"),
        ({"PartitionKey": "k" * 257}, "less than or equal to 256"),
        ({"ExplicitHashKey": "x"}, "explicitHashKey"),
        ({"ExplicitHashKey": str(TOP + 1)}, "2^128-1"),
    ],
)
def test_what_breaks_a_rule_is_refused_all_the_same(
    auto: LocalKinesis, entry: dict[str, str], words: str
) -> None:
    with pytest.raises(KinesisError) as refused:
        auto.call("PutRecord", StreamName="auto", Data=b"x", **entry)
    assert words in str(refused.value)


def test_the_strategy_changes_at_once_and_records_stay_where_they_are(auto: LocalKinesis) -> None:
    assert strategy(auto, "auto") == "AUTO"
    auto.call("PutRecord", StreamName="auto", Data=b"without")
    before = stored(auto, "auto")
    change(auto, "auto", "USER_PARTITION_KEY")
    assert strategy(auto, "auto") == "USER_PARTITION_KEY"
    with pytest.raises(KinesisError, match="Value null at 'partitionKey'"):
        auto.call("PutRecord", StreamName="auto", Data=b"x")
    put = auto.call("PutRecord", StreamName="auto", Data=b"y", PartitionKey="k")
    again = auto.call("PutRecord", StreamName="auto", Data=b"z", PartitionKey="k")
    assert put["ShardId"] == again["ShardId"]
    assert [record for record in stored(auto, "auto") if record in before] == before
    change(auto, "auto", "AUTO")
    auto.call("PutRecord", StreamName="auto", Data=b"without, again")


def test_a_stream_that_nobody_asked_it_of_needs_keys(stream: Stream, kinesis: LocalKinesis) -> None:
    assert strategy(kinesis, "s") is None
    with pytest.raises(KinesisError, match=r"'records\.1\.member\.partitionKey'"):
        stream("PutRecords", Records=[{"Data": b"x"}])
    kinesis.call("CreateStream", StreamName="od", StreamModeDetails={"StreamMode": "ON_DEMAND"})
    assert strategy(kinesis, "od") == "USER_PARTITION_KEY"


def test_streams_with_provisioned_shards_cannot_have_it(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    with pytest.raises(KinesisError, match="requires ON_DEMAND mode") as refused:
        change(kinesis, "s", "AUTO")
    assert refused.value.code == "InvalidArgumentException"
    with pytest.raises(KinesisError, match="requires ON_DEMAND mode"):
        kinesis.call(
            "CreateStream", StreamName="p", ShardCount=1, RecordDistributionStrategy="AUTO"
        )
    with pytest.raises(KinesisError, match="enum value set"):
        change(kinesis, "s", "ROUND_ROBIN")
    with pytest.raises(KinesisError, match="not found"):
        change(kinesis, "none", "AUTO")
    stream.put("still there")
    assert stream.read() == ["still there"]


def test_a_subscription_gives_the_record_without_the_member(auto: LocalKinesis) -> None:
    made = auto.call("RegisterStreamConsumer", StreamARN=ARN + "auto", ConsumerName="app")
    put = auto.call("PutRecord", StreamName="auto", Data=b"x")
    listener = Listener(auto, made["Consumer"]["ConsumerARN"], shard=put["ShardId"])
    (record,) = listener.event()["Records"]
    assert "PartitionKey" not in record
    assert data({"Records": [record]}) == ["x"]
