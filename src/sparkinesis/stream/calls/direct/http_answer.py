"""An HTTP/1.1 answer, read from a connection: its head, and its body as a whole or as a stream.

The bytes that follow the headers of a long body are received straight into their place. A stream
lasts for minutes: between two events it holds a few hundred bytes, and no buffer of its own.
"""

from __future__ import annotations

import contextlib
import math
import re
import select
import socket
import string
import sys
import time
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from sparkinesis.stream.calls.answers.guards import AnswerTooLongError, hurry

_PIECE = 65_536
_LONGEST_HEAD = 65_536
"""Bytes of the headers of an answer, those of interim answers before it included."""
_END_OF_HEAD = b"\r\n\r\n"
_HEAD = re.compile(rb"HTTP/1\.[01] [1-9][0-9]{2}(?: [^\r\n]*)?(?:\r\n[^\s:]+:[^\r\n]*)*")
_WITHOUT_BODY = frozenset({204, 304})

Head: TypeAlias = tuple[int, dict[str, str], bool]
"""The status of an answer, its headers, and whether it is one of HTTP/1.0."""


class HttpAnswer(msgspec.Struct, frozen=True):
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes | bytearray
    stream: StreamedBody | None = None
    """The body of a successful answer to `ConnectionPool.begin`, in place of ``body``."""


def read_head(connection: socket.socket, until: float, timeout: float) -> tuple[Head, bytes]:
    """Return the head of an answer, and the bytes of its body that came with it.

    until: the instant of `time.monotonic` at which the call is too late. timeout: seconds, for each
    wait; the connection has that of the first one already. Raises OSError, EOFError, and ValueError
    for bytes that are no HTTP.
    """
    data, interim = b"", 0
    while True:
        received = connection.recv(_PIECE)
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
        hurry(connection, until, timeout)


def _parse_head(data: bytes) -> Head:
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


def content_length(text: str) -> int:
    """Return a Content-Length, of Latin-1. Raises ValueError for any other text than digits."""
    if text.isdecimal():
        return int(text)
    raise ValueError(f"the answer has the Content-Length {text[:60]!r}")


def read_body(
    url: str,
    connection: socket.socket,
    head: Head,
    start: bytes,
    *,
    most: int,
    until: float,
    timeout: float,
) -> tuple[bytes | bytearray, bool]:
    """Return the body that begins with ``start``, and whether the connection may be kept.

    most: the bytes that the body may have. until, timeout: those of `read_head`.
    """
    status, headers, is_old = head
    may_be_kept = not is_old and headers.get("connection", "").lower() != "close"
    text = "0" if status in _WITHOUT_BODY else headers.get("content-length")
    if text is None:
        stream = StreamedBody(url, connection, start, headers)
        body = stream.whole(most, until)
        return body, stream.let_go() and may_be_kept
    length = content_length(text)
    if length > most:
        raise AnswerTooLongError(text, most)
    if len(start) < length:
        return _receive_rest(connection, start, length, until, timeout), may_be_kept
    # Nobody asked for bytes behind the answer.
    return start[:length], may_be_kept and len(start) == length


def _receive_rest(
    connection: socket.socket, start: bytes, length: int, until: float, timeout: float
) -> bytearray:
    """Return the body that begins with ``start``, received into one buffer."""
    body = bytearray(length)
    body[: len(start)] = start
    rest = memoryview(body)[len(start) :]
    while rest:
        hurry(connection, until, timeout)
        count = connection.recv_into(rest)
        if not count:
            raise EOFError(f"the server closed the connection {len(rest)} bytes before the end")
        rest = rest[count:]
    return body


_READ_AHEAD = 16_384
"""Bytes. Events and the lines around HTTP chunks are mostly shorter; one system call reads both."""
_LONGEST_LINE = 4_096
_MOST_TRAILERS = 100
_DIGITS = frozenset(string.hexdigits.encode())


