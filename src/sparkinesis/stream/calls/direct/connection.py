"""HTTP/1.1 over connections that are kept between calls.

The bytes that follow the headers of a long body are received straight into their place.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
from botocore.exceptions import (
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    ReadTimeoutError,
    SSLError,
)

from sparkinesis.metrics.health.signs import CONNECTING, expect
from sparkinesis.stream.calls.direct.bounds import AnswerTooLongError, Bound, hurry
from sparkinesis.stream.calls.direct.streamed_body import StreamedBody, has_data

if TYPE_CHECKING:
    import ssl

_CHUNK = 65_536
_SENT_AT_ONCE = 16_384
"""Bytes of a request that the system takes at once: to send them takes no time of the answer's."""
_LONGEST_HEAD = 65_536
"""Bytes of the headers of an answer, those of interim answers before it included."""
_END_OF_HEAD = b"\r\n\r\n"
_HEAD = re.compile(rb"HTTP/1\.[01] [1-9][0-9]{2}(?: [^\r\n]*)?(?:\r\n[^\s:]+:[^\r\n]*)*")
_WITHOUT_BODY = frozenset({204, 304})
_BROKEN = (OSError, EOFError, ValueError)


_Head: TypeAlias = tuple[int, dict[str, str], bool]
"""The status of an answer, its headers, and whether it is one of HTTP/1.0."""


class HttpAnswer(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes | bytearray
    stream: StreamedBody | None = None
    """The body of a successful answer to `Connections.begin`, in place of ``body``."""


class Connections:
    """The connections to one endpoint. For any thread, and for any process after a fork.

    context: None for plain HTTP. read_timeout: seconds, for each part of an answer; each call also
    has a bound for the whole. most_idle: the most connections to keep.
    """

    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None,
        *,
        read_timeout: float,
        most_idle: int,
        keep_alive_probes: bool = False,
    ) -> None:
        parts = urlsplit(url)
        self.url = url
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = context
        self._connect_timeout = connect_timeout(read_timeout)
        self._read_timeout = read_timeout
        self._most_idle = most_idle
        self._keep_alive_probes = keep_alive_probes
        self._idle: deque[socket.socket] = deque()
        self._process = os.getpid()

    def __del__(self) -> None:
        self.close()

    def exchange(self, request: bytes, bound: Bound) -> HttpAnswer:
        """Send a request, and return the answer to it. Nothing is retried.

        Raises botocore's errors of connections, as botocore's client does.
        """
        until = time.monotonic() + bound.seconds
        connection = self._idle_connection() or self._connect()
        # No sooner: over a slow line a long answer takes long, and nobody stands still.
        expect(bound.seconds)
        try:
            self._send(connection, request, until)
            head, start = self._read_head(connection, until)
            body, may_be_kept = self._read_body(connection, head, start, bound.size, until)
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
        return HttpAnswer(head[0], head[1], body)

    def begin(self, request: bytes, bound: Bound) -> HttpAnswer:
        """Send a request; return its answer as soon as the headers are there.

        A successful answer has a ``stream``, which owns its connection from now on. Raises what
        `exchange` raises.
        """
        until = time.monotonic() + bound.seconds
        connection = self._idle_connection() or self._connect()
        try:
            self._send(connection, request, until)
            (status, headers, _), start = self._read_head(connection, until)
            _length(headers.get("content-length", "0"))
            connection.settimeout(self._read_timeout)
            stream = StreamedBody(self.url, connection, start, headers)
            if status < 300:
                return HttpAnswer(status, headers, b"", stream)
            with contextlib.closing(stream):
                body = stream.whole(bound.size, until)
        except _BROKEN as error:
            connection.close()
            raise self._as_botocores(error) from error
        except BaseException:
            connection.close()
            raise
        return HttpAnswer(status, headers, body)

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def _as_botocores(self, error: Exception) -> Exception:
        kind: Any = ConnectionClosedError
        if isinstance(error, AnswerTooLongError):
            kind = HTTPClientError
        elif isinstance(error, TimeoutError):
            kind = ReadTimeoutError
        elif _is_of_tls(error):
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
            # One with data is closed, or has bytes that nobody asked for. They came behind an
            # answer, and must not be taken for the next one.
            if not has_data(connection):
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
        except TimeoutError as error:
            connection.close()
            raise ConnectTimeoutError(endpoint_url=self.url, error=error) from error
        except OSError as error:
            connection.close()
            if _is_of_tls(error):
                raise SSLError(endpoint_url=self.url, error=error) from error
            raise HTTPClientError(error=error) from error
        return connection

    def _send(self, connection: socket.socket, request: bytes, until: float) -> None:
        hurry(connection, until, self._read_timeout)
        try:  # noqa: SIM105 - contextlib.suppress takes three calls more
            connection.sendall(request)
        except BrokenPipeError:
            # A server may refuse a long request, and close the connection, before it has read all.
            pass
        if len(request) > _SENT_AT_ONCE:
            hurry(connection, until, self._read_timeout)

    def _read_head(self, connection: socket.socket, until: float) -> tuple[_Head, bytes]:
        """Return the head of an answer, and the bytes of its body that came with it.

        The connection has the timeout of the first wait. Raises OSError, EOFError, and ValueError
        for bytes that are no HTTP.
        """
        data, interim = b"", 0
        while True:
            received = connection.recv(_CHUNK)
            if not received:
                raise EOFError("the server closed the connection before the end of its headers")
            data += received
            while (end := data.find(_END_OF_HEAD)) >= 0:
                head = _parse_head(data[:end])
                data = data[end + len(_END_OF_HEAD) :]
                # An interim answer, such as 100 Continue, precedes the answer.
                if head[0] >= 200:
                    return head, data
                interim += end
            if interim + len(data) > _LONGEST_HEAD:
                raise EOFError("the headers of the answer do not end")
            hurry(connection, until, self._read_timeout)

    def _read_body(
        self, connection: socket.socket, head: _Head, start: bytes, most: int, until: float
    ) -> tuple[bytes | bytearray, bool]:
        """Return a body, of which ``start`` has arrived; and whether the connection may be kept."""
        status, headers, is_old = head
        may_be_kept = not is_old and headers.get("connection", "").lower() != "close"
        text = "0" if status in _WITHOUT_BODY else headers.get("content-length")
        if text is None:
            stream = StreamedBody(self.url, connection, start, headers)
            body = stream.whole(most, until)
            return body, stream.let_go() and may_be_kept
        length = _length(text)
        if length > most:
            raise AnswerTooLongError(text, most)
        if len(start) < length:
            return self._receive_rest(connection, start, length, until), may_be_kept
        # Nobody asked for bytes behind the answer.
        return start[:length], may_be_kept and len(start) == length

    def _receive_rest(
        self, connection: socket.socket, start: bytes, length: int, until: float
    ) -> bytearray:
        """Receive a body of which the first bytes are there."""
        body = bytearray(length)
        body[: len(start)] = start
        rest = memoryview(body)[len(start) :]
        while rest:
            hurry(connection, until, self._read_timeout)
            count = connection.recv_into(rest)
            if not count:
                raise EOFError(f"the server closed the connection {len(rest)} bytes before the end")
            rest = rest[count:]
        return body


