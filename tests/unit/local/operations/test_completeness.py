"""Each operation of the service is in the server, or in the docs as one that is not there."""

from __future__ import annotations

import re

import pytest

from sparkinesis.local import KinesisError, LocalKinesis
from sparkinesis.local.encoding import validation
from sparkinesis.local.operations import OPERATIONS
from tests.documents import ROOT

PAGE = ROOT / "docs" / "local-server.md"
ROWS = re.findall(r"^\| (\w+) \| (there|not there) \|", PAGE.read_text("utf-8"), re.MULTILINE)

NOT_USED = {"StreamId"}
"""Members of requests that the service reserves for later."""

NOT_CHECKED = {("ListStreamConsumers", "StreamCreationTimestamp")}
"""A second way of saying which stream is meant, beside its ARN."""

TERRAFORM = """
AddTagsToStream CreateStream DecreaseStreamRetentionPeriod DeleteResourcePolicy DeleteStream
DescribeLimits DescribeStreamSummary DisableEnhancedMonitoring EnableEnhancedMonitoring
GetResourcePolicy IncreaseStreamRetentionPeriod ListTagsForStream PutResourcePolicy
RemoveTagsFromStream StartStreamEncryption StopStreamEncryption UpdateMaxRecordSize
UpdateShardCount UpdateStreamMode
"""
"""The calls in internal/service/kinesis/{stream,tags_gen,resource_policy}.go of
hashicorp/terraform-provider-aws. CloudFormation's handlers, which the CDK uses, are not public: the
schema of AWS::Kinesis::Stream permits them these calls, and RegisterStreamConsumer."""


def test_terraform_and_cloudformation_make_only_calls_that_are_there() -> None:
    assert {*TERRAFORM.split(), "RegisterStreamConsumer"} <= {*OPERATIONS}


def test_the_table_in_the_docs_has_each_operation_of_the_service_once() -> None:
    names = [name for name, _ in ROWS]
    assert sorted(names) == sorted(validation._service().operation_names)


def test_the_table_in_the_docs_is_the_server() -> None:
    assert {name for name, state in ROWS if state == "there"} == {*OPERATIONS}


@pytest.mark.parametrize("name", [name for name, state in ROWS if state == "not there"])
def test_an_operation_that_is_not_there_is_unknown(kinesis: LocalKinesis, name: str) -> None:
    with pytest.raises(KinesisError, match=f"UnknownOperationException: .*{name}"):
        kinesis.call(name)


@pytest.mark.parametrize("name", [*OPERATIONS])
def test_a_request_type_has_all_members_of_its_operation(name: str) -> None:
    members = set(validation.input_shape(name).members)
    known = set(OPERATIONS[name].request.__struct_encode_fields__)
    missing = {m for m in members - known - NOT_USED if (name, m) not in NOT_CHECKED}
    assert missing == set()