class StreamedBody:
    """A body in HTTP chunks, of a known length, or up to the end of the connection.

    One thread reads; any thread may call `shutdown`. ``start``: the bytes that came with the
    headers.
    """

    def __init__(
        self, url: str, connection: socket.socket, start: bytes, headers: Mapping[str, str]
    ) -> None:
        self.url = url
        self._socket = connection
        self._timeout = connection.gettimeout() or math.inf
        self._until: float
        """The instant after which the read that runs is too late."""
        self._buffer = start
        self._at = 0
        """The bytes of the buffer before this one were read."""
        codings = headers.get("transfer-encoding", "").lower()
        self._is_chunked = codings.rpartition(",")[2].strip() == "chunked"
        self._is_framed = self._is_chunked or "content-length" in headers
        """The body ends before the connection: its end is known from its headers or chunks."""
        self._left = 0
        """Bytes up to the end of the chunk, or of the body."""
        if not self._is_chunked:
            self._left = int(headers.get("content-length", sys.maxsize))
        self._owes_line_end = False
        """The line end behind a chunk has not arrived yet."""
        self._is_over = not self._is_chunked and self._left == 0
        self._owns_socket = True

    def __del__(self) -> None:
        if self._owns_socket:
            self._socket.close()

    def fileno(self) -> int:
        """Return the descriptor of the socket, for a selector; -1 once it is closed."""
        return self._socket.fileno()

    @property
    def has_data(self) -> bool:
        """True if bytes have arrived that a selector does not see: in the buffer, or within TLS."""
        return self._at < len(self._buffer) or _pending(self._socket) > 0

    def await_data(self, milliseconds: int) -> bool:
        """Wait for bytes, or the end of the connection; return False if none arrive in time."""
        return self._at < len(self._buffer) or has_data(self._socket, milliseconds)

    def whole(self, most: int, until: float) -> bytes:
        """Return the whole body. Raises `AnswerTooLongError`, and what `read` raises."""
        pieces, size = [], 0
        while piece := self.read(_PIECE, until):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise AnswerTooLongError(f"{size} or more", most)
        return b"".join(pieces)

    @staticmethod
    def instant_in(seconds: float) -> float:
        """Return the instant up to which a read may wait for ``seconds``."""
        return time.monotonic() + seconds

    def read(self, most: int, until: float, /) -> bytearray:
        """Wait for ``most`` bytes and return them; fewer at the end of the body, none after it.

        Raises TimeoutError when nothing arrives in time, or not all of it up to the instant
        ``until``; EOFError when the connection ends too early, ValueError for invalid HTTP, and
        OSError.
        """
        self._until = until
        body = bytearray(most)
        view = memoryview(body)
        at = 0
        while at < most and not self._is_over:
            if self._left == 0:
                self._begin_chunk()
                continue
            wanted = min(most - at, self._left)
            here = len(self._buffer) - self._at
            if not here and wanted < _READ_AHEAD:
                if not self._fill():
                    self._end_early()
                continue
            if here:
                count = min(wanted, here)
                view[at : at + count] = memoryview(self._buffer)[self._at : self._at + count]
                self._take(count)
            else:
                hurry(self._socket, until, self._timeout)
                count = self._socket.recv_into(view[at : at + wanted])
                if not count:
                    self._end_early()
            at += count
            self._left -= count
            if self._left == 0:
                self._end_chunk()
        view.release()
        del body[at:]
        return body

    def shutdown(self) -> None:
        """End a read that waits, and the connection, but not the descriptor. For any thread."""
        with contextlib.suppress(OSError):
            # The method of a TLS socket would take the TLS away from under a running read.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
        self._buffer, self._at = b"", 0

    def let_go(self) -> bool:
        """Leave the socket to the caller; return True if it can have another answer after this."""
        self._owns_socket = False
        return self._is_framed and self._is_over and self._at == len(self._buffer)

    def _fill(self) -> bool:
        """Wait for bytes; return False at the end of the connection."""
        hurry(self._socket, self._until, self._timeout)
        received = self._socket.recv(_READ_AHEAD)
        self._buffer, self._at = self._buffer[self._at :] + received, 0
        return bool(received)

    def _take(self, count: int) -> None:
        self._at += count
        if self._at == len(self._buffer):
            self._buffer, self._at = b"", 0

    def _end_early(self) -> None:
        if self._is_framed:
            raise EOFError("the server closed the connection before the end of its answer")
        self._is_over = True

    def _begin_chunk(self) -> None:
        if self._owes_line_end:
            if self._line():
                raise ValueError("a chunk is longer than it said")
            self._owes_line_end = False
        size = self._line().partition(b";")[0].strip()
        if not size or not _DIGITS.issuperset(size):
            raise ValueError(f"the size of a chunk is {size[:20]!r}")
        self._left = int(size, 16)
        if self._left == 0:
            if all(self._line() for _ in range(_MOST_TRAILERS)):
                raise ValueError("the trailers of the answer do not end")
            self._is_over = True

    def _end_chunk(self) -> None:
        if not self._is_chunked:
            self._is_over = True
            return
        self._owes_line_end = True
        # Read the line end now, if it is there, so that it does not look like the next event.
        if not self.await_data(0):
            return
        if self._line():
            raise ValueError("a chunk is longer than it said")
        self._owes_line_end = False

    def _line(self) -> bytes:
        """Read up to a line end; return the bytes before it."""
        while (end := self._buffer.find(b"\r\n", self._at)) < 0:
            if len(self._buffer) - self._at > _LONGEST_LINE:
                raise ValueError("a line between two chunks does not end")
            if not self._fill():
                raise EOFError("the server closed the connection before the end of its answer")
        line = self._buffer[self._at : end]
        self._take(end + 2 - self._at)
        return line


def _pending(connection: socket.socket) -> int:
    """Return the decrypted bytes that a TLS socket holds."""
    pending = getattr(connection, "pending", None)
    if pending is None:
        return 0
    try:
        return int(pending())
    except (OSError, ValueError):
        return 0


def has_data(connection: socket.socket, milliseconds: int = 0) -> bool:
    """Return True if a read would not wait: bytes are there, or within TLS, or it is closed."""
    is_tls = hasattr(connection, "pending")
    return (is_tls and _pending(connection) > 0) or is_readable(connection, milliseconds)


def is_readable(connection: socket.socket | int, milliseconds: int = 0) -> bool:
    """Return True if a read of the descriptor would not wait; also if it is closed.

    Bytes that TLS has decrypted are not seen: see `has_data`.
    """
    try:
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([connection], [], [], milliseconds / 1000)[0])
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return bool(poll.poll(milliseconds))
    except (OSError, ValueError):
        return True