def _is_of_tls(error: Exception) -> bool:
    import ssl  # noqa: PLC0415 - a plain endpoint needs none

    return isinstance(error, ssl.SSLError)


def connect_timeout(read_timeout: float) -> float:
    """Return the seconds in which a client with this ``read_timeout`` has to connect."""
    return min(10.0, read_timeout)


def _parse_head(data: bytes) -> _Head:
    """Parse a head. Raises ValueError if it is none, or if the end of its body is in doubt."""
    first, *lines = data.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    # Most answers are like this one; where caches are cold, each check has its price.
    is_usual = first.startswith("HTTP/1.1 200 ") and "transfer-encoding" not in headers
    if is_usual and "content-length" in headers and len(headers) == len(lines):
        return 200, headers, False
    if _HEAD.fullmatch(data) is None:
        raise ValueError(f"the answer is no HTTP/1.1, and starts with {data[:60]!r}")
    names = [line.partition(":")[0].lower() for line in lines]
    if names.count("content-length") + names.count("transfer-encoding") > 1:
        raise ValueError("the answer has two headers that say where its body ends")
    return int(first.split()[1]), headers, first.startswith("HTTP/1.0")


def _length(text: str) -> int:
    """Return a Content-Length, of Latin-1. Raises ValueError for any other text than digits."""
    if text.isdecimal():
        return int(text)
    raise ValueError(f"the answer has the Content-Length {text[:60]!r}")
