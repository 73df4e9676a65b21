"""HTTP/1.1: uvicorn's protocol, which stays with it whatever else a client offers to speak.

A client that would rather speak HTTP/2 may say so in a request (`Upgrade: h2c`, as Java's own and
`curl --http2` do), and a server may go on as if it had not (RFC 9110, section 7.8). The parser
takes every offer for accepted, and what comes behind the head for the other protocol: the request
would lose its body. So its head is parsed a second time, without the offer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from httptools import HttpParserUpgrade
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from sparkinesis.local.wire.http import TRANSPORT


class Http1(HttpToolsProtocol):  # type: ignore[misc]
    """One connection."""

    parser: Any

    def __init__(self, config: Config, state: ServerState) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        self.parser = _Parser(self.parser, self._head_without_offer)

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        # What ASGI has no way to ask for: the connection itself, to drop it.
        self.app_state = {TRANSPORT: transport}

    def on_headers_complete(self) -> None:
        if not self.parser.is_offer():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.is_offer():
            super().on_message_complete()

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))


class _Parser:
    """httptools' parser. head: of the message under way, without the offer that is in it."""

    def __init__(self, parser: Any, head: Callable[[], bytes]) -> None:
        self._parser = parser
        self._head = head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def is_offer(self) -> bool:
        """Whether the message under way offers to speak something else."""
        # CONNECT is no offer, but means to be treated so.
        return bool(self._parser.should_upgrade()) and self._parser.get_method() != b"CONNECT"

    def feed_data(self, data: bytes) -> None:
        """Raises: as httptools'."""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as offer:
            if not self.is_offer():
                raise
            behind_head: int = offer.args[0]
            self.feed_data(self._head() + data[behind_head:])
