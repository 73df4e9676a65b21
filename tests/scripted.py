"""A service over real HTTP that answers as a test has written down, one answer for each call."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DATE = "Mon, 21 Sep 2026 14:13:20 GMT"
DATE_MS = 1_790_000_000_000


@dataclass(frozen=True)
class Answer:
    """chunks: what the body has, one HTTP chunk each. ends: how it goes on behind them.

    "end" is the body's end; "reset" and "close" are the connection's; "hold" waits until the
    client or the script is gone. length: sends this Content-Length, and the body without HTTP
    chunks.
    """

    chunks: Sequence[bytes] = ()
    ends: str = "end"
    status: int = 200
    date: str = DATE
    length: int | None = None


def refusal(code: str, text: str = "Said so.", status: int = 400) -> Answer:
    body = json.dumps({"__type": code, "message": text}).encode()
    return Answer([body], status=status)


def answer(body: dict[str, Any]) -> Answer:
    return Answer([json.dumps(body).encode()])


def _open_gate() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


@dataclass
class Script:
    """The answers that are left, by operation, and the calls that were made: (operation, body)."""

    endpoint: str
    answers: dict[str, deque[Answer]] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    held: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released for each answer that holds, once its chunks were sent."""
    gone: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released for each client that has left an answer that holds."""
    called: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    connections: set[object] = field(default_factory=set)
    """The clients' ends of the connections that the calls came over."""
    gate: threading.Event = field(default_factory=_open_gate)
    """Nothing is answered while it is not set; `called` is released for each call before that."""

    def on(self, operation: str, *answers: Answer) -> Script:
        self.answers.setdefault(operation, deque()).extend(answers)
        return self

    def of(self, operation: str) -> list[dict[str, Any]]:
        return [body for name, body in self.calls if name == operation]


class Scripted:
    """The server, and the script that it follows now. One server does for many scripts, and a
    client of boto3's, which takes long to make, for all of them."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.script = Script(endpoint)

    def begin(self) -> Script:
        self.script = Script(self.endpoint)
        return self.script


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    scripted: Scripted

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        script = self.scripted.script
        operation = self.headers["X-Amz-Target"].partition(".")[2]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        script.calls.append((operation, body))
        script.connections.add(self.client_address)
        waiting = script.answers.get(operation)
        given = waiting.popleft() if waiting else refusal("Unscripted", operation, 418)
        script.called.release()
        script.gate.wait()
        self.send_response_only(given.status)
        self.send_header("Date", given.date)
        if given.length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(given.length))
        self.end_headers()
        try:
            self._send(given, script)
        except OSError:
            self.close_connection = True
            script.gone.release()

    def _send(self, given: Answer, script: Script) -> None:
        for chunk in given.chunks:
            framed = b"%x\r\n%s\r\n" % (len(chunk), chunk) if given.length is None else chunk
            self.wfile.write(framed)
            self.wfile.flush()
        if given.ends == "end":
            if given.length is None:
                self.wfile.write(b"0\r\n\r\n")
            return
        self.close_connection = True
        if given.ends == "hold":
            script.held.release()
            self.connection.recv(1)  # the client's end
            script.gone.release()
        elif given.ends == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    tls: ssl.SSLContext | None = None

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self.tls is None:
            return connection, address
        return self.tls.wrap_socket(connection, server_side=True), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client that went away
            super().handle_error(request, client_address)


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    class Handler(_Handler):
        pass

    server = _Server(("127.0.0.1", 0), Handler)
    server.tls = tls
    scheme = "http" if tls is None else "https"
    scripted = Handler.scripted = Scripted(f"{scheme}://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield scripted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
