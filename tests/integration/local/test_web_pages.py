"""What web pages can do to the local server: nothing. Real HTTP, with the headers of a browser."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.exceptions import ClientError

from sparkinesis.local import LocalServer
from tests.http2 import JSON, Http2Client
from tests.integration.local.conftest import once
from tests.kcl import create_table

EVIL = "http://evil.example"
DELETE = {
    "X-Amz-Target": "Kinesis_20131202.DeleteStream",
    "Content-Type": JSON,
    "Authorization": "AWS4-HMAC-SHA256 Credential=x/20261121/us-east-1/kinesis/aws4_request",
}
BODY = json.dumps({"StreamName": "s"})
PREFLIGHT = {
    "Origin": EVIL,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,x-amz-target",
}


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalServer]:
    with LocalServer(dynamodb=True, host_names=["kinesis"], limits=False) as running:
        yield running


@pytest.fixture
def stream(shared: LocalServer) -> Iterator[str]:
    shared.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
    yield "s"
    if shared.kinesis.call("ListStreams")["StreamNames"]:
        shared.kinesis.call("DeleteStream", StreamName="s")


def streams(server: LocalServer) -> list[str]:
    return list(server.kinesis.call("ListStreams")["StreamNames"])


def send(
    server: LocalServer,
    method: str,
    path: str = "/",
    *,
    body: str = "",
    headers: dict[str, str] | None = None,
    url: str | None = None,
) -> tuple[int, dict[str, str], str]:
    """Send a request; return the status, the headers in lower case, and the body."""
    connection = http.client.HTTPConnection(urlsplit(url or server.endpoint_url).netloc, timeout=20)
    try:
        connection.request(method, path, body or None, headers or {})
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, found, response.read().decode()
    finally:
        connection.close()


def assert_no_page_may_read(headers: dict[str, str]) -> None:
    assert [name for name in headers if name.startswith("access-control-")] == []


@pytest.mark.parametrize("target", [DELETE["X-Amz-Target"], "DynamoDB_20120810.ListTables", None])
def test_a_preflight_is_refused(shared: LocalServer, target: str | None) -> None:
    headers = {**PREFLIGHT, **({"X-Amz-Target": target} if target else {})}
    status, answered, _ = send(shared, "OPTIONS", headers=headers)
    assert status == 403
    assert_no_page_may_read(answered)


def test_options_are_answered_without_a_word_of_other_sites(shared: LocalServer) -> None:
    for path in ("/", "/moto-api/"):
        status, answered, _ = send(shared, "OPTIONS", path)
        assert (status, answered["allow"]) == (200, "GET, HEAD, OPTIONS, POST")
        assert_no_page_may_read(answered)


@pytest.mark.parametrize(
    "browser",
    [
        {"Origin": EVIL},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
    ],
)
def test_a_page_cannot_delete_a_stream(
    shared: LocalServer, stream: str, browser: dict[str, str]
) -> None:
    status, answered, said = send(shared, "POST", body=BODY, headers={**DELETE, **browser})
    assert status == 403
    assert json.loads(said)["__type"] == answered["x-amzn-errortype"] == "RequestRefused"
    assert_no_page_may_read(answered)
    assert streams(shared) == [stream]
    assert send(shared, "POST", body=BODY, headers=DELETE)[0] == 200
    assert streams(shared) == []


def test_a_page_cannot_delete_a_stream_over_http_2(shared: LocalServer, stream: str) -> None:
    headers = [(name.lower(), value) for name, value in DELETE.items()]
    with Http2Client(shared.endpoint_url) as client:
        for more in ([("origin", EVIL)], [("sec-fetch-site", "cross-site")]):
            number = client.request("POST", "/", [*headers, *more], BODY.encode())
            assert client.answer(number).status == 403
        own, client.authority = client.authority, "evil.example"
        number = client.request("POST", "/", headers, BODY.encode())
        assert client.answer(number).status == 403
        # With both, as some libraries send them.
        client.authority = own
        number = client.request("POST", "/", [*headers, ("host", own)], BODY.encode())
        assert client.answer(number).status == 200
    assert streams(shared) == []


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain"])
def test_a_form_that_needs_no_preflight_is_refused(shared: LocalServer, kind: str) -> None:
    form = "Action=GetCallerIdentity&Version=2011-06-15"
    before = shared.kinesis.calls.count("GetCallerIdentity")
    headers = {"Content-Type": kind, "Origin": EVIL}
    status, answered, _ = send(shared, "POST", body=form, headers=headers)
    assert status == 403
    assert_no_page_may_read(answered)
    assert shared.kinesis.calls.count("GetCallerIdentity") == before


def test_the_refusal_of_a_name_says_how_to_allow_it(shared: LocalServer) -> None:
    """In the protocol of each service, so that its SDK shows the message."""
    for service, call in (
        ("kinesis", "list_streams"),
        ("dynamodb", "list_tables"),
        ("sts", "get_caller_identity"),
    ):
        client = once(shared, service)

        def rename(request: Any, **_: Any) -> None:
            request.headers["Host"] = "queue:4566"

        client.meta.events.register("before-send", rename)
        with pytest.raises(ClientError) as caught:
            getattr(client, call)()
        error = caught.value.response["Error"]
        assert error["Code"] == "RequestRefused"
        assert "'queue:4566'" in error["Message"]
        assert "--host-name" in error["Message"]


def test_answers_of_moto_let_no_page_read_them(shared: LocalServer) -> None:
    headers = {
        **DELETE,
        "X-Amz-Target": "DynamoDB_20120810.ListTables",
        "Content-Type": "application/x-amz-json-1.0",
        "Origin": shared.endpoint_url,  # its own, so that moto sees one
    }
    status, answered, _ = send(shared, "POST", body="{}", headers=headers)
    assert status == 200
    assert_no_page_may_read(answered)


def test_moto_itself_answers_the_local_server_only(shared: LocalServer) -> None:
    """moto's own port: a page that finds it by trying all ports cannot use it."""
    port = moto_port(shared)
    for headers in ({}, {"X-Sparkinesis-Secret": "0" * 32}, PREFLIGHT):
        for method, path in (("POST", "/"), ("GET", "/moto-api/"), ("OPTIONS", "/")):
            answer = send(shared, method, path, body="{}", headers={**DELETE, **headers}, url=port)
            assert (answer[0], answer[2]) == (403, "")
            assert_no_page_may_read(answer[1])


