"""HTTP/1.1 over connections that are kept between calls.

httptools (llhttp) parses answers. The bytes that follow the headers of a long body are received
straight into their place.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httptools
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)

from sparkinesis.metrics.health.signs import CONNECTING, expect
from sparkinesis.stream.calls.direct.streamed_body import StreamedBody

_CHUNK = 65_536
_LONGEST_HEAD = 65_536
"""Bytes of the headers of an answer that is streamed."""
_LONGEST_REFUSAL = 65_536
"""Bytes to read of the body of an error, where a stream was asked for."""
_END_OF_HEAD = b"\r\n\r\n"
_BROKEN = (OSError, EOFError, httptools.HttpParserError)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes | bytearray
    stream: StreamedBody | None = None
    """The body of a successful answer to `Connections.begin`, in place of ``body``."""


class Connections:
    """The connections to one endpoint. For any thread, and for any process after a fork.

    context: None for plain HTTP. connect_timeout, read_timeout: seconds; the second is for each
    part of an answer. most_idle: the most connections to keep.
    """

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None,
        *,
        connect_timeout: float,
        read_timeout: float,
        most_idle: int,
        keep_alive_probes: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self.url = url
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = context
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._most_idle = most_idle
        self._keep_alive_probes = keep_alive_probes
        self._idle: deque[socket.socket] = deque()
        self._process = os.getpid()

    def __del__(self) -> None:
        self.close()

    def exchange(self, request: bytes) -> Answer:
        """Send a request, and return the answer to it. Nothing is retried.

        Raises botocore's errors of connections, as botocore's client does.
        """
        connection = self._idle_connection() or self._connect()
        expect(self._read_timeout)
        try:
            _send(connection, request)
            data = connection.recv(_CHUNK)
            answer = _usual(connection, data)
            may_be_kept = answer is not None
            if answer is None:
                parser = _Parser()
                answer = parser.read(connection, data)
                may_be_kept = parser.may_be_kept
        except _BROKEN as error:
            connection.close()
            raise self._as_botocores(error) from error
        except BaseException:
            connection.close()
            raise
        expect()
        if may_be_kept and len(self._idle) < self._most_idle:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    def begin(self, request: bytes) -> Answer:
        """Send a request; return its answer as soon as the headers are there.

        A successful answer has a ``stream``, which owns its connection from now on. Raises what
        `exchange` raises.
        """
        connection = self._idle_connection() or self._connect()
        try:
            _send(connection, request)
            parser, start = _read_head(connection)
            answer = parser.answer(b"")
            stream = StreamedBody(self.url, connection, start, answer.headers)
            if answer.status < 300:
                return Answer(answer.status, answer.headers, b"", stream)
            body = stream.read(_LONGEST_REFUSAL)
        except (*_BROKEN, ValueError) as error:
            connection.close()
            raise self._as_botocores(error) from error
        except BaseException:
            connection.close()
            raise
        connection.close()
        return Answer(answer.status, answer.headers, body)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def _as_botocores(self, error: Exception) -> Exception:
        kind: Any = ConnectionClosedError
        if isinstance(error, TimeoutError):
            kind = ReadTimeoutError
        elif isinstance(error, ssl.SSLError):
            kind = SSLError
        botocores: Exception = kind(endpoint_url=self.url, error=error)
        return botocores

    def _idle_connection(self) -> socket.socket | None:
        """Return the connection that was used last, if the server has not closed it."""
        if os.getpid() != self._process:
            # The parent of a fork reads the same connections.
            self._idle, self._process = deque(), os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not _is_readable(connection):
                return connection
            connection.close()

    def _connect(self) -> socket.socket:
        expect(CONNECTING)
        try:
            connection = socket.create_connection((self._host, self._port), self._connect_timeout)
        except TimeoutError as error:
            raise ConnectTimeoutError(endpoint_url=self.url, error=error) from error
        except (OSError, UnicodeError) as error:
            raise EndpointConnectionError(endpoint_url=self.url, error=error) from error
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._keep_alive_probes:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_hostname=self._host)
            connection.settimeout(self._read_timeout)
        except TimeoutError as error:
            connection.close()
            raise ConnectTimeoutError(endpoint_url=self.url, error=error) from error
        except ssl.SSLError as error:
            connection.close()
            raise SSLError(endpoint_url=self.url, error=error) from error
        except OSError as error:
            connection.close()
            raise HTTPClientError(error=error) from error
        return connection


def _send(connection: socket.socket, request: bytes) -> None:
    # A server may refuse a long request, and close the connection, before it has read all of it.
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(request)


def _is_readable(connection: socket.socket) -> bool:
    """Return True for an idle connection that is closed, or has an answer that nobody waits for."""
    try:
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True


def _read_head(connection: socket.socket) -> tuple[_Parser, bytes]:
    """Return the headers of an answer, and the bytes of its body that came with them."""
    parser, data = _Parser(), b""
    while not parser.has_headers:
        end = data.find(_END_OF_HEAD)
        if end >= 0:
            end += len(_END_OF_HEAD)
            parser.feed(data[:end])
            data = data[end:]
            continue
        if len(data) > _LONGEST_HEAD:
            raise EOFError("the headers of the answer do not end")
        received = connection.recv(_CHUNK)
        if not received:
            raise EOFError("the server closed the connection before the end of its headers")
        data += received
    return parser, data


def _usual(connection: socket.socket, data: bytes) -> Answer | None:
    """Return a successful answer of known length, of which ``data`` holds all headers.

    None for any other, of which nothing more was read then: httptools reads it. Most answers are
    short, and on a thread whose caches are cold a parser that calls back for each header costs as
    much as the rest of the call.
    """
    end = data.find(_END_OF_HEAD)
    if end < 0 or not data.startswith(b"HTTP/1.1 200 "):
        return None
    lines = data[:end].decode("latin-1").split("\r\n")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    start = data[end + len(_END_OF_HEAD) :]
    length = headers.get("content-length", "")
    if (
        not (length.isascii() and length.isdecimal())
        or len(start) > int(length)
        or "transfer-encoding" in headers
        or headers.get("connection", "keep-alive").lower() != "keep-alive"
        or len(headers) != len(lines) - 1
    ):
        return None
    if len(start) == int(length):
        return Answer(200, headers, start)
    return Answer(200, headers, _receive_rest(connection, start, int(length)))


class _Parser:
    """Reads one answer."""

    def __init__(self) -> None:
        self.may_be_kept = False
        """True if the connection may be used again."""
        self.has_headers = False
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._is_complete = False
        self._has_more = False
        self._parser: Any = httptools.HttpResponseParser(self)

    def read(self, connection: socket.socket, data: bytes) -> Answer:
        """Read to the end of the answer, of which ``data`` has arrived.

        Raises OSError, EOFError and httptools' errors.
        """
        body: bytes | bytearray | None = None
        while True:
            if not data:
                if self.has_headers and not self._is_framed:
                    break  # such a body ends with the connection
                raise EOFError("the server closed the connection before the end of its answer")
            self.feed(data)
            if self.has_headers and not self._is_complete:
                length = self._headers.get("content-length", "")
                if length.isdecimal() and "transfer-encoding" not in self._headers:
                    body = _receive_rest(connection, b"".join(self._parts), int(length))
                    break
            if self._is_complete:
                break
            data = connection.recv(_CHUNK)
        has_end = self._is_complete or body is not None
        closes = self._headers.get("connection", "").lower() == "close"
        is_old = self._parser.get_http_version() == "1.0"
        self.may_be_kept = has_end and not self._has_more and not closes and not is_old
        if body is None:
            body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        return self.answer(body)

    def answer(self, body: bytes | bytearray) -> Answer:
        return Answer(self._status, self._headers, body)

    def feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if not self._is_complete:
                raise
            self._has_more = True  # bytes behind the answer, which nobody asked for

    @property
    def _is_framed(self) -> bool:
        return "content-length" in self._headers or "transfer-encoding" in self._headers

    # --- called by httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_complete:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._is_complete:
            self._has_more = True
            return
        self._status = self._parser.get_status_code()
        # An interim answer, such as 100 Continue, precedes the answer.
        self.has_headers = self._status >= 200
        if not self.has_headers:
            self._headers = {}

    def on_body(self, body: bytes) -> None:
        if not self._is_complete:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        self._is_complete = self.has_headers


def _receive_rest(connection: socket.socket, start: bytes, length: int) -> bytearray:
    """Receive a body of which the first bytes are there."""
    body = bytearray(length)
    body[: len(start)] = start
    rest = memoryview(body)[len(start) :]
    signed = len(rest)
    while rest:
        if signed - len(rest) >= _CHUNK:
            # Over a slow line a long answer takes long, and nobody stands still.
            signed = len(rest)
            expect(connection.gettimeout() or 0.0)
        count = connection.recv_into(rest)
        if not count:
            raise EOFError(f"the server closed the connection {len(rest)} bytes before the end")
        rest = rest[count:]
    return body
