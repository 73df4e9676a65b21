"""Resource policies of streams and consumers."""

from __future__ import annotations

import pytest

from sparkinesis.local import KinesisError, LocalKinesis
from tests.unit.local.calls import ARN, Stream
from tests.unit.local.subscribing import register

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
