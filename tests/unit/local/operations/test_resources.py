"""Tags and policies of streams and consumers: their limits, and the errors for them."""

from __future__ import annotations

from typing import Any

import pytest

from sparkinesis.local import KinesisError, LocalKinesis, ManualClock
from tests.unit.local.calls import ARN, Stream
from tests.unit.local.subscribing import register

CHARACTERS = (
    "Some tags contain invalid characters. Valid characters: "
    "Unicode letters, digits, white space, _ . / = + - % @ :."
)


def tags(kinesis: LocalKinesis, arn: str = ARN) -> dict[str, str]:
    found = kinesis.call("ListTagsForResource", ResourceARN=arn)["Tags"]
    assert found == sorted(found, key=lambda tag: tag["Key"])
    return {tag["Key"]: tag["Value"] for tag in found}


def refused(stream: Stream, operation: str, **request: Any) -> KinesisError:
    with pytest.raises(KinesisError) as caught:
        stream(operation, **request)
    return caught.value


def test_both_ways_of_tagging_a_stream_are_one(stream: Stream, kinesis: LocalKinesis) -> None:
    stream("AddTagsToStream", Tags={"a": "1", "b": "2"})
    kinesis.call("TagResource", ResourceARN=ARN, Tags={"b": "3", "ü0 _.": "", "/=+-@:": "x y"})
    assert tags(kinesis) == {"a": "1", "b": "3", "ü0 _.": "", "/=+-@:": "x y"}
    kinesis.call("UntagResource", ResourceARN=ARN, TagKeys=["a", "never there"])
    stream("RemoveTagsFromStream", TagKeys=["/=+-@:"])
    listed = stream("ListTagsForStream")["Tags"]
    assert {tag["Key"] for tag in listed} == {"b", "ü0 _."} == {*tags(kinesis)}
    first = {"Tags": [{"Key": "b", "Value": "3"}], "HasMoreTags": True}
    assert stream("ListTagsForStream", Limit=1) == first


def test_a_consumer_has_tags_of_its_own(stream: Stream, kinesis: LocalKinesis) -> None:
    arn = register(stream, Tags={"a": "1"})
    kinesis.call("TagResource", ResourceARN=arn, Tags={"b": "2"})
    assert (tags(kinesis, arn), tags(kinesis)) == ({"a": "1", "b": "2"}, {})
    kinesis.call("UntagResource", ResourceARN=arn, TagKeys=["a"])
    assert tags(kinesis, arn) == {"b": "2"}
    with pytest.raises(KinesisError, match="invalid characters"):
        register(stream, "other", Tags={"a;b": ""})
    assert len(kinesis.call("ListStreamConsumers", StreamARN=ARN)["Consumers"]) == 1


def test_a_consumer_that_is_not_active_refuses_tags_and_policies(clock: ManualClock) -> None:
    kinesis = LocalKinesis(clock=clock, limits=False, consumer_delay_ms=1000)
    arn = register(Stream(kinesis, shards=1))
    changes: list[tuple[str, dict[str, Any]]] = [
        ("TagResource", {"Tags": {"b": "2"}}),
        ("PutResourcePolicy", {"Policy": "{}"}),
    ]
    for operation, change in changes:
        with pytest.raises(KinesisError) as caught:
            kinesis.call(operation, ResourceARN=arn, **change)
        assert caught.value.code == "ResourceInUseException"
        assert caught.value.message == (
            "Consumer app with creation timestamp 1800000000 under stream s and account "
            "123456789012 is not in ACTIVE status."
        )
    clock.advance(1000)
    for operation, change in changes:
        kinesis.call(operation, ResourceARN=arn, **change)


def test_a_resource_has_50_tags(stream: Stream, kinesis: LocalKinesis) -> None:
    stream("AddTagsToStream", Tags={f"{i}": "" for i in range(50)})
    stream("AddTagsToStream", Tags={"0": "new", "49": "new"})
    error = refused(stream, "AddTagsToStream", Tags={"50": ""})
    assert error.code == "InvalidArgumentException"
    assert error.message == (
        "Failed to add tags to stream s under account 123456789012 because a given stream "
        "cannot have more than 50 tags associated with it."
    )
    many = {f"{i}": "" for i in range(51)}
    with pytest.raises(KinesisError, match=r"InvalidArgumentException.*more than 50"):
        kinesis.call("CreateStream", StreamName="t", ShardCount=1, Tags=many)
    assert kinesis.call("ListStreams")["StreamNames"] == ["s"]
    assert len(stream("ListTagsForStream")["Tags"]) == len(tags(kinesis)) == 50


@pytest.mark.parametrize("text", ["a;b", "a\tb", "a\nb", "a,b", "a'b", "a\u200bb"])
def test_characters_that_tags_may_not_have(stream: Stream, text: str) -> None:
    for bad in ({text: "1"}, {"a": text}):
        error = refused(stream, "AddTagsToStream", Tags=bad)
        assert (error.code, error.message) == ("InvalidArgumentException", CHARACTERS)
    error = refused(stream, "RemoveTagsFromStream", TagKeys=["a", text])
    assert (error.code, error.message) == ("InvalidArgumentException", CHARACTERS)


