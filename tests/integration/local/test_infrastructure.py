"""The calls that Terraform and CloudFormation make for a stream, by boto3 and in their order.

Terraform's calls: internal/service/kinesis/{stream,tags_gen,resource_policy}.go of
hashicorp/terraform-provider-aws. After each change it asks DescribeStreamSummary until the stream
is ACTIVE. CloudFormation's handlers, which the CDK uses, are not public: their calls are those that
the schema of AWS::Kinesis::Stream permits them, in the same order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.local import LocalServer, ManualClock
from tests.integration.local.conftest import once

DELAY_MS = 500


@pytest.fixture
def server(clock: ManualClock) -> Iterator[LocalServer]:
    """A server with the service's limits, whose streams take half a second to change."""
    with LocalServer(clock=clock, stream_delay_ms=DELAY_MS) as running:
        yield running


class Applier:
    """A tool that changes one stream: it waits after each change, and tells what it saw."""

    def __init__(self, kinesis: Any, clock: ManualClock, name: str = "s") -> None:
        self.kinesis = kinesis
        self.clock = clock
        self.name = name
        self.waited: list[str] = []

    def summary(self) -> dict[str, Any]:
        answer = self.kinesis.describe_stream_summary(StreamName=self.name)
        return dict(answer["StreamDescriptionSummary"])

    def tags(self) -> dict[str, str]:
        listed = self.kinesis.list_tags_for_stream(StreamName=self.name)["Tags"]
        return {tag["Key"]: tag["Value"] for tag in listed}

    def create(self, **request: Any) -> None:
        """Create the stream, and wait while it is CREATING."""
        self.kinesis.create_stream(StreamName=self.name, **request)
        self._wait("CREATING")

    def change(self, call: Callable[..., Any], **request: Any) -> None:
        """Make a call, and wait while the stream is UPDATING."""
        call(**request)
        self._wait("UPDATING")

    def _wait(self, pending: str) -> None:
        while (status := self.summary()["StreamStatus"]) != "ACTIVE":
            assert status == pending
            self.waited.append(status)
            self.clock.advance(DELAY_MS)

    def delete(self, **request: Any) -> None:
        """Delete the stream, and wait until it is not found."""
        self.kinesis.delete_stream(StreamName=self.name, **request)
        while self.kinesis.list_streams()["StreamNames"]:
            assert self.summary()["StreamStatus"] == "DELETING"
            self.waited.append("DELETING")
            self.clock.advance(DELAY_MS)
        with pytest.raises(self.kinesis.exceptions.ResourceNotFoundException):
            self.summary()


@pytest.fixture
def tool(server: LocalServer, clock: ManualClock) -> Applier:
    return Applier(once(server, "kinesis"), clock)


def test_terraform_creates_a_stream_changes_it_and_deletes_it(
    server: LocalServer, tool: Applier
) -> None:
    kinesis, named = tool.kinesis, {"StreamName": "s"}

    # Plan: the shards of the plan fit into the account's limit.
    limits = kinesis.describe_limits()
    assert limits["OpenShardCount"] + 2 <= limits["ShardLimit"]

    # Create, with tags, a longer retention, metrics and encryption.
    tool.create(
        ShardCount=2,
        StreamModeDetails={"StreamMode": "PROVISIONED"},
        Tags={"team": "flights", "env": "dev"},
        MaxRecordSizeInKiB=2048,
    )
    arn = tool.summary()["StreamARN"]
    tool.change(kinesis.increase_stream_retention_period, **named, RetentionPeriodHours=24)
    metrics = {"ShardLevelMetrics": ["IncomingBytes", "OutgoingBytes"]}
    tool.change(kinesis.enable_enhanced_monitoring, **named, **metrics)
    key = {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}
    tool.change(kinesis.start_stream_encryption, **named, **key)

    # Read.
    read = tool.summary()
    assert (read["EncryptionType"], read["KeyId"]) == ("KMS", "alias/aws/kinesis")
    assert (read["MaxRecordSizeInKiB"], read["RetentionPeriodHours"]) == (2048, 24)
    assert (read["OpenShardCount"], read["StreamModeDetails"]["StreamMode"]) == (2, "PROVISIONED")
    assert read["EnhancedMonitoring"] == [metrics]
    assert tool.tags() == {"team": "flights", "env": "dev"}

    # Update: the tags, then everything else.
    kinesis.remove_tags_from_stream(**named, TagKeys=["env"])
    kinesis.add_tags_to_stream(**named, Tags={"team": "planes"})
    on_demand = {"StreamMode": "ON_DEMAND"}
    tool.change(kinesis.update_stream_mode, StreamARN=arn, StreamModeDetails=on_demand)
    provisioned = {"StreamMode": "PROVISIONED"}
    tool.change(kinesis.update_stream_mode, StreamARN=arn, StreamModeDetails=provisioned)
    uniform = {"ScalingType": "UNIFORM_SCALING", "TargetShardCount": 4}
    tool.change(kinesis.update_shard_count, **named, **uniform)
    tool.change(kinesis.increase_stream_retention_period, **named, RetentionPeriodHours=48)
    tool.change(kinesis.decrease_stream_retention_period, **named, RetentionPeriodHours=28)
    less = {"ShardLevelMetrics": ["OutgoingBytes"]}
    tool.change(kinesis.disable_enhanced_monitoring, **named, **less)
    more = {"ShardLevelMetrics": ["IteratorAgeMilliseconds"]}
    tool.change(kinesis.enable_enhanced_monitoring, **named, **more)
    tool.change(kinesis.stop_stream_encryption, **named, **key)
    tool.change(kinesis.update_max_record_size, StreamARN=arn, MaxRecordSizeInKiB=10_240)
    read = tool.summary()
    assert (read["EncryptionType"], read.get("KeyId")) == ("NONE", None)
    assert (read["MaxRecordSizeInKiB"], read["RetentionPeriodHours"]) == (10_240, 28)
    assert (read["OpenShardCount"], read["StreamModeDetails"]) == (4, provisioned)
    (enabled,) = read["EnhancedMonitoring"]
    assert enabled["ShardLevelMetrics"] == ["IncomingBytes", "IteratorAgeMilliseconds"]
    assert tool.tags() == {"team": "planes"}

    # Destroy.
    tool.delete(EnforceConsumerDeletion=False)
    assert tool.waited == ["CREATING", *["UPDATING"] * 12, "DELETING"]
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
        kinesis.delete_stream(**named, EnforceConsumerDeletion=False)
    assert kinesis.list_streams()["StreamNames"] == []
    errors = [call.error for call in server.kinesis.calls if call.error is not None]
    assert set(errors) == {"ResourceNotFoundException"}


