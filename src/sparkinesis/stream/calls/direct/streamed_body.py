"""The body of an answer that lasts for minutes, read from a connection of its own.

Between two events it holds a few hundred bytes: there is no buffer of its own for an idle stream,
and a long event is received straight into its place.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import string
import sys
import time
from collections.abc import Mapping

from sparkinesis.stream.calls.direct.bounds import AnswerTooLongError, hurry

_PIECE = 65_536
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
        """The body's end is told before the connection's."""
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
        """Return the instant up to which a read of so many seconds may wait."""
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
