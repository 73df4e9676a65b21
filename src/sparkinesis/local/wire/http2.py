"""HTTP/2, for clients that know or have asked by ALPN that it is there (RFC 9113, section 3).

h2 parses and builds the frames. This module maps each stream to a call of the same ASGI application
that serves HTTP/1.1, and applies flow control.
"""

# Some clients speak HTTP/2 to a plain http:// endpoint without asking: the AWS SDK for JavaScript
# always, Java's asynchronous client for SubscribeToShard. A consumer then has one connection, with
# a stream for the subscription to each of its shards, and a shard that is not read must not stop
# the others. hypercorn would have brought a server of its own around h2, with workers, signals and
# timeouts; one protocol class in the loop of uvicorn suffices.
#
# - A response waits until its stream and its connection have room for it, and only then takes the
#   next event from `push`: a client that does not read costs one event, not a queue of them.
#   `_send_data` sends one frame at a time, so that streams take turns.
# - The head of a response does not wait: only data is subject to flow control. A client whose
#   connection had no room left, as one with subscriptions that it does not read, did not even get
#   the status of its next call.
# - A request's body gives its room back when the application has read it. A body that waits for
#   memory (`admission`) must not stop those of other streams, so the connection's window never
#   fills. Instead, a connection has a limit, and a stream above it is reset.
# - h2 takes a client's GOAWAY for the end of everything. The SDK for JavaScript sends it while it
#   still waits for an answer, so h2 does not get to see it (`GoawayFilter`).

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from sparkinesis.local.wire.http import TRANSPORT, Receive, Scope, Send
from sparkinesis.local.wire.protocol_detector import GoawayFilter

# A consumer with enhanced fan-out has one stream for each of its shards.
_MAX_STREAMS = 10_000
# Bytes that a client may send before the application has read them.
_STREAM_WINDOW = 256 << 10
_CONNECTION_WINDOW = 1 << 30
_MAX_UNREAD = 8 << 20
_FIRST_WINDOW = 65_535

App = Callable[[Scope, Receive, Send], Awaitable[None]]
_log = logging.getLogger(__name__)


