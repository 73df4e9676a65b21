"""HTTP/1.1: uvicorn's protocol, changed to ignore offers to upgrade to another protocol.

A client may offer HTTP/2 in a request (`Upgrade: h2c`, as Java's own client and `curl --http2` do),
and a server may ignore the offer (RFC 9110, section 7.8). But the parser takes every offer for
accepted, and takes the bytes after the head for the other protocol: the request would lose its
body. So the head is parsed a second time, without the offer.

uvicorn and its parser hold a head (and the trailers of a chunked body) until its end, of any size,
and wait for that end without a limit. Both limits are set here; `admission` has those of bodies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from httptools import HttpParserUpgrade
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from sparkinesis.local.wire import protocol_detector
from sparkinesis.local.wire.http import KEEP_HEAD, TRANSPORT

# The most bytes of a head, or between two parts of a chunked body.
_MAX_HEAD = 64 << 10
# A longer body is sent behind the head: to copy it would cost more than to write twice.
_MAX_JOINED = 64 << 10


class Http1(HttpToolsProtocol):  # type: ignore[misc]
    """One connection of HTTP/1.1."""

    parser: Any

    def __init__(self, config: Config, state: ServerState) -> None:
        super().__init__(config=config, server_state=state, app_state={})
        # `Config(access_log=False)` takes the logger's handlers, and pytest 9.1 adds one to it.
        self.access_log = False
        self.parser = _Parser(self.parser, self._head_without_offer)
        self._timer: asyncio.TimerHandle | None = None
        self._is_mid_message = False
        # Bytes that came before the data at hand since the head or the chunk's size began.
        self._outside_body: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        joining = _JoiningTransport(transport)
        super().connection_made(joining)
        # The transport, which ASGI does not expose: a fault plan may drop the connection.
        self.app_state = {TRANSPORT: transport, KEEP_HEAD: joining.keep_head}

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._stop_waiting()
        if self._outside_body is not None:
            self._outside_body += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._outside_body is not None and self._outside_body > _MAX_HEAD:
            self.send_400_response(f"The head of a request has at most {_MAX_HEAD >> 10} KiB.")
        elif self._is_mid_message:
            self._wait_for_more()

    def _wait_for_more(self) -> None:
        self._timer = self.loop.call_later(protocol_detector.IDLE_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_message_begin(self) -> None:
        self._is_mid_message = True
        self._outside_body = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._outside_body = None
        if not self.parser.is_offer():
            super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._outside_body = 0

    def on_body(self, body: bytes) -> None:
        self._outside_body = None
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_mid_message = False
        self._outside_body = None
        if not self.parser.is_offer():
            super().on_message_complete()

    def _head_without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join((*lines, b"", b""))


class _JoiningTransport:
    """asyncio's transport. It can send the head of a response together with the body.

    uvicorn writes them one after the other, which costs the server and its client a system call.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._keeps = False
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def keep_head(self) -> None:
        """Keep the bytes of the next write until the write after it, or until the end."""
        self._keeps = True

    def write(self, data: bytes | memoryview) -> None:
        if self._keeps:
            self._keeps, self._head = False, bytes(data)
            return
        if self._head and len(data) <= _MAX_JOINED:
            data, self._head = b"".join((self._head, data)), b""
        self._send_head()
        self._transport.write(data)

    def close(self) -> None:
        self._send_head()
        self._transport.close()

    def _send_head(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""


class _Parser:
    """httptools' parser. head: returns the head of the current message without its offer."""

    def __init__(self, parser: Any, head: Callable[[], bytes]) -> None:
        self._parser = parser
        self._head = head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def is_offer(self) -> bool:
        """Return True if the current message offers an upgrade to another protocol."""
        # For CONNECT the parser rightly reports an upgrade.
        return bool(self._parser.should_upgrade()) and self._parser.get_method() != b"CONNECT"

    def feed_data(self, data: bytes) -> None:
        """Parse received bytes. Raises the errors of httptools."""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as offer:
            if not self.is_offer():
                raise
            behind_head: int = offer.args[0]
            self.feed_data(self._head() + data[behind_head:])
