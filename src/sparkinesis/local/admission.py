"""The requests that the server takes: none that a web page may have sent, and in bounded memory.

A browser sends the requests of every page that it shows, also to servers on this machine. The
server checks no credentials, so it refuses what comes from a page of another site:

- Browsers say where a request comes from, in `Origin` and `Sec-Fetch-Site` (Fetch Metadata). The
  AWS SDKs send neither.
- A page can let its own name resolve to this machine (DNS rebinding), and is then of the same site.
  So the server refuses requests for names (`Host`) that are not its own. An address is no name.

A body is read once there is room for all of it, so that bodies which never end cannot add up, and
none waits for another with half of its room taken. Small bodies have room of their own: a server
whose room is taken by large ones still answers most calls.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from sparkinesis.errors import LocalServerError

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/@\[\]]+))(?::\d*)?")
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_LONGEST_NAME = 253  # RFC 1035, section 2.3.4, less the first and the last length
_OWN_SITE = {b"same-origin", b"none"}  # "none": typed into the address bar


class Guard:
    """The decision whether a request is refused.

    host_names: the names of this server, besides `localhost`, all names under it, and addresses.
    scheme: that of this server's URLs.
    Raises: LocalServerError for a name that is none.
    """

    def __init__(self, host_names: Iterable[str] = (), scheme: str = "http") -> None:
        names = [host_names] if isinstance(host_names, str) else list(host_names)
        self._names = frozenset(_checked(name) for name in names)
        self._own = f"{scheme}://".encode()

    def refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return why a request with these headers (names in lower case) is refused, or None."""
        hosts: list[bytes] = []
        origins: list[bytes] = []
        sites: list[bytes] = []
        found = {b"host": hosts, b"origin": origins, b"sec-fetch-site": sites}
        for name, value in headers:
            if name in found:
                found[name].append(value.strip())
        if len(hosts) != 1:
            return f"a request has exactly one Host header, and this one has {len(hosts)}"
        if not self._is_own(hosts[0].decode("latin-1")):
            return _unknown_host(hosts[0].decode("latin-1"))
        own = self._own + hosts[0].lower()
        if any(origin.lower() != own for origin in origins) or not _OWN_SITE.issuperset(sites):
            return (
                "the request comes from a web page of another site, and the local server answers "
                "programs only"
            )
        return None

    def _is_own(self, host: str) -> bool:
        parts = _HOST.fullmatch(host)
        if parts is None:
            return False
        if parts[1] is not None:
            return _is_address(parts[1])
        name = parts[2].lower().removesuffix(".")
        return (
            name == "localhost"
            or name.endswith(".localhost")
            or name in self._names
            or _is_address(name)
        )


def _checked(name: str) -> str:
    bare = name.lower().removesuffix(".")
    if len(bare) > _LONGEST_NAME or not _NAME.fullmatch(bare):
        raise LocalServerError(
            f"{name!r} is no host name: give the name alone, without a scheme and a port, as in "
            "kinesis or kinesis.example.com"
        )
    return bare


@functools.lru_cache(256)
def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _unknown_host(host: str) -> str:
    shown = repr(host[:100])
    return (
        f"the request is for the host {shown}, which is no name of the local server: a web page "
        "could have sent the request under a name of its own (DNS rebinding). If the name is "
        "right, start the server with --host-name and that name, or LocalServer with host_names"
    )


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
    """Bytes that bodies share. Bodies that wait for bytes get them in turn. For one event loop."""

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
            # A task that is done removes itself, and then serves the next ones.
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
