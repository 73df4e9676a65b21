"""The bodies of requests: how many bytes of them the server holds at a time, and for how long.

A body is read once there is room for all of it, so that bodies which never end cannot add up, and
none waits for another with half of its room taken. Small bodies have room of their own: a server
whose room is taken by large ones still answers most calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# More than the largest PutRecords: 10 MiB in base64, 500 keys, and JSON around them.
MAX_BODY = 32 << 20
SMALL_BODY = 64 << 10
"""The largest small body. Connections hold as many bytes of a body that waits for room."""


TOO_LATE = 408
"""The status for a body that did not arrive in time. The connection is of no more use."""


class ClientLeftError(Exception):
    """The client disconnected before it had sent its whole request."""


class BodyRefusedError(Exception):
    """The body is not read to its end. status: of the response that says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Room:
    """Bytes that bodies share; who waits for bytes is served in turn. Of one event loop."""

    def __init__(self, size: int) -> None:
        self._free = size
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int, wait_s: float) -> None:
        """Take `size` bytes, or wait for them. Raises: TimeoutError."""
        if not self._line and size <= self._free:
            self._free -= size
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        place = (size, turn)
        self._line.append(place)
        timer = loop.call_later(wait_s, _expire, turn)
        try:
            await turn
        except BaseException:
            # A task that is cancelled after its turn came owns the bytes.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._free += size
            else:
                self._line.remove(place)
            self._serve_line()
            raise
        finally:
            timer.cancel()

    def give_back(self, size: int) -> None:
        self._free += size
        self._serve_line()

    def _serve_line(self) -> None:
        while self._line:
            size, turn = self._line[0]
            # One that is done leaves the line by itself, and serves the next ones then.
            if turn.done() or size > self._free:
                return
            self._line.popleft()
            self._free -= size
            turn.set_result(None)


def _expire(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_exception(TimeoutError())


class Bodies:
    """The bodies that a server reads and serves at this time.

    small, large: the bytes of small and of other bodies that it holds at most.
    wait_s: how long a request waits for room. read_s: the time that a body may take to arrive.
    """

    def __init__(
        self,
        *,
        small: int = 16 << 20,
        large: int = 2 * MAX_BODY,
        wait_s: float = 5,
        read_s: float = 30,
    ) -> None:
        self._small = Room(small)
        self._large = Room(large)
        self._wait_s = wait_s
        self._read_s = read_s

    @asynccontextmanager
    async def whole(self, receive: Receive, length: int | None) -> AsyncIterator[bytes]:
        """Read a body and hold its room while the block runs.

        length: the declared length; None if there is none.
        Raises: BodyRefusedError; ClientLeftError.
        """
        held: list[tuple[Room, int]] = []
        chunks: list[bytes] = []
        size = SMALL_BODY if length is None else length
        try:
            await self._take(size, held)
            has_ended = await self._read(receive, chunks, size)
            if length is None and _size(chunks) > SMALL_BODY:
                await self._take(MAX_BODY, held)
                has_ended = has_ended or await self._read(receive, chunks, MAX_BODY)
            if not has_ended or _size(chunks) > MAX_BODY:
                raise _too_large()
            yield chunks[0] if len(chunks) == 1 else b"".join(chunks)
        finally:
            for room, taken in held:
                room.give_back(taken)

    async def _take(self, size: int, held: list[tuple[Room, int]]) -> None:
        if size > MAX_BODY:
            raise _too_large()
        room = self._small if size <= SMALL_BODY else self._large
        try:
            await room.take(size, self._wait_s)
        except TimeoutError:
            raise BodyRefusedError(
                503, "the local server holds as many unfinished requests as it has room for"
            ) from None
        held.append((room, size))

    async def _read(self, receive: Receive, chunks: list[bytes], limit: int) -> bool:
        """Append what arrives. Return True at the end, False after more than `limit` bytes."""
        try:
            return await asyncio.wait_for(_append(receive, chunks, limit), self._read_s)
        except asyncio.TimeoutError:
            message = f"the request's body did not arrive within {self._read_s:g} seconds"
            raise BodyRefusedError(TOO_LATE, message) from None


async def _append(receive: Receive, chunks: list[bytes], limit: int) -> bool:
    size = _size(chunks)
    while size <= limit:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        chunk = message.get("body", b"")
        size += len(chunk)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return True
    return False


def _size(chunks: list[bytes]) -> int:
    return sum(map(len, chunks))


def _too_large() -> BodyRefusedError:
    return BodyRefusedError(413, f"a request's body has at most {MAX_BODY >> 20} MiB")
