"""Requests that never end, and those that are too large or too deep, over real HTTP."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from h2.errors import ErrorCodes

from sparkinesis.local import Fault, LocalServer, admission
from sparkinesis.local.wire import protocol_detector
from tests import pace
from tests.http2 import JSON, Http2Client, connected
from tests.integration.local.conftest import once
from tests.integration.local.test_http1 import answer, head
from tests.journal import PATIENCE
from tests.kcl import create_table

MIB = 1 << 20
SERVER = [sys.executable, "-m", "sparkinesis.local", "--port", "0", "--json"]


@pytest.fixture
def process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Return a server's process and its URL."""
    with subprocess.Popen(SERVER, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield running, json.loads(running.stdout.readline())["endpoint"]
        running.kill()


def memory(process: subprocess.Popen[str]) -> float:
    """Return the most memory that the process has had, in MB."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


_QUIET_TURNS = round(pace.seconds(50))
"""Turns of 20 ms in which the server takes nothing, until it is believed to wait."""


def send_all_together(sockets: list[socket.socket], data: bytes) -> None:
    """Send to every socket as much of the data as the server takes, until it takes no more."""
    left = {sock: memoryview(data) for sock in sockets}
    for sock in sockets:
        sock.settimeout(0)
    end = time.monotonic() + PATIENCE
    idle = 0
    while any(left.values()) and idle < _QUIET_TURNS:
        assert time.monotonic() < end
        taken = 0
        for sock, rest in left.items():
            with contextlib.suppress(BlockingIOError):
                count = sock.send(rest[:MIB]) if rest else 0
                left[sock], taken = rest[count:], taken + count
        idle = 0 if taken else idle + 1
        if not taken:
            time.sleep(0.02)
    for sock in sockets:
        sock.settimeout(PATIENCE)


def first_to_answer(sockets: list[socket.socket], count: int) -> Iterator[socket.socket]:
    with selectors.DefaultSelector() as waiting:
        for sock in sockets:
            waiting.register(sock, selectors.EVENT_READ)
        while count:
            answered = waiting.select(PATIENCE)[:count]
            assert answered, f"{count} more should answer"
            for key, _ in answered:
                waiting.unregister(key.fileobj)
                yield cast(socket.socket, key.fileobj)
            count -= len(answered)


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
@pytest.mark.parametrize("declared", ["Content-Length", "Transfer-Encoding"])
def test_half_sent_bodies_leave_the_server_small_and_working(
    process: tuple[subprocess.Popen[str], str], declared: str
) -> None:
    running, url = process
    first = head("PutRecords", bytes(31 * MIB))
    half = b" " * (30 * MIB)
    if declared == "Transfer-Encoding":
        length = b"Content-Length: %d" % (31 * MIB)
        first = first.replace(length, b"Transfer-Encoding: chunked") + b"%x\r\n" % (31 * MIB)
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connected(url)) for _ in range(12)]
        for sock in sockets:
            sock.sendall(first)
        send_all_together(sockets, half)
        other = stack.enter_context(connected(url))
        other.sendall(head("ListStreams", b"{}") + b"{}")
        assert answer(other)[0] == 200, "small calls go on"
        assert memory(running) < 250
        # Ten of them find no room, whichever they are. The rest of their bodies is thrown away.
        refused = list(first_to_answer(sockets, 10))
        assert [answer(sock)[0] for sock in refused] == [503] * 10
        send_all_together(refused, b" " * MIB)
        assert memory(running) < 250


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
def test_half_sent_bodies_over_http_2_leave_the_server_small_and_working(
    process: tuple[subprocess.Popen[str], str],
) -> None:
    running, url = process
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Http2Client(url)) for _ in range(12)]
        for client in clients:
            client.ping()
        for client in clients[:2]:  # they take all room
            client.begin("PutRecords", bytes(30 * MIB), length=31 * MIB)
        waiting = bytes((256 << 10) - 1)
        calls = [client.begin("PutRecords", waiting, length=31 * MIB) for client in clients[2:]]
        # One connection keeps as much as 32 streams may send, and those beyond are refused.
        many = [clients[2].begin("PutRecords", waiting, length=31 * MIB) for _ in range(100)]
        assert clients[2].call("ListStreams").status == 200, "small calls go on"
        resets = [clients[2].answers[number].reset for number in many]
        assert resets == [None] * 31 + [ErrorCodes.REFUSED_STREAM] * 69
        statuses = [
            client.answer(number).status for client, number in zip(clients[2:], calls, strict=True)
        ]
        assert statuses == [503] * 10
        assert memory(running) < 250


@pytest.mark.parametrize("kind", ["line", "fields", "one field", "trailer"])
def test_a_head_without_an_end_is_refused(server: LocalServer, kind: str) -> None:
    first, part = {
        "line": (b"POST /", b"x" * 1000),
        "fields": (b"POST / HTTP/1.1\r\n", b"a: " + b"b" * 995 + b"\r\n"),
        "one field": (b"POST / HTTP/1.1\r\na: ", b"b" * 1000),
        "trailer": (
            head("ListStreams", b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            + b"2\r\n{}\r\n0\r\na: ",
            b"b" * 1000,
        ),
    }[kind]
    with connected(server.endpoint_url) as sock:
        sock.sendall(first)
        sent = 0
        with contextlib.suppress(ConnectionError):
            for _ in range(20_000):
                sock.sendall(part)
                sent += len(part)
        assert sent < 15 * MIB, "the server has closed the connection"


def test_a_head_just_within_the_limit_is_served(server: LocalServer) -> None:
    request = head("ListStreams", b"{}", Filler="x" * 60_000) + b"{}"
    with connected(server.endpoint_url) as sock:
        for _ in range(2):
            for at in range(0, len(request), 1000):
                sock.sendall(request[at : at + 1000])
            assert answer(sock)[0] == 200


def test_many_small_chunks_are_one_body(server: LocalServer) -> None:
    body = b"{" + b" " * 40_000 + b"}"
    request = head("ListStreams", body).replace(
        b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked"
    )
    with connected(server.endpoint_url) as sock:
        sock.sendall(request + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert answer(sock)[0] == 200


@pytest.mark.parametrize(
    "sent",
    [b"", b"PRI", b"POST / HT", head("ListStreams", b"{}"), head("ListStreams", b"{}") + b"{"],
    ids=["nothing", "a preface", "a line", "a head", "a body"],
)
def test_a_connection_whose_request_does_not_go_on_is_closed(
    monkeypatch: pytest.MonkeyPatch, server: LocalServer, sent: bytes
) -> None:
    monkeypatch.setattr(protocol_detector, "IDLE_S", 0.05)
    with connected(server.endpoint_url) as sock:
        sock.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""


def test_a_refused_request_whose_body_does_not_end_is_closed(
    monkeypatch: pytest.MonkeyPatch, server: LocalServer
) -> None:
    monkeypatch.setattr(protocol_detector, "IDLE_S", 0.05)
    request = head("ListStreams", bytes(1000)).replace(b"Host: localhost", b"Host: evil.example")
    with connected(server.endpoint_url) as sock:
        sock.sendall(request)
        assert answer(sock)[0] == 403
        sock.sendall(b"x")
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""


def test_a_connection_that_waits_for_its_answer_is_not_closed(
    monkeypatch: pytest.MonkeyPatch, server: LocalServer, kinesis: Any
) -> None:
    monkeypatch.setattr(protocol_detector, "IDLE_S", 0.4)
    server.kinesis.faults = lambda _: Fault(delay_ms=900)
    assert kinesis.list_streams()["StreamNames"] == []
    server.kinesis.faults = None
    assert kinesis.list_streams()["StreamNames"] == []


def test_a_body_that_does_not_end_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = admission.Bodies.__init__
    monkeypatch.setattr(admission.Bodies, "__init__", lambda self: before(self, read_s=0.05))
    with LocalServer() as server:
        with connected(server.endpoint_url) as sock:
            sock.sendall(head("ListStreams", b"{}") + b"{")
            status, said = answer(sock)
            assert status == 408
            assert "did not arrive within 0.05 seconds" in json.loads(said)["message"]
            assert sock.recv(1) == b""
        with Http2Client(server.endpoint_url) as client:
            number = client.begin("PutRecords", b"{", length=10)
            assert client.answer(number).status == 408
            assert client.call("ListStreams").status == 200, "on the same connection"


def test_connections_over_the_limit_are_refused_until_one_is_closed(
    monkeypatch: pytest.MonkeyPatch, server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(protocol_detector, "MAX_CONNECTIONS", 3)
    request = head("ListStreams", b"{}") + b"{}"
    with contextlib.ExitStack() as stack:
        silent = stack.enter_context(connected(server.endpoint_url))
        kept = stack.enter_context(connected(server.endpoint_url))
        kept.sendall(request)
        assert answer(kept)[0] == 200
        http2 = stack.enter_context(Http2Client(server.endpoint_url))
        http2.ping()
        with connected(server.endpoint_url) as refused:
            status, said = answer(refused)
            assert (status, refused.recv(1)) == (503, b"")
            assert b"as many connections as it allows" in said
        assert "the local server allows 3 at a time" in caplog.text
        silent.close()
        end = time.monotonic() + PATIENCE
        while True:
            with connected(server.endpoint_url) as free, contextlib.suppress(ConnectionError):
                free.sendall(request)
                if answer(free)[0] == 200:
                    break
            assert time.monotonic() < end


@pytest.mark.parametrize("body", [b"[" * 5_000_000, b'{"a":' * 1_000_000, b'{"a":[[' * 600_000])
def test_json_that_is_nested_too_deeply_is_refused(
    server: LocalServer, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    with connected(server.endpoint_url) as sock:
        sock.sendall(head("PutRecords", body) + body)
        status, said = answer(sock)
        assert (status, json.loads(said)["__type"]) == (400, "SerializationException")
        sock.sendall(head("ListStreams", b"{}") + b"{}")
        assert answer(sock)[0] == 200
    assert caplog.messages == []


def put_item(server: LocalServer, body: bytes) -> tuple[int, str]:
    """Return the status and the error's code."""
    request = head("PutItem", body).replace(b"Kinesis_20131202", b"DynamoDB_20120810")
    with connected(server.endpoint_url) as sock:
        sock.sendall(request.replace(JSON.encode(), b"application/x-amz-json-1.0") + body)
        status, said = answer(sock)
    return status, json.loads(said)["__type"].rpartition("#")[2]


def test_dynamodb_refuses_what_it_cannot_parse(capfd: Any) -> None:
    # The last one is not too deep for the local server's own parser, but for moto's code.
    deep = b'{"L":[' * 300 + b"]}" * 300
    with LocalServer(dynamodb=True) as server:
        create_table(once(server, "dynamodb"), "t", "k")
        for body in (
            b"[" * 5_000_000,
            b'{"a":' * 1_000_000,
            b"{",
            b'{"TableName":"t","Item":{"k":{"S":"a"},"v":' + deep + b"}}",
        ):
            assert put_item(server, body) == (400, "SerializationException")
        assert once(server, "dynamodb").scan(TableName="t")["Items"] == []
    assert "Traceback" not in capfd.readouterr().err
