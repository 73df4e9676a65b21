"""HTTP/1.1 as raw bytes: clients that offer another protocol (`Upgrade`)."""

from __future__ import annotations

import http.client
import json
import logging
from typing import Any

import pytest

from sparkinesis.local import LocalServer
from tests.http2 import JSON, connected
from tests.integration.local.conftest import records

# As Java's own client sends them.
OFFER = {
    "Connection": "Upgrade, HTTP2-Settings",
    "HTTP2-Settings": "AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAABgAGAAA",
    "Upgrade": "h2c",
}


def head(operation: str, body: bytes, **more: str) -> bytes:
    headers = {
        "Host": "localhost",
        "X-Amz-Target": f"Kinesis_20131202.{operation}",
        "Content-Type": JSON,
        "Authorization": "AWS4-HMAC-SHA256 Credential=key/20261121/us-east-1/x/y",
        "Content-Length": str(len(body)),
        **more,
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST / HTTP/1.1\r\n{lines}\r\n".encode()


def put(text: str) -> bytes:
    return json.dumps({"StreamName": "s", "Data": text, "PartitionKey": "k"}).encode()


def answer(sock: Any) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(sock)
    response.begin()
    return response.status, response.read()


@pytest.mark.parametrize("size", [1, 100, 1 << 20])
@pytest.mark.parametrize("upgrade", ["h2c", "websocket"])
def test_an_offer_to_upgrade_is_declined(
    server: LocalServer, caplog: pytest.LogCaptureFixture, upgrade: str, size: int
) -> None:
    """An offer is ignored wherever the bytes are cut, and however often it occurs."""
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
    offer = {**OFFER, "Upgrade": upgrade}
    with connected(server.endpoint_url) as sock:
        for text, more in (("AAAA", offer), ("BBBB", {}), ("CCCC", offer)):
            body = put(text)
            request = head("PutRecord", body, **more) + body
            for at in range(0, len(request), size):
                sock.sendall(request[at : at + size])
            status, answered = answer(sock)
            assert status == 200
            assert json.loads(answered)["ShardId"] == "shardId-000000000000"
    assert records(server) == [b"\0" * 3, b"\x04\x10A", b"\x08 \x82"]
    assert len(server.kinesis.calls.select("PutRecord")) == 3, "none is answered twice"
    assert {call.access_key for call in server.kinesis.calls.select("PutRecord")} == {"key"}
    assert caplog.messages == []


def test_a_chunked_body_behind_an_offer_arrives(server: LocalServer) -> None:
    server.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
    body = put("AAAA")
    front = head("PutRecord", body, **OFFER, **{"Transfer-Encoding": "chunked"})
    front = front.replace(b"Content-Length: %d\r\n" % len(body), b"")
    with connected(server.endpoint_url) as sock:
        sock.sendall(front + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert answer(sock)[0] == 200
    assert records(server) == [b"\0" * 3]


def test_a_part_of_a_request_is_none(
    server: LocalServer, kinesis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    body = b'{"StreamName": "s", "ShardCount": 1}  '
    for left in (len(body), 10, 1):  # the last one is whole, but for a space
        with connected(server.endpoint_url) as sock:
            sock.sendall(head("CreateStream", body) + body[: len(body) - left])
    for _ in range(3):  # turns of the server's loop
        assert kinesis.list_streams()["StreamNames"] == []
    assert [call.operation for call in server.kinesis.calls] == ["ListStreams"] * 3
    assert caplog.messages == []


def test_nonsense_is_refused_at_once(server: LocalServer) -> None:
    with connected(server.endpoint_url) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")  # as TLS begins
        assert answer(sock)[0] == 400
        assert sock.recv(1) == b""


def test_an_answer_comes_in_one_piece(server: LocalServer) -> None:
    """A client is woken once for it, and not for the head first."""
    request = head("ListStreams", b"{}") + b"{}"
    with connected(server.endpoint_url) as sock:
        for _ in range(50):
            sock.sendall(request)
            piece = sock.recv(1 << 16)
            assert piece.startswith(b"HTTP/1.1 200")
            assert json.loads(piece.partition(b"\r\n\r\n")[2])["StreamNames"] == []


def test_answers_of_all_sizes_come_whole_and_in_order(server: LocalServer) -> None:
    """The requests are sent before an answer is read: answers wait for the client."""
    call = server.kinesis.call
    call("CreateStream", StreamName="s", ShardCount=1)
    call("CreateStream", StreamName="s2", ShardCount=1)
    shard = {"ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    call("PutRecords", StreamName="s", Records=[{"Data": b"x" * 900_000, "PartitionKey": "k"}] * 9)
    large, none = (call("GetShardIterator", StreamName=name, **shard) for name in ("s", "s2"))
    asked = [large, none, none, large, none]
    with connected(server.endpoint_url) as sock:
        for iterator in asked:
            body = json.dumps(iterator).encode()
            sock.sendall(head("GetRecords", body) + body)
        # One reader for all: a response's own would read ahead, and keep the next one's bytes.
        reader = sock.makefile("rb")
        for iterator in asked:
            length = 0
            while line := reader.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            records = json.loads(reader.read(length))["Records"]
            assert [len(record["Data"]) for record in records] == (
                [1_200_000] * 9 if iterator is large else []
            )


def test_requests_are_not_logged(server: LocalServer, caplog: pytest.LogCaptureFixture) -> None:
    """Not even within pytest 9.1, which adds its handler to the logger that uvicorn silences."""
    silenced = logging.getLogger("uvicorn.access")
    silenced.addHandler(caplog.handler)
    caplog.set_level(logging.INFO)
    try:
        server.kinesis.call("CreateStream", StreamName="s", ShardCount=1)
        with connected(server.endpoint_url) as sock:
            sock.sendall(head("PutRecord", put("AAAA")) + put("AAAA"))
            assert answer(sock)[0] == 200
    finally:
        silenced.removeHandler(caplog.handler)
    assert caplog.messages == []
