"""Invalid requests and their error messages; names, ARNs, regions; routing of records."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel

from sparkinesis.local import KinesisError, LocalKinesis
from sparkinesis.local.encoding import validation
from tests.unit.local.calls import ARN, SHARD_0, TOP, Stream, hash_range


@pytest.mark.parametrize(
    ("operation", "request_", "code", "words"),
    [
        ("Nonsense", {}, "UnknownOperationException", "Nonsense"),
        (
            "DescribeStream",
            {"StreamName": "none"},
            "ResourceNotFoundException",
            "Stream none under account 123456789012 not found.",
        ),
        ("DescribeStream", {}, "InvalidArgumentException", "StreamName or StreamARN"),
        (
            "DescribeStream",
            {"StreamName": "a b"},
            "ValidationException",
            (
                "1 validation error detected: Value 'a b' at 'streamName' failed to satisfy "
                "constraint: Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+"
            ),
        ),
        (
            "GetShardIterator",
            {"StreamName": "s"},
            "ValidationException",
            (
                "2 validation errors detected: Value null at 'shardId' failed to satisfy "
                "constraint: Member must not be null; Value null at 'shardIteratorType'"
            ),
        ),
        (
            "GetShardIterator",
            {"StreamName": "s", "ShardId": SHARD_0, "ShardIteratorType": "X"},
            "ValidationException",
            "Member must satisfy enum value set: [AT_SEQUENCE_NUMBER, ",
        ),
        (
            "CreateStream",
            {"StreamName": "x" * 129, "ShardCount": 1},
            "ValidationException",
            "Member must have length less than or equal to 128",
        ),
        ("CreateStream", {"StreamName": "t", "ShardCount": 0}, "ValidationException", "'0' at"),
        ("CreateStream", {"StreamName": "t"}, "ValidationException", "'shardCount'"),
        ("CreateStream", {"StreamName": 1}, "SerializationException", "StreamName"),
        ("CreateStream", {"StreamName": "t", "ShardCount": "1"}, "SerializationException", "int"),
        ("CreateStream", {"StreamName": "t", "ShardCount": True}, "SerializationException", ""),
        (
            "CreateStream",
            {"StreamName": "s", "ShardCount": 1},
            "ResourceInUseException",
            "Stream s under account 123456789012 already exists.",
        ),
        ("PutRecord", {"StreamName": "s", "Data": b"x"}, "ValidationException", "'partitionKey'"),
        (
            "PutRecord",
            {"StreamName": "s", "Data": "ab!?", "PartitionKey": "k"},
            "SerializationException",
            "Blob",
        ),
        (
            "PutRecords",
            {"StreamName": "s", "Records": [{"Data": b"", "PartitionKey": "k"}] * 501},
            "ValidationException",
            "less than or equal to 500",
        ),
        ("ListShards", {"NextToken": "x"}, "InvalidArgumentException", "NextToken"),
    ],
)
def test_error(
    stream: Stream, operation: str, request_: dict[str, Any], code: str, words: str
) -> None:
    with pytest.raises(KinesisError) as caught:
        stream.kinesis.call(operation, **request_)
    assert caught.value.code == code
    assert words in caught.value.message
    assert caught.value.status == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"'])
def test_a_body_that_is_no_json_object_does_not_serialize(
    kinesis: LocalKinesis, body: bytes
) -> None:
    assert kinesis.serve("DescribeStream", body).error == "SerializationException"
    assert kinesis.serve("PutRecords", body).error == "SerializationException"


def test_a_record_is_at_most_1_mib_with_its_key(stream: Stream) -> None:
    stream.put("x" * ((1 << 20) - 1), key="k")
    with pytest.raises(KinesisError, match=r"less than or equal to 1048576"):
        stream.put("x" * ((1 << 20) - 1), key="é")  # two bytes


def test_put_records_takes_10_mib_in_all_or_nothing(stream: Stream) -> None:
    fitting = [{"Data": b"x" * ((1 << 20) - 1), "PartitionKey": "k"}] * 10
    assert stream("PutRecords", Records=fitting)["FailedRecordCount"] == 0
    with pytest.raises(KinesisError, match=r"InvalidArgumentException.*10 MB"):
        stream("PutRecords", Records=[*fitting, {"Data": b"", "PartitionKey": "k"}])
    page = stream.get(stream.iterator())
    assert page["MillisBehindLatest"] == 0
    assert len(page["Records"]) == 10


def test_a_bad_entry_refuses_the_whole_call(stream: Stream) -> None:
    good, bad = {"Data": b"a", "PartitionKey": "k"}, {"Data": b"a", "PartitionKey": ""}
    with pytest.raises(KinesisError, match=r"records\.2\.member\.partitionKey"):
        stream("PutRecords", Records=[good, bad])
    assert stream.read() == []


@pytest.mark.parametrize("key", ["a", "b", "ünï", "user-17", "☃"])
def test_a_record_goes_where_the_md5_of_its_key_says(kinesis: LocalKinesis, key: str) -> None:
    stream = Stream(kinesis, shards=5)
    put = stream("PutRecord", Data=b"", PartitionKey=key)
    shard = next(s for s in stream.shards() if s["ShardId"] == put["ShardId"])
    low, high = hash_range(shard)
    assert low <= int(hashlib.md5(key.encode()).hexdigest(), 16) <= high


def test_an_explicit_hash_key_overrides_the_partition_key(kinesis: LocalKinesis) -> None:
    stream = Stream(kinesis, shards=3)
    for shard in stream.shards():
        for edge in hash_range(shard):
            put = stream("PutRecord", Data=b"", PartitionKey="k", ExplicitHashKey=str(edge))
            assert put["ShardId"] == shard["ShardId"]


def test_a_stream_can_be_named_by_its_arn(stream: Stream) -> None:
    call = stream.kinesis.call
    summary = call("DescribeStreamSummary", StreamARN=ARN)["StreamDescriptionSummary"]
    assert summary["StreamARN"] == ARN
    call("PutRecord", StreamARN=ARN, StreamName="s", Data=b"x", PartitionKey="k")
    assert call("GetRecords", StreamARN=ARN, ShardIterator=stream.iterator())["Records"]


@pytest.mark.parametrize(
    ("stream_names", "error"),
    [
        ({"StreamARN": ARN.replace("us-east-1", "eu-west-1")}, "ResourceNotFoundException"),
        ({"StreamARN": ARN.replace("1234", "9234")}, "ResourceNotFoundException"),
        ({"StreamARN": ARN + "x"}, "ResourceNotFoundException"),
        ({"StreamARN": "nonsense"}, "ValidationException"),
        ({"StreamARN": ARN, "StreamName": "t"}, "name different streams"),
    ],
)
def test_an_arn_must_fit_in_every_part(
    stream: Stream, stream_names: dict[str, str], error: str
) -> None:
    with pytest.raises(KinesisError, match=error):
        stream.kinesis.call("DescribeStream", **stream_names)


def test_consumers_are_registered_described_listed_and_removed(stream: Stream) -> None:
    call = stream.kinesis.call
    made = call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="app")["Consumer"]
    assert made["ConsumerARN"].startswith(f"{ARN}/consumer/app:")
    assert made["ConsumerStatus"] == "ACTIVE"
    with pytest.raises(KinesisError, match="ResourceInUseException"):
        call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="app")
    call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="other")
    by_arn = call("DescribeStreamConsumer", ConsumerARN=made["ConsumerARN"])
    by_name = call("DescribeStreamConsumer", StreamARN=ARN, ConsumerName="app")
    assert by_arn == by_name
    page = call("ListStreamConsumers", StreamARN=ARN, MaxResults=1)
    rest = call("ListStreamConsumers", StreamARN=ARN, NextToken=page["NextToken"])
    assert [c["ConsumerName"] for c in page["Consumers"] + rest["Consumers"]] == ["app", "other"]
    with pytest.raises(KinesisError, match="ResourceInUseException"):
        stream("DeleteStream")
    call("DeregisterStreamConsumer", ConsumerARN=made["ConsumerARN"])
    with pytest.raises(KinesisError, match="ResourceNotFoundException"):
        call("DescribeStreamConsumer", ConsumerARN=made["ConsumerARN"])
    stream("DeleteStream", EnforceConsumerDeletion=True)


FOR_AN_UNKNOWN_STREAM: list[tuple[str, dict[str, Any], str]] = [
    ("PutRecord", {"Data": b"x", "PartitionKey": ""}, "ValidationException.*'partitionKey'"),
    (
        "PutRecord",
        {"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": "01"},
        "ValidationException.*'explicitHashKey'",
    ),
    (
        "PutRecord",
        {"Data": b"x", "PartitionKey": "k", "ExplicitHashKey": str(TOP + 1)},
        r"InvalidArgumentException.*Invalid ExplicitHashKey.*\[0, 2\^128-1\]",
    ),
    (
        "PutRecord",
        {"Data": b"x", "PartitionKey": "k", "SequenceNumberForOrdering": "x"},
        "ValidationException.*'sequenceNumberForOrdering'",
    ),
    (
        "PutRecord",
        {"Data": b"x" * (10 << 20), "PartitionKey": "k"},
        "ValidationException.*'data'.*10485760",
    ),
    ("PutRecords", {"Records": []}, "ValidationException.*'records'"),
    (
        "PutRecords",
        {"Records": [{"Data": b"x" * (6 << 20), "PartitionKey": "k"}] * 2},
        "InvalidArgumentException.*10 MB",
    ),
    (
        "GetShardIterator",
        {"ShardId": SHARD_0, "ShardIteratorType": "AT_TIMESTAMP"},
        "InvalidArgumentException.*no timestamp parameter",
    ),
    ("ListShards", {"ShardFilter": {"Type": "AFTER_SHARD_ID"}}, "InvalidArgumentException"),
    ("IncreaseStreamRetentionPeriod", {"RetentionPeriodHours": 8761}, "Maximum allowed"),
    ("IncreaseStreamRetentionPeriod", {"RetentionPeriodHours": 23}, "Minimum allowed"),
    ("DecreaseStreamRetentionPeriod", {"RetentionPeriodHours": 23}, "Minimum allowed"),
    (
        "UpdateShardCount",
        {"TargetShardCount": 0, "ScalingType": "UNIFORM_SCALING"},
        "ValidationException.*'targetShardCount'",
    ),
    ("EnableEnhancedMonitoring", {"ShardLevelMetrics": []}, "ValidationException"),
    ("AddTagsToStream", {"Tags": {"k" * 129: ""}}, "ValidationException.*'tags'"),
]


@pytest.mark.parametrize(("operation", "request_", "match"), FOR_AN_UNKNOWN_STREAM)
def test_arguments_are_checked_before_the_stream_is_looked_for(
    kinesis: LocalKinesis, operation: str, request_: dict[str, Any], match: str
) -> None:
    with pytest.raises(KinesisError, match=match):
        kinesis.call(operation, StreamName="unknown", **request_)


@pytest.mark.parametrize("operation", ["PutRecord", "PutRecords"])
def test_a_stream_with_an_invalid_name_is_not_looked_for(
    kinesis: LocalKinesis, operation: str
) -> None:
    entry: dict[str, Any] = {"Data": b"x", "PartitionKey": "k"}
    request = entry if operation == "PutRecord" else {"Records": [entry]}
    with pytest.raises(KinesisError, match=r"ValidationException.*'streamName'"):
        kinesis.call(operation, StreamName="a b", **request)
    with pytest.raises(KinesisError, match=r"ValidationException.*'streamARN'"):
        kinesis.call(operation, StreamARN="arn:nonsense", **request)


def test_characters_of_tags_are_checked_after_the_stream_is_found(kinesis: LocalKinesis) -> None:
    with pytest.raises(KinesisError, match="ResourceNotFoundException"):
        kinesis.call("RemoveTagsFromStream", StreamName="unknown", TagKeys=[";"])


def test_a_subscription_needs_a_start_before_a_consumer(kinesis: LocalKinesis) -> None:
    with pytest.raises(KinesisError, match="no timestamp parameter"):
        kinesis.subscribe(
            ConsumerARN=f"{ARN}/consumer/none:1",
            ShardId=SHARD_0,
            StartingPosition={"Type": "AT_TIMESTAMP"},
        )


def test_an_old_botocore_lacks_operations_and_serves_all_others(
    kinesis: LocalKinesis, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Loader().load_service_model("kinesis", "service-2")
    operations = {name: it for name, it in known["operations"].items() if "Queue" not in name}
    old = ServiceModel({**known, "operations": operations}, "kinesis")
    monkeypatch.setattr(validation, "_service", lambda: old)
    for name in ("ListQueues", "ReceiveQueueRecords"):
        with pytest.raises(KinesisError, match=r"botocore >= 1\.44\.5") as caught:
            kinesis.call(name)
        assert caught.value.code == "UnknownOperationException"
    stream.put("a")
    assert stream.read() == ["a"]
