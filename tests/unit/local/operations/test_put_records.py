"""Streams that distribute records themselves: RecordDistributionStrategy AUTO."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sparkinesis.local import KinesisError, LocalKinesis
from tests.unit.local.calls import ARN, ON_DEMAND, TOP, Stream, data
from tests.unit.local.subscribing import Listener, register


@pytest.fixture
def auto(kinesis: LocalKinesis) -> Stream:
    """A stream of four shards with this strategy."""
    return Stream(kinesis, **ON_DEMAND, RecordDistributionStrategy="AUTO")


def strategy(stream: Stream) -> str | None:
    found: str | None = stream.summary().get("RecordDistributionStrategy")
    return found


def change(kinesis: LocalKinesis, to: str, arn: str = ARN) -> None:
    named = {"StreamARN": arn, "RecordDistributionStrategy": to}
    kinesis.call("UpdateStreamRecordDistributionStrategy", **named)


def stored(stream: Stream) -> list[dict[str, Any]]:
    pages = [stream.get(stream.iterator(shard=shard["ShardId"])) for shard in stream.shards()]
    return [record for page in pages for record in page["Records"]]


def test_records_without_a_key_are_spread_and_come_without_the_member(auto: Stream) -> None:
    answer = auto("PutRecords", Records=[{"Data": b"x"}] * 40)
    assert answer["FailedRecordCount"] == 0
    assert set(Counter(each["ShardId"] for each in answer["Records"]).values()) == {10}
    found = stored(auto)
    assert len(found) == 40
    assert {frozenset(record) for record in found} == {
        frozenset({"SequenceNumber", "ApproximateArrivalTimestamp", "Data"})
    }


def test_keys_are_kept_and_do_not_count(auto: Stream) -> None:
    entry: dict[str, Any] = {"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": "0"}
    answers = [auto("PutRecord", **entry) for _ in range(8)]
    assert set(Counter(answer["ShardId"] for answer in answers).values()) == {2}
    assert {record["PartitionKey"] for record in stored(auto)} == {"k"}


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"PartitionKey": ""}, "greater than or equal to 1"),
        ({"PartitionKey": "k" * 257}, "less than or equal to 256"),
        ({"ExplicitHashKey": "x"}, "explicitHashKey"),
        ({"ExplicitHashKey": str(TOP + 1)}, r"2\^128-1"),
    ],
)
def test_what_breaks_a_rule_is_refused_all_the_same(
    auto: Stream, entry: dict[str, str], words: str
) -> None:
    with pytest.raises(KinesisError, match=words):
        auto("PutRecord", Data=b"x", **entry)


def test_the_strategy_changes_at_once_and_records_stay_where_they_are(
    auto: Stream, kinesis: LocalKinesis
) -> None:
    assert strategy(auto) == "AUTO"
    auto("PutRecord", Data=b"without")
    before = stored(auto)
    change(kinesis, "USER_PARTITION_KEY")
    assert strategy(auto) == "USER_PARTITION_KEY"
    with pytest.raises(KinesisError, match="Value null at 'partitionKey'"):
        auto("PutRecord", Data=b"x")
    shards = {auto("PutRecord", Data=b"y", PartitionKey="k")["ShardId"] for _ in range(2)}
    assert len(shards) == 1
    assert [record for record in stored(auto) if record in before] == before
    change(kinesis, "AUTO")
    auto("PutRecord", Data=b"without, again")


def test_a_record_of_the_streams_own_distribution_has_no_order(
    auto: Stream, kinesis: LocalKinesis
) -> None:
    ordered = {"Data": b"x", "PartitionKey": "k", "SequenceNumberForOrdering": "5"}
    with pytest.raises(
        KinesisError, match=r"InvalidArgumentException: .*Ordering.* stream s .*AUTO"
    ):
        auto("PutRecord", **ordered)
    assert stored(auto) == []
    change(kinesis, "USER_PARTITION_KEY")
    auto("PutRecord", **ordered)


def test_a_stream_that_nobody_asked_it_of_needs_keys(stream: Stream, kinesis: LocalKinesis) -> None:
    assert strategy(stream) is None
    with pytest.raises(KinesisError, match=r"'records\.1\.member\.partitionKey'"):
        stream("PutRecords", Records=[{"Data": b"x"}])
    assert strategy(Stream(kinesis, name="od", **ON_DEMAND)) == "USER_PARTITION_KEY"


def test_streams_with_provisioned_shards_cannot_have_it(
    stream: Stream, kinesis: LocalKinesis
) -> None:
    needs = "InvalidArgumentException.*requires ON_DEMAND mode"
    with pytest.raises(KinesisError, match=needs):
        change(kinesis, "AUTO")
    with pytest.raises(KinesisError, match=needs):
        Stream(kinesis, shards=1, name="p", RecordDistributionStrategy="AUTO")
    with pytest.raises(KinesisError, match="enum value set"):
        change(kinesis, "ROUND_ROBIN")
    with pytest.raises(KinesisError, match="not found"):
        change(kinesis, "AUTO", arn=f"{ARN}-none")
    stream.put("still there")
    assert stream.read() == ["still there"]


def test_a_subscription_gives_the_record_without_the_member(auto: Stream) -> None:
    put = auto("PutRecord", Data=b"x")
    listener = Listener(auto.kinesis, register(auto), shard=put["ShardId"])
    (record,) = listener.event()["Records"]
    assert "PartitionKey" not in record
    assert data({"Records": [record]}) == ["x"]