def test_terraform_attaches_a_policy_and_detaches_it(tool: Applier) -> None:
    kinesis = tool.kinesis
    tool.create(ShardCount=1)
    arn = tool.summary()["StreamARN"]
    for version in ("2008-10-17", "2012-10-17"):
        policy = json.dumps({"Version": version, "Statement": []})
        kinesis.put_resource_policy(ResourceARN=arn, Policy=policy)
        assert kinesis.get_resource_policy(ResourceARN=arn)["Policy"] == policy
    kinesis.delete_resource_policy(ResourceARN=arn)
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException):
        kinesis.delete_resource_policy(ResourceARN=arn)


def test_cloudformation_creates_a_stream_changes_it_and_deletes_it(tool: Applier) -> None:
    kinesis, named = tool.kinesis, {"StreamName": "s"}

    # Create, as the CDK's Stream asks for it: on demand, and encrypted with the service's key.
    tool.create(
        StreamModeDetails={"StreamMode": "ON_DEMAND"},
    )
    arn = tool.summary()["StreamARN"]
    tool.change(kinesis.increase_stream_retention_period, **named, RetentionPeriodHours=24)
    key = {"EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}
    tool.change(kinesis.start_stream_encryption, **named, **key)
    kinesis.add_tags_to_stream(**named, Tags={"stack": "flights"})
    read = tool.summary()
    assert (read["OpenShardCount"], read["EncryptionType"]) == (4, "KMS")
    assert tool.tags() == {"stack": "flights"}

    # Update: from on demand to provisioned, then fewer shards; another key; other tags.
    provisioned = {"StreamMode": "PROVISIONED"}
    tool.change(kinesis.update_stream_mode, StreamARN=arn, StreamModeDetails=provisioned)
    uniform = {"ScalingType": "UNIFORM_SCALING", "TargetShardCount": 2}
    tool.change(kinesis.update_shard_count, **named, **uniform)
    other = {"EncryptionType": "KMS", "KeyId": f"{arn.replace('kinesis', 'kms')}-key"}
    tool.change(kinesis.start_stream_encryption, **named, **other)
    tool.change(kinesis.stop_stream_encryption, **named, **other)
    kinesis.remove_tags_from_stream(**named, TagKeys=["stack"])
    read = tool.summary()
    assert (read["OpenShardCount"], read["EncryptionType"]) == (2, "NONE")
    assert tool.tags() == {}

    # Delete, with a consumer.
    kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="app", Tags={"a": "1"})
    with pytest.raises(kinesis.exceptions.ResourceInUseException):
        kinesis.delete_stream(**named)
    tool.delete(EnforceConsumerDeletion=True)


def test_the_waiters_of_boto3_wait_for_the_states(server: LocalServer, tool: Applier) -> None:
    kinesis, clock = tool.kinesis, tool.clock
    fast = {"Delay": 0, "MaxAttempts": 10}
    seen: list[str] = []

    def advance(**_: Any) -> None:
        seen.append(tool.summary()["StreamStatus"])
        clock.advance(DELAY_MS // 2)

    server.kinesis.limits = None
    kinesis.create_stream(StreamName="s", ShardCount=1)
    kinesis.meta.events.register("before-call.kinesis.DescribeStream", advance)
    kinesis.get_waiter("stream_exists").wait(StreamName="s", WaiterConfig=fast)
    assert seen == ["CREATING", "CREATING"]
    kinesis.meta.events.unregister("before-call.kinesis.DescribeStream", advance)
    kinesis.delete_stream(StreamName="s")
    clock.advance(DELAY_MS)
    kinesis.get_waiter("stream_not_exists").wait(StreamName="s", WaiterConfig=fast)
