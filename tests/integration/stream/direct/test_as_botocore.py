"""Each fault and setting has the same effect on a direct call as on botocore's."""

from __future__ import annotations

import json
import re
import socket
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.direct.direct_client import DirectClient
from sparkinesis.stream.page import Fetched
from tests.integration.stream.direct.both import BODY, FINE, SERVICES, clients, outcome
from tests.integration.stream.direct.raw_server import (
    Behaviour,
    RawServer,
    close,
    http,
    reset,
    serving,
    silence,
)

pytestmark = pytest.mark.usefixtures("credentials")


THROTTLED = http(
    b'{"__type":"ProvisionedThroughputExceededException","message":"slow"}', "400 Bad Request"
)

FAULTS: dict[str, Behaviour] = {
    "an answer": FINE,
    "an answer in chunks": http(BODY, chunked=True),
    "an answer with the end of the connection": http(BODY, stays=False, Connection="close"),
    "an answer of HTTP/1.0": http(BODY, version="1.0", stays=False),
    "500 with a body": http(b'{"__type":"InternalFailure","message":"no"}', "500 Oops"),
    "500 without a body": http(b"", "500 Internal Server Error"),
    "503 without a body": http(b"", "503 Service Unavailable"),
    "503 of a web server": http(b"<html>no</html>", "503 Service Unavailable"),
    "502 of a load balancer": http(b"<html>no</html>", "502 Bad Gateway"),
    "throttling": THROTTLED,
    "a namespace before the code": http(
        b'{"__type":"com.amazonaws.kinesis#ResourceNotFoundException","Message":"who"}',
        "400 Bad Request",
    ),
    "what is not there": http(
        b'{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"no"}',
        "400 Bad Request",
        x_amzn_requestid="7",
    ),
    "what is there already": http(
        b'{"__type":"ResourceInUseException:http://x","message":"there"}', "400 Bad Request"
    ),
    "what is not there, by another status": http(
        b'{"__type":"ResourceNotFoundException","message":"no"}', "404 Not Found"
    ),
    "what is not there, with a field more": http(
        b'{"__type":"ResourceNotFoundException","message":"no","Message":"yes"}', "400 Bad Request"
    ),
    "what is not there, without a message": http(
        b'{"__type":"ResourceNotFoundException"}', "400 Bad Request"
    ),
    "what is not there, with a number": http(
        b'{"__type":"ResourceNotFoundException","message":7}', "400 Bad Request"
    ),
    "what is not there, by the code of a query": http(
        b'{"__type":"ResourceNotFoundException","message":"no"}',
        "400 Bad Request",
        x_amzn_query_error="NonExistent;Sender",
    ),
    "the code in a header": http(
        b'{"message":"no"}', "400 Bad Request", x_amzn_errortype="AccessDeniedException:http://x"
    ),
    "a refused condition with its row": http(
        b'{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",'
        b'"message":"no","Item":{"a":{"S":"b"}}}',
        "400 Bad Request",
    ),
    "413": http(b"", "413 Payload Too Large"),
    "a redirect": http(b"", "307 Temporary Redirect"),
    "a reset in place of an answer": reset(),
    "a reset within the headers": reset(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "an end in place of an answer": close(),
    "silence": silence(),
    "silence within the headers": silence(b"HTTP/1.1 200 OK\r\nContent-Le"),
}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_looks_the_same(server: RawServer, service: str, fault: str) -> None:
    plain, direct = clients(server.endpoint, service)
    with closing(plain), closing(direct):
        outcomes = []
        for client in (plain, direct):
            server.behaviours.extend([FINE, FAULTS[fault]])
            outcome(client, service)
            outcomes.append(outcome(client, service))
    assert outcomes[0] == outcomes[1]
    assert len(server.requests) == 4
    sdk = ["amz-sdk-invocation-id" in request.headers for request in server.requests]
    assert sdk == [True, True, False, False]  # the last two were made directly


CUT = {
    "reset in the body": reset(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
    "end in the headers": close(b"HTTP/1.1 200 OK\r\nContent-Le"),
    "no HTTP": close(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "no HTTP/1": http(version="2"),
    "a folded header": close(b"HTTP/1.1 400 No\r\nA: x\r\n b: y\r\nContent-Length: 2\r\n\r\n{}"),
    "a bare line end": close(b"HTTP/1.1 400 No\r\nA: x\nB: y\r\nContent-Length: 2\r\n\r\n{}"),
    "headers without an end": close(b"HTTP/1.1 200 OK\r\nA: " + bytes(70_000)),
}


@pytest.mark.parametrize("cut", CUT)
def test_an_answer_that_is_cut_short_is_no_answer(
    server: RawServer, direct: DirectClient, cut: str
) -> None:
    """botocore takes some of these for whole, and empty, answers."""
    server.behaviours.extend([FINE, CUT[cut]])
    outcome(direct, "kinesis")
    assert outcome(direct, "kinesis") == ("ConnectionClosedError", True, True)


def test_a_reset_before_the_request_is_read(server: RawServer) -> None:
    plain, direct = clients(server.endpoint)
    with closing(plain), closing(direct):
        outcomes = []
        for client in (plain, direct):
            server.behaviours.append(http(stays=False, Connection="close"))
            outcome(client, "kinesis")
            server.resets_next = True
            outcomes.append(outcome(client, "kinesis")[1:])
    assert outcomes[0] == outcomes[1] == (True, True)


def test_nobody_listens() -> None:
    with serving() as gone:
        pass
    found = [outcome(client, "kinesis") for client in clients(gone.endpoint)]
    assert found[0] == found[1] == ("EndpointConnectionError", True, True)


def test_dynamodb_answers_with_another_checksum_are_refused(server: RawServer) -> None:
    _, direct = clients(server.endpoint, "dynamodb")
    body = b'{"Item": {"leaseKey": {"S": "k"}}}'
    with closing(direct):
        server.behaviours.append(http(body))
        outcome(direct, "dynamodb")
        server.behaviours.append(http(body, x_amz_crc32=str(zlib.crc32(body))))
        assert outcome(direct, "dynamodb")[1] == 200
        server.behaviours.append(http(body, x_amz_crc32=str(zlib.crc32(body) ^ 1)))
        assert outcome(direct, "dynamodb") == ("ChecksumError", True, True)


EXPIRED = http(
    b'{"__type":"InvalidSignatureException","message":"Signature expired"}',
    "400 Bad Request",
    Date="Mon, 21 Sep 2020 14:13:20 GMT",
)


def test_a_wrong_clock_is_corrected_by_the_services(
    server: RawServer, direct: DirectClient
) -> None:
    server.behaviours.extend([FINE, EXPIRED, FINE, FINE, FINE])
    outcome(direct, "kinesis")
    assert outcome(direct, "kinesis")[1] == 200
    assert outcome(direct, "kinesis")[1] == 200
    direct.list_streams()  # by botocore
    dates = [request.headers["x-amz-date"][:13] for request in server.requests]
    assert dates[2:] == ["20200921T1413"] * 3


def test_a_call_by_botocore_corrects_a_wrong_clock_too(
    server: RawServer, direct: DirectClient
) -> None:
    server.behaviours.extend([EXPIRED, FINE, FINE])
    direct.describe_stream_summary(StreamName="s")
    assert outcome(direct, "kinesis")[1] == 200
    dates = [request.headers["x-amz-date"][:13] for request in server.requests]
    assert dates[1:] == ["20200921T1413"] * 2
    assert dates[0] != dates[1]
    signatures = [request.headers["authorization"] for request in server.requests]
    assert "/20200921/us-east-1/kinesis/" in signatures[1]


def test_threads_whose_calls_were_signed_before_the_correction_call_again(
    server: RawServer,
) -> None:
    """Both are refused for their dates; the second one when the first has corrected the clock."""
    _, direct = clients(server.endpoint)
    both_asked = threading.Barrier(2)

    def refuse(connection: socket.socket) -> bool:
        both_asked.wait(30)
        return EXPIRED(connection)

    with closing(direct), ThreadPoolExecutor(2) as threads:
        server.behaviours.extend([FINE, refuse, refuse, FINE, FINE])
        outcome(direct, "kinesis")
        found = list(threads.map(lambda _: outcome(direct, "kinesis")[1], range(2)))
    assert found == [200, 200]


def test_requests_that_were_sent_before_the_correction_are_sent_again(server: RawServer) -> None:
    _, direct = clients(server.endpoint)
    request = SERVICES["kinesis"][1]
    all_asked = threading.Barrier(2)

    def answer(connection: socket.socket) -> bool:
        all_asked.wait(30)  # so that two connections are kept
        return FINE(connection)

    with closing(direct), ThreadPoolExecutor(2) as threads:
        assert direct.send_ahead("GetShardIterator", request) is None  # the first one of its kind
        server.behaviours.extend([answer, answer, EXPIRED, EXPIRED, FINE, FINE])
        list(threads.map(lambda _: outcome(direct, "kinesis"), range(2)))
        answers = [direct.send_ahead("GetShardIterator", request) for _ in range(2)]
        assert direct.send_ahead("GetShardIterator", request) is None
        assert [answer()["ShardIterator"] for answer in answers] == ["7", "7"]


def test_a_wrong_secret_is_not_taken_for_a_wrong_clock(
    server: RawServer, direct: DirectClient
) -> None:
    refused = http(
        b'{"__type":"InvalidSignatureException","message":"The signature does not match"}',
        "400 Bad Request",
    )
    server.behaviours.extend([FINE, refused])
    outcome(direct, "kinesis")
    assert outcome(direct, "kinesis")[1] == "InvalidSignatureException"
    assert len(server.requests) == 2


OF_BOTOCORE = {"amz-sdk-invocation-id", "amz-sdk-request"}
"""Headers that number the attempts of botocore's retries."""


@pytest.mark.parametrize("token", [None, "token"])
@pytest.mark.parametrize("service", SERVICES)
def test_the_request_is_that_of_botocore(
    server: RawServer, monkeypatch: pytest.MonkeyPatch, service: str, token: str | None
) -> None:
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    plain, direct = clients(server.endpoint, service)
    with closing(plain), closing(direct):
        server.behaviours.extend([FINE] * 3)
        for client in (plain, direct, direct):
            outcome(client, service)
    botocores, *others = server.requests
    for ours in others:
        assert json.loads(ours.body) == json.loads(botocores.body)
        assert botocores.headers.keys() - ours.headers.keys() == OF_BOTOCORE
        assert not ours.headers.keys() - botocores.headers.keys()
        for name in botocores.headers.keys() - OF_BOTOCORE - VARYING:
            assert ours.headers[name] == botocores.headers[name], name
        signed = [each.headers["authorization"].split(", ")[:2] for each in (botocores, ours)]
        assert signed[0] == signed[1]
        assert ours.headers.get("x-amz-security-token") == token


VARYING = {"authorization", "x-amz-date", "content-length", "user-agent"}
"""botocore writes JSON with spaces, and its user agent tells of its retries."""


INSTANT = datetime(2026, 9, 21, 14, 13, 20, 654_321, timezone(timedelta(hours=2)))
REQUESTS: dict[str, dict[str, Any]] = {
    "GetShardIterator": {
        "StreamName": "s",
        "ShardId": "i",
        "ShardIteratorType": "AT_TIMESTAMP",
        "Timestamp": INSTANT,
    },
    "ListShards": {
        "StreamName": "s",
        "ShardFilter": {"Type": "FROM_TIMESTAMP", "Timestamp": INSTANT},
    },
    "SubscribeToShard": {
        "ConsumerARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s/consumer/c:1",
        "ShardId": "i",
        "StartingPosition": {"Type": "AT_TIMESTAMP", "Timestamp": INSTANT},
    },
    "CreateQueue": {
        "QueueName": "q",
        "StreamConfigurationList": [
            {
                "StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s",
                "StartingPosition": {"Type": "AT_TIMESTAMP", "Timestamp": INSTANT},
            }
        ],
        "QueueAttributes": {
            "VisibilityTimeoutSeconds": 0,
            "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 1000},
        },
        "Tags": {"team": "k\u00e9"},
    },
    "PutRecords": {
        "StreamName": "s",
        "Records": [{"Data": b"\x00\xff\n", "PartitionKey": "k\u00e9\U0001f600"}],
    },
}


@pytest.mark.parametrize("operation", REQUESTS)
def test_a_body_says_what_botocores_says(server: RawServer, operation: str) -> None:
    plain, direct = clients(server.endpoint, "kinesis", operation)
    method = re.sub(r"(?<!^)(?=[A-Z])", "_", operation).lower()
    with closing(plain), closing(direct):
        server.behaviours.extend([THROTTLED] * 2)
        for client in (plain, direct):
            with pytest.raises(ClientError):
                getattr(client, method)(**REQUESTS[operation])
    by_botocore, directly = (json.loads(request.body) for request in server.requests)
    assert directly == by_botocore


def test_behind_a_proxy_pages_are_those_of_direct_calls(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = http(b'{"Records":[{"Data":"QUJD","PartitionKey":"k","SequenceNumber":"7"}]}')
    server.behaviours.extend([page, page])

    def fetched(endpoint: str) -> Fetched:
        client = StreamClient(
            StreamAddress("s", None, "us-east-1", endpoint), wall_clock_ms=lambda: 1
        )
        return client.get_records("shardId-0", "i", 10)

    directly = fetched(server.endpoint)
    monkeypatch.setenv("HTTP_PROXY", server.endpoint)
    assert fetched("http://kinesis.test") == directly
    assert [record.data for record in directly.page.records] == [b"ABC"]
    assert ["amz-sdk-request" in request.headers for request in server.requests] == [False, True]
