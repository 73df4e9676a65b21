"""Detection of HTTP/1.1 or HTTP/2 by a connection's first bytes: HTTP/2 has a preface."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sparkinesis.local.wire.goaway import PREFACE


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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)

    def data_received(self, data: bytes) -> None:
        seen = self._seen = self._seen + data
        if len(seen) < len(PREFACE) and PREFACE.startswith(seen):
            return
        self._connections.discard(self)
        protocol = (self._http2 if seen.startswith(PREFACE) else self._http1)()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.data_received(seen)
