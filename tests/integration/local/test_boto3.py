"""Unmodified boto3 against the server: responses, exceptions, paginators, waiters."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import datetime, timezone
from io import BytesIO
from typing import Any

import pytest
import urllib3
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from sparkinesis.local import LocalServer, ManualClock
from tests.integration.local.conftest import once


def test_a_record_makes_the_round_trip(kinesis: Any, clock: ManualClock) -> None:
    kinesis.create_stream(StreamName="s", ShardCount=1)
    kinesis.get_waiter("stream_exists").wait(StreamName="s")
    put = kinesis.put_record(StreamName="s", Data=b"\x00\xff", PartitionKey="ké")
    shard = put["ShardId"]
    iterator = kinesis.get_shard_iterator(
        StreamName="s",
        ShardId=shard,
        ShardIteratorType="AT_TIMESTAMP",
        Timestamp=datetime.fromtimestamp(clock() // 1000, tz=timezone.utc),
    )["ShardIterator"]
    page = kinesis.get_records(ShardIterator=iterator)
    (record,) = page["Records"]
    assert (record["Data"], record["PartitionKey"]) == (b"\x00\xff", "ké")
    assert record["SequenceNumber"] == put["SequenceNumber"]
    arrived = record["ApproximateArrivalTimestamp"]
    assert round(arrived.timestamp() * 1000) == clock()
    headers = page["ResponseMetadata"]["HTTPHeaders"]
    assert headers["date"] == "Fri, 15 Jan 2027 08:00:00 GMT"
    assert headers["content-type"] == "application/x-amz-json-1.1"
    assert page["ResponseMetadata"]["RequestId"]


def test_errors_arrive_as_the_exceptions_of_the_client(kinesis: Any, clock: ManualClock) -> None:
    kinesis.create_stream(StreamName="s", ShardCount=1)
    with pytest.raises(kinesis.exceptions.ResourceNotFoundException) as caught:
        kinesis.describe_stream(StreamName="none")
    answer = caught.value.response
    assert answer["Error"]["Message"] == "Stream none under account 123456789012 not found."
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 400
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-amzn-errortype"] == "ResourceNotFoundException"
    with pytest.raises(kinesis.exceptions.ResourceInUseException):
        kinesis.create_stream(StreamName="s", ShardCount=1)
    with pytest.raises(kinesis.exceptions.InvalidArgumentException):
        kinesis.get_records(ShardIterator="AAAA")
    iterator = kinesis.get_shard_iterator(
        StreamName="s", ShardId="shardId-000000000000", ShardIteratorType="LATEST"
    )["ShardIterator"]
    clock.advance(300_001)
    with pytest.raises(kinesis.exceptions.ExpiredIteratorException):
        kinesis.get_records(ShardIterator=iterator)
    with pytest.raises(ClientError, match="UnknownOperationException"):
        kinesis.list_channels()


def test_a_stream_id_leads_an_sdk_away_from_the_endpoint(kinesis: Any) -> None:
    """And not the server, to which it is nothing: docs/local-server.md says so."""
    asked: list[str] = []

    def answer(request: Any, **_: Any) -> AWSResponse:
        asked.append(request.url)
        raw = urllib3.HTTPResponse(BytesIO(b"{}"), preload_content=False)
        return AWSResponse(request.url, 200, {}, raw)

    kinesis.meta.events.register("before-send.kinesis.DescribeStreamSummary", answer)
    identity = f"{'a' * 20}-{'b' * 3}"
    kinesis.describe_stream_summary(StreamId=identity)
    assert asked == [f"https://{'a' * 20}.bbb.control-kinesis.us-east-1.amazonaws.com/"]
    kinesis.describe_stream_summary(StreamName="s")
    assert asked[1:] == [f"{kinesis.meta.endpoint_url}/"]


def test_the_region_is_that_of_the_signature(server: LocalServer, kinesis: Any) -> None:
    kinesis.create_stream(StreamName="s", ShardCount=1)
    ireland = once(server, "kinesis", "eu-west-1")
    with pytest.raises(ireland.exceptions.ResourceNotFoundException):
        ireland.describe_stream_summary(StreamName="s")
    ireland.create_stream(StreamName="s", ShardCount=1)
    summary = ireland.describe_stream_summary(StreamName="s")["StreamDescriptionSummary"]
    assert summary["StreamARN"] == "arn:aws:kinesis:eu-west-1:123456789012:stream/s"
    assert server.kinesis.calls.select("CreateStream")[-1].region == "eu-west-1"


def raw(server: LocalServer, headers: dict[str, str], body: bytes = b"{}") -> tuple[int, str]:
    request = urllib.request.Request(server.endpoint_url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, ""
    except urllib.error.HTTPError as error:
        with error:
            text = error.read()
        return error.code, json.loads(text)["__type"] if text else ""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, (200, "")),
        ({"Authorization": None}, (400, "MissingAuthenticationTokenException")),
        ({"X-Amz-Target": "Kinesis_20131202.Nonsense"}, (400, "UnknownOperationException")),
        ({"X-Amz-Target": "Kinesis_19990101.ListStreams"}, (400, "UnknownOperationException")),
        ({"X-Amz-Target": "Kinesis_20131202"}, (400, "UnknownOperationException")),
        ({"X-Amz-Target": "ListStreams"}, (400, "UnknownOperationException")),
        ({"X-Amz-Target": "DynamoDB_20120810"}, (400, "UnknownOperationException")),
        ({"X-Amz-Target": None}, (400, "UnknownOperationException")),
        (
            {"X-Amz-Target": "Nonsense.ListStreams", "Authorization": None},
            (400, "UnknownOperationException"),
        ),
        (
            {"X-Amz-Target": "Nonsense.ListStreams", "Content-Type": "application/x-amz-json-1.0"},
            (400, "UnknownOperationException"),
        ),
        ({"Content-Type": "application/x-amz-ion-1.0"}, (415, "UnsupportedMediaType")),
    ],
)
def test_requests_that_no_sdk_sends(
    server: LocalServer, change: dict[str, str | None], expected: tuple[int, str]
) -> None:
    headers = {
        "X-Amz-Target": "Kinesis_20131202.ListStreams",
        "Content-Type": "application/x-amz-json-1.1",
        "Authorization": "AWS4-HMAC-SHA256 Credential=x/20270115/us-east-1/kinesis/aws4_request",
        **change,
    }
    assert raw(server, {k: v for k, v in headers.items() if v is not None}) == expected


def test_a_stopped_server_refuses_connections_and_can_start_again(clock: ManualClock) -> None:
    server = LocalServer(clock=clock, limits=False)
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.endpoint_url
    with server:
        once(server, "kinesis").create_stream(StreamName="s", ShardCount=1)
        url = server.endpoint_url
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)
    with server:
        assert once(server, "kinesis").list_streams()["StreamNames"] == ["s"]
