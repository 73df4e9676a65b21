"""An error of a call on a queue says what is missing, and where."""

from __future__ import annotations

import re

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
)

from sparkinesis.errors import (
    AccessDeniedError,
    QueueNotFoundError,
    ServiceError,
    StreamNotFoundError,
)
from sparkinesis.queue.address import QueueAddress
from sparkinesis.queue.explain import explain_queue
from sparkinesis.stream.calls.direct.by_botocore import OldBotocoreError

ARN = "arn:aws:kinesis:eu-west-1:123456789012:queue/4rx"


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "Said so."}}, "x")


@pytest.mark.parametrize(
    ("error", "operation", "kind", "words"),
    [
        ("ResourceNotFoundException", "DescribeQueue", QueueNotFoundError, "made anew has another"),
        ("ResourceNotFoundException", "CreateQueue", StreamNotFoundError, "There is no stream"),
        ("AccessDeniedException", "ReceiveQueueRecords", AccessDeniedError,
         "kinesis:ReceiveQueueRecords on the queue, .* another account needs a resource policy"),
        ("AccessDeniedException", "CreateQueue", AccessDeniedError,
         "kinesis:CreateQueue, and kinesis:AssociateStreamsWithQueue on the stream"),
        ("AccessDeniedException", "ListQueues", AccessDeniedError, "ListQueues, or .* its ARN"),
        ("KMSAccessDeniedException", "ReceiveQueueRecords", AccessDeniedError,
         "kms:Decrypt on the key of"),
        ("UnknownOperationException", "ListQueues", ServiceError,
         "does not know ListQueues.* VPC endpoint service of their own"),
        ("LimitExceededException", "CreateQueue", ServiceError, "five queues .* 20 queues and"),
        ("LimitExceededException", "DescribeQueue", ServiceError, "Every retry was used up"),
        ("InvalidArgumentException", "DescribeQueue", ServiceError, "A retry would not help"),
        ("ExpiredTokenException", "DescribeQueue", AccessDeniedError, "expired"),
        (NoRegionError(), "ListQueues", ServiceError, "No region is set"),
        (NoCredentialsError(), "ListQueues", AccessDeniedError, "No AWS credentials were found"),
        (EndpointConnectionError(endpoint_url="https://a"), "ListQueues", ServiceError,
         "does not answer"),
        (OldBotocoreError(version="1.40", operation="ListQueues"), "ListQueues", ServiceError,
         r"A retry would not help.*botocore 1\.40, .*older than ListQueues.*boto3>=1\.44\.5"),
    ],
)  # fmt: skip
def test_each_error_has_its_cause_and_its_advice(
    error: str | BotoCoreError, operation: str, kind: type[Exception], words: str
) -> None:
    address = QueueAddress(ARN, "orders", "eu-west-1")
    given = refused(error) if isinstance(error, str) else error
    found = explain_queue(given, operation, str(address), address)
    assert type(found) is kind
    assert re.search(words, str(found)), found
    assert "queue 'orders' (4rx) in eu-west-1" in str(found)
    if isinstance(error, str) and error != "ExpiredTokenException":
        assert f"{error}: Said so." in str(found)


def test_a_queue_that_is_not_there_may_be_asked_for_at_the_endpoint_of_streams() -> None:
    error = refused("ResourceNotFoundException")
    given = QueueAddress(ARN, None, "eu-west-1", "https://vpce.test")
    by_aws = QueueAddress(ARN, None, "eu-west-1")
    hint = "VPC endpoint service of their own"
    assert hint in str(explain_queue(error, "DescribeQueue", "it", given))
    assert hint not in str(explain_queue(error, "DescribeQueue", "it", by_aws))


def test_what_the_service_says_cannot_move_a_terminals_cursor() -> None:
    error = ClientError({"Error": {"Code": "Odd", "Message": "\x1b[2J"}}, "x")
    address = QueueAddress(ARN, "a", "eu-west-1")
    assert str(explain_queue(error, "ListQueues", "it\n", address)).isprintable()
