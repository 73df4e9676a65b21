"""Connections until their first bytes: how many there may be, and which protocol they have.

HTTP/2 is known by its preface.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

MAX_CONNECTIONS = 3_000
"""Enhanced fan-out over HTTP/1.1 has a connection for each shard, which may be a thousand."""
IDLE_S = 60
"""Seconds until a connection is closed whose request does not begin, or does not go on."""

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
    b"the local server has as many connections as it allows\n"
)
_log = logging.getLogger(__name__)


class ProtocolDetector(asyncio.Protocol):
    """The protocol of a connection until its first bytes have arrived.

    http1, http2: factories of the protocol that takes over. connections: contains this connection
    until then.
    """

    def __init__(
        self,
        http1: Callable[[], asyncio.Protocol],
        http2: Callable[[], asyncio.Protocol],
        connections: set[Any],
    ) -> None:
        self.transport: asyncio.Transport
        self._http1 = http1
        self._http2 = http2
        self._connections = connections
        self._seen = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if len(self._connections) >= MAX_CONNECTIONS:
            _log.warning(
                "A connection was refused: the local server allows %s at a time", MAX_CONNECTIONS
            )
            transport.write(_FULL)
            transport.close()
            return
        self._connections.add(self)
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, transport.abort)

    def connection_lost(self, _error: Exception | None) -> None:
        self._forget()

    def _forget(self) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        seen = self._seen = self._seen + data
        if len(seen) < len(PREFACE) and PREFACE.startswith(seen):
            return
        self._forget()
        protocol = (self._http2 if seen.startswith(PREFACE) else self._http1)()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.data_received(seen)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, section 3.4
_HEADER = 9
_GOAWAY = 0x7


class GoawayFilter:
    """A filter for the bytes of one client, from the preface on."""

    def __init__(self) -> None:
        self._header = b""  # the received part of the next frame's header
        self._left = len(PREFACE)  # bytes missing of the current frame
        self._kept = True

    def feed(self, data: bytes) -> bytes:
        """Return `data`, which may be cut anywhere, without GOAWAY frames."""
        kept = []
        data = self._header + data
        at = 0
        while True:
            if self._left:
                part = data[at : at + self._left]
                at += len(part)
                self._left -= len(part)
                if self._kept:
                    kept.append(part)
            if len(data) - at < _HEADER:
                break
            self._left = _HEADER + int.from_bytes(data[at : at + 3], "big")
            self._kept = data[at + 3] != _GOAWAY
        self._header = data[at:]
        return b"".join(kept)