def moto_port(server: LocalServer) -> str:
    host: Any = server._host
    pool = host.moto.start()
    return f"http://127.0.0.1:{pool.port}"


@pytest.mark.parametrize(
    ("service", "call"),
    [
        ("firehose", "list_delivery_streams"),
        ("dynamodbstreams", "list_streams"),
        ("iam", "list_users"),
    ],
)
def test_no_other_service_of_moto_answers(shared: LocalServer, service: str, call: str) -> None:
    before = len(shared.kinesis.calls)
    with pytest.raises(ClientError, match="the local server has Kinesis, DynamoDB and STS, and"):
        getattr(once(shared, service), call)()
    assert len(shared.kinesis.calls) == before


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/moto-api/data.json"),
        ("POST", "/moto-api/reset"),
        ("PUT", "/bucket"),
        ("GET", "/latest/meta-data/iam/security-credentials/default-role"),
        ("DELETE", "/"),
    ],
)
def test_no_other_page_of_moto_answers(shared: LocalServer, method: str, path: str) -> None:
    create_table(once(shared, "dynamodb"), "kept", "k")
    status, _, said = send(shared, method, path)
    assert status == (400 if method == "POST" else 405)
    assert "Kinesis" in said
    assert once(shared, "dynamodb").list_tables()["TableNames"] == ["kept"]
    once(shared, "dynamodb").delete_table(TableName="kept")


def test_a_signature_for_another_service_reaches_none(shared: LocalServer) -> None:
    """moto itself would choose the service by the signature."""
    signed = DELETE["Authorization"]
    headers = {
        "Authorization": signed.replace("/kinesis/", "/s3/"),
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDB_20120810.ListTables",
    }
    status, _, said = send(shared, "POST", body="{}", headers=headers)
    assert (status, json.loads(said)) == (200, {"TableNames": []})
    form = {
        "Authorization": signed.replace("/kinesis/", "/iam/"),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    status, _, said = send(shared, "POST", body="Action=ListUsers&Version=2010-05-08", headers=form)
    assert status == 400
    assert "nothing for 'iam'" in said


def test_a_call_of_sts_has_a_limit(shared: LocalServer) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    call = "Action=GetCallerIdentity&Version=2011-06-15&Token="
    for size, expected in ((100_000, 200), (300_000, 413)):
        assert send(shared, "POST", body=call + "x" * size, headers=form)[0] == expected


def test_the_start_page_answers_people(shared: LocalServer) -> None:
    typed = {"Sec-Fetch-Site": "none"}
    assert send(shared, "GET", headers=typed)[0] == 200
    assert send(shared, "HEAD")[::2] == (200, "")
    assert send(shared, "GET", headers={"Host": "evil.example"})[0] == 403