def test_a_percent_sign_has_an_error_of_its_own(stream: Stream) -> None:
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("AddTagsToStream", {"Tags": {"a": "5%"}}, "add tags to"),
        ("RemoveTagsFromStream", {"TagKeys": ["5%"]}, "remove tags from"),
    ]
    for operation, request, verb in calls:
        error = refused(stream, operation, **request)
        assert error.message.startswith(f"Failed to {verb} stream s under account 123456789012")
        assert "illegal characters" in error.message


def test_keys_of_aws_are_reserved(stream: Stream) -> None:
    error = refused(stream, "AddTagsToStream", Tags={"AWS:x": ""})
    assert (error.code, "AWS:x" in error.message) == ("InvalidArgumentException", True)


def test_lengths_are_checked_in_the_words_of_the_service(stream: Stream) -> None:
    long = "k" * 129
    assert refused(stream, "AddTagsToStream", Tags={"a": "1", long: "2"}).message == (
        f"1 validation error detected: Value '{{a=1, {long}=2}}' at 'tags' failed to satisfy "
        "constraint: Map keys must satisfy constraint: [Member must have length less than or "
        "equal to 128, Member must have length greater than or equal to 1]"
    )
    value = "v" * 257
    assert refused(stream, "AddTagsToStream", Tags={"a": value}).message == (
        f"1 validation error detected: Value '{{a={value}}}' at 'tags' failed to satisfy "
        "constraint: Map value must satisfy constraint: [Member must have length less than or "
        "equal to 256, Member must have length greater than or equal to 0]"
    )
    assert refused(stream, "RemoveTagsFromStream", TagKeys=["a", long]).message == (
        f"1 validation error detected: Value '[a, {long}]' at 'tagKeys' failed to satisfy "
        "constraint: Member must satisfy constraint: [Member must have length less than or "
        "equal to 128, Member must have length greater than or equal to 1]"
    )
    assert refused(stream, "AddTagsToStream", Tags={}).message == (
        "1 validation error detected: Value '{}' at 'tags' failed to satisfy constraint: "
        "Member must have length greater than or equal to 1"
    )
    stream("AddTagsToStream", Tags={"k" * 128: "v" * 256})


@pytest.mark.parametrize(
    "arn",
    [
        ARN.replace("/s", "/none"),
        ARN + "/consumer/none:1",
        ARN.replace("us-east-1", "eu-west-1"),
        "arn:aws:kinesis:us-east-1:123456789012:channel/c",
        "arn:aws:kinesis:us-east-1:123456789012:queue/q",
    ],
)
def test_other_resources_are_not_found(stream: Stream, kinesis: LocalKinesis, arn: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("TagResource", {"Tags": {"a": "1"}}),
        ("UntagResource", {"TagKeys": ["a"]}),
        ("ListTagsForResource", {}),
        ("GetResourcePolicy", {}),
    ]
    for operation, request in calls:
        with pytest.raises(KinesisError, match="ResourceNotFoundException"):
            kinesis.call(operation, ResourceARN=arn, **request)


POLICY = '{"Version": "2012-10-17", "Statement": []}'


def policy(kinesis: LocalKinesis, arn: str = ARN) -> str:
    return str(kinesis.call("GetResourcePolicy", ResourceARN=arn)["Policy"])


def test_a_policy_is_returned_as_it_was_put(stream: Stream, kinesis: LocalKinesis) -> None:
    assert policy(kinesis) == "{}"
    kinesis.call("PutResourcePolicy", ResourceARN=ARN, Policy="{ }")
    kinesis.call("PutResourcePolicy", ResourceARN=ARN, Policy=POLICY)
    consumer = register(stream)
    assert (policy(kinesis), policy(kinesis, consumer)) == (POLICY, "{}")
    kinesis.call("PutResourcePolicy", ResourceARN=consumer, Policy=POLICY)
    kinesis.call("DeleteResourcePolicy", ResourceARN=ARN)
    assert (policy(kinesis), policy(kinesis, consumer)) == ("{}", POLICY)


def test_there_is_no_policy_to_delete_twice(stream: Stream, kinesis: LocalKinesis) -> None:
    with pytest.raises(KinesisError, match=f"ResourceNotFoundException: No resource .* {ARN}"):
        kinesis.call("DeleteResourcePolicy", ResourceARN=ARN)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '"x"', "{", "[" * 100_000])
def test_a_policy_is_a_json_object(kinesis: LocalKinesis, text: str) -> None:
    with pytest.raises(KinesisError, match=r"InvalidArgumentException: The policy is not"):
        kinesis.call("PutResourcePolicy", ResourceARN=ARN, Policy=text)
