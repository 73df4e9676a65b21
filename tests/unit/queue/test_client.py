"""The values of answers, and requests that are refused before a call."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
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
from sparkinesis.queue import client as queue_client
from sparkinesis.queue.address import QueueAddress
from sparkinesis.queue.client import (
    Answered,
    QueueClient,
    Received,
    answered,
    decode_description,
    explain_queue,
    queue_attributes,
)
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


NOWHERE = QueueClient(
    QueueAddress(
        "arn:aws:kinesis:us-east-1:123456789012:queue/a", None, "us-east-1", "http://127.0.0.1:9"
    )
)


def test_an_answer_is_matched_by_the_handles_in_their_order() -> None:
    body = {
        "Successful": [{"ReceiptHandle": "c"}, {"ReceiptHandle": "a", "New": 1}],
        "Failed": [
            {"ReceiptHandle": "b", "ErrorCode": "ThrottlingException", "ErrorMessage": "slow"},
            {"ReceiptHandle": "d", "ErrorCode": "InternalFailureException"},
        ],
        "Newer": {},
    }
    assert answered(["a", "b", "c", "d"], json.dumps(body).encode()) == [
        Answered("a", None),
        Answered("b", "ThrottlingException", "slow"),
        Answered("c", None),
        Answered("d", "InternalFailureException", ""),
    ]


def test_a_handle_that_is_not_named_is_unknown_and_another_ones_answer_is_not_its_own() -> None:
    body = b'{"Successful": [{"ReceiptHandle": "other"}], "Failed": []}'
    (found,) = answered(["a"], body)
    assert found.code == "Unknown"
    assert "does not name" in found.message
    assert [one.code for one in answered(["a", "b"], b"{}")] == ["Unknown"] * 2


def test_a_handle_that_is_named_both_ways_has_failed() -> None:
    """What has failed is tried again, or told; what has succeeded is forgotten."""
    body = {
        "Successful": [{"ReceiptHandle": "a"}],
        "Failed": [{"ReceiptHandle": "a", "ErrorCode": "ThrottlingException"}],
    }
    assert answered(["a"], json.dumps(body).encode())[0].code == "ThrottlingException"


@pytest.mark.parametrize(
    "body", [b'{"Successful": [{}]}', b'{"Failed": [{"ReceiptHandle": "a"}]}', b"[]", b'{"Succ']
)
def test_an_answer_of_another_form_is_none(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        answered(["a"], body)


@pytest.mark.parametrize("handles", [[], ["a", "b", "a"], [str(n) for n in range(11)]])
def test_handles_that_cannot_be_answered_each_are_refused_before_the_call(
    handles: list[str],
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: NOWHERE.acknowledge(handles),
        lambda: NOWHERE.set_visibility([(handle, n) for n, handle in enumerate(handles)]),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="takes 1 to 10 receipt handles, each once"):
            call()


RECORD: dict[str, Any] = {
    "ReceiptHandle": "h",
    "RecordId": "r",
    "Data": base64.b64encode(b"\x00\xff").decode(),
    "ApproximateArrivalTimestamp": 1.79e9,
    "FirstReceiveTimestamp": 1_790_000_001,
    "ReceiveCount": 3,
    "PartitionKey": "k",
}


def test_a_record_has_what_the_service_says() -> None:
    found = msgspec.json.decode(json.dumps({**RECORD, "New": []}), type=Received)
    assert found == Received("h", "r", b"\x00\xff", "k", 1.79e9, 1_790_000_001.0, 3)


def test_the_decoder_of_json_sees_no_large_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take five times as long."""
    seen: list[int] = []
    decoder = queue_client._RECEIVED

    class Watched:
        def decode(self, body: bytes) -> Any:
            seen.append(len(body))
            return decoder.decode(body)

    monkeypatch.setattr(queue_client, "_RECEIVED", Watched())
    large = {**RECORD, "Data": base64.b64encode(b"x" * 50_000).decode()}
    body = json.dumps({"QueueRecords": [large] * 3}, separators=(",", ":")).encode()
    monkeypatch.setattr(queue_client, "_sent", lambda *_: body)
    monkeypatch.setattr(NOWHERE, "call_once", lambda _, call: call(None))
    assert [one.data for one in NOWHERE.receive(3, 1)] == [b"x" * 50_000] * 3
    assert [size < 1000 for size in seen] == [True]


def test_a_record_may_lack_its_key_and_its_times() -> None:
    needed = {"ReceiptHandle", "RecordId", "Data", "ReceiveCount"}
    body = json.dumps({name: RECORD[name] for name in needed})
    assert msgspec.json.decode(body, type=Received) == Received(
        "h", "r", b"\x00\xff", receive_count=3
    )
    for missing in needed:
        with pytest.raises(msgspec.ValidationError, match=missing):
            msgspec.json.decode(
                json.dumps({name: RECORD[name] for name in needed - {missing}}), type=Received
            )


def described(**others: Any) -> bytes:
    description = {
        "QueueName": "orders",
        "QueueARN": "arn:q",
        "QueueStatus": "ACTIVE",
        "QueueCreationTimestamp": 1.79e9,
        "StreamConfigurationList": [{"StreamARN": "arn:s"}],
        **others,
    }
    return json.dumps({"QueueDescription": description}).encode()


def test_a_description_has_the_services_defaults_where_nothing_is_said() -> None:
    found = decode_description(described())
    assert (found.name, found.arn, found.status, found.created_at, found.stream_arn) == (
        "orders",
        "arn:q",
        "ACTIVE",
        1.79e9,
        "arn:s",
    )
    assert found.streams[0].starting_position == {}
    assert (found.visibility_timeout, found.max_receive_count) == (30, 6)


@pytest.mark.parametrize(
    ("dead_letters", "count"),
    [
        ({"TargetType": "BUILT_IN", "MaxReceiveCount": 1000}, 1000),
        ({"TargetType": "NONE"}, None),
        ({"TargetType": "NONE", "MaxReceiveCount": 6}, None),
    ],
)
def test_a_description_says_when_a_record_becomes_a_dead_letter(
    dead_letters: dict[str, Any], count: int | None
) -> None:
    start = {"Type": "AT_TIMESTAMP", "Timestamp": 1.5}
    body = described(
        StreamConfigurationList=[{"StreamARN": "arn:s", "StartingPosition": start}],
        QueueAttributes={"VisibilityTimeoutSeconds": 0, "DeadLetterConfiguration": dead_letters},
    )
    found = decode_description(body)
    assert (found.visibility_timeout, found.max_receive_count) == (0, count)
    assert found.streams[0].starting_position == start


def test_a_description_without_a_stream_is_none() -> None:
    with pytest.raises(ValueError, match="names no stream"):
        decode_description(described(StreamConfigurationList=[]))


def test_an_attribute_that_is_not_given_is_not_sent() -> None:
    assert queue_attributes(None, msgspec.UNSET) == {}
    assert queue_attributes(0, None) == {
        "VisibilityTimeoutSeconds": 0,
        "DeadLetterConfiguration": {"TargetType": "NONE"},
    }
    assert queue_attributes(None, 7) == {
        "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 7}
    }