class _Stream:
    """One call. `gone`: the client no longer waits for the response."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.arrived = asyncio.Event()
        self.body: list[bytes] = []
        self.unread = 0  # flow-control bytes: those of `body` and of padding
        self.ended = False
        self.read_whole = False
        self.answered = False
        self.gone = False


class Http2(asyncio.Protocol):
    """One connection. `connections` and `tasks` are maintained as in uvicorn's protocol."""

    def __init__(self, app: App, connections: set[Any], tasks: set[asyncio.Task[None]]) -> None:
        self.transport: asyncio.Transport
        self._app = app
        self._connections = connections
        self._tasks = tasks
        self._streams: dict[int, _Stream] = {}
        self._unread = 0  # of all streams
        self._writable = asyncio.Event()
        self._writable.set()
        self._more_room = asyncio.Event()
        self._goaway_filter = GoawayFilter()
        self._h2 = H2Connection(H2Configuration(client_side=False))
        self._h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: _MAX_STREAMS,
                SettingCodes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
            },
        )

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connections.add(self)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_CONNECTION_WINDOW - _FIRST_WINDOW)
        self._flush()

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        self._leave_all()
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            events = self._h2.receive_data(self._goaway_filter.feed(data))
        except ProtocolError:
            self._flush()  # h2 has queued a GOAWAY with the reason
            self._leave_all()
            self.transport.close()
            return
        for event in events:
            self._handle(event)
        self._flush()

    def _handle(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event)
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            self._wake_senders()
        elif isinstance(event, DataReceived | StreamEnded | StreamReset):
            stream = self._streams.get(event.stream_id)
            if stream is None:
                return  # the response is complete, see _finish
            if isinstance(event, DataReceived):
                self._take(stream, event)
            elif isinstance(event, StreamEnded):
                stream.ended = True
            else:
                self._leave(stream)
            stream.arrived.set()

    def _take(self, stream: _Stream, event: DataReceived) -> None:
        stream.unread += event.flow_controlled_length
        self._unread += event.flow_controlled_length
        if self._unread <= _MAX_UNREAD and not stream.gone:
            stream.body.append(event.data)
            return
        if not stream.gone:
            self._h2.reset_stream(stream.number, ErrorCodes.REFUSED_STREAM)
            self._leave(stream)
            stream.body.clear()
        self._give_back(stream)

    def _begin(self, event: RequestReceived) -> None:
        stream = self._streams[event.stream_id] = _Stream(event.stream_id)
        task = asyncio.get_running_loop().create_task(self._run(stream, self._scope(event)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _scope(self, event: RequestReceived) -> Scope:
        special = {name: value for name, value in event.headers if name.startswith(b":")}
        headers = [pair for pair in event.headers if not pair[0].startswith(b":")]
        if b":authority" in special:
            # A request may have both; h2 refuses two that differ.
            headers = [pair for pair in headers if pair[0] != b"host"]
            headers.append((b"host", special[b":authority"]))
        raw_path, _, query = special.get(b":path", b"/").partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "method": special[b":method"].decode("latin-1"),
            "scheme": special.get(b":scheme", b"http").decode("latin-1"),
            "path": unquote(raw_path.decode("latin-1")),
            "raw_path": raw_path,
            "query_string": query,
            "root_path": "",
            "headers": headers,
            "client": self.transport.get_extra_info("peername"),
            "server": self.transport.get_extra_info("sockname"),
            "state": {TRANSPORT: self.transport},
        }

    # One call

    async def _run(self, stream: _Stream, scope: Scope) -> None:
        async def receive() -> dict[str, Any]:
            return await self._receive(stream)

        async def send(message: Any) -> None:
            await self._send(stream, message)

        try:
            await self._app(scope, receive, send)
        except Exception:  # noqa: BLE001 - a bug; the client sees a reset
            _log.exception("A call over HTTP/2 failed; its stream was reset")
        finally:
            self._finish(stream)

    def _finish(self, stream: _Stream) -> None:
        del self._streams[stream.number]
        if not stream.gone:
            if not stream.answered:
                self._h2.reset_stream(stream.number, ErrorCodes.INTERNAL_ERROR)
            elif not stream.ended:
                # The rest of the request is not needed (RFC 9113, section 8.1).
                self._h2.reset_stream(stream.number, ErrorCodes.NO_ERROR)
        self._give_back(stream)
        self._flush()

    async def _receive(self, stream: _Stream) -> dict[str, Any]:
        while True:
            if stream.gone or stream.answered:
                return {"type": "http.disconnect"}
            if stream.body or (stream.ended and not stream.read_whole):
                body = b"".join(stream.body)
                stream.body.clear()
                stream.read_whole = stream.ended
                self._give_back(stream)
                self._flush()
                return {"type": "http.request", "body": body, "more_body": not stream.ended}
            stream.arrived.clear()
            await stream.arrived.wait()

    async def _send(self, stream: _Stream, message: Any) -> None:
        if message["type"] == "http.response.start":
            if not stream.gone:
                status = (b":status", b"%d" % message["status"])
                self._h2.send_headers(stream.number, [status, *message["headers"]])
            return  # sent with the first part of the body
        more = message.get("more_body", False)
        await self._send_data(stream, memoryview(message.get("body", b"")), end=not more)
        if not more:
            stream.answered = True
            stream.arrived.set()

    async def _send_data(self, stream: _Stream, data: memoryview, *, end: bool) -> None:
        """Send one frame at a time, so that the streams of a connection take turns."""
        number, h2 = stream.number, self._h2
        while True:
            await self._writable.wait()
            if stream.gone:
                return
            room = min(h2.local_flow_control_window(number), h2.max_outbound_frame_size)
            if data and room <= 0:
                self._flush()  # the head of a response needs no flow-control window
                await self._more_room.wait()
                continue
            frame, data = data[: max(room, 0)], data[max(room, 0) :]
            if frame or (end and not data):
                h2.send_data(number, frame, end_stream=end and not data)
            self._flush()
            if not data:
                return
            await asyncio.sleep(0)

    def _leave_all(self) -> None:
        for stream in self._streams.values():
            self._leave(stream)

    def _leave(self, stream: _Stream) -> None:
        stream.gone = True
        stream.arrived.set()
        self._wake_senders()

    def _wake_senders(self) -> None:
        """Wake all waiting senders; each checks its own flow-control window."""
        self._more_room.set()
        self._more_room.clear()

    def _give_back(self, stream: _Stream) -> None:
        if stream.unread:
            self._h2.acknowledge_received_data(stream.unread, stream.number)
            self._unread -= stream.unread
            stream.unread = 0

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)
