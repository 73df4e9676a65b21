"""The responses that wait for records, on ASGI: the result of a receive, and SubscribeToShard's.

The body of SubscribeToShard's is event stream messages, chunked. A message is a prelude (its own
length and that of its headers, 4 bytes each, and their CRC32), the headers, the payload, and the
CRC32 of everything before. Integers are big-endian. All headers here are strings. Source:
https://smithy.io/2.0/aws/amazon-eventstream.html
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import struct
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from zlib_ng.zlib_ng import crc32

from sparkinesis.local.clock import Alarm, IdleUntil
from sparkinesis.local.encoding.codecs import Codec
from sparkinesis.local.kinesis import CallResult, LocalKinesis, PendingCall
from sparkinesis.local.model.registered_consumer import (
    EVENT,
    End,
    ExceptionEvent,
    PushedEvent,
    ServedSubscription,
)

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Waiting:
    """What the sender of a response waits for. For one event loop, but for the alarm.

    receive: of the request, whose body has been read.
    """

    def __init__(self, alarm: Alarm, receive: Receive) -> None:
        loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._gone = loop.create_task(_disconnected(receive))
        self._gone.add_done_callback(lambda _: self._woken.set())
        alarm.wake = lambda: loop.call_soon_threadsafe(self._woken.set)

    @property
    def client_left(self) -> bool:
        return self._gone.done()

    def begin(self) -> None:
        """Begin a turn: what rings from now on ends its wait."""
        self._woken.clear()

    async def wait(self, timeout_s: float | None) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._woken.wait(), timeout_s)

    def end(self) -> None:
        self._gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def result_of(
    kinesis: LocalKinesis, call: PendingCall, receive: Receive
) -> CallResult | None:
    """Wait for the result of a call, by no thread; return None once its client has gone."""
    assert call.poll is not None, "only a receive waits"
    waiting = Waiting(call.poll.alarm, receive)
    try:
        while not waiting.client_left:
            waiting.begin()
            step = kinesis.resume(call)
            if isinstance(step, CallResult):
                return step
            await waiting.wait(kinesis.timeout_s(step.until_ms))
        return None
    finally:
        waiting.end()
        kinesis.leave(call)


EVENT_STREAM = "application/vnd.amazon.eventstream"

_STRING = 7
_LENGTHS = struct.Struct(">II")
_CRC = struct.Struct(">I")
_AROUND = _LENGTHS.size + 2 * _CRC.size


def event(kind: str, content_type: str, payload: bytes) -> bytes:
    return message(
        {":event-type": kind, ":content-type": content_type, ":message-type": "event"}, payload
    )


def exception(code: str, content_type: str, payload: bytes) -> bytes:
    return message(
        {":exception-type": code, ":content-type": content_type, ":message-type": "exception"},
        payload,
    )


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    return framed(b"".join(_header(name, value) for name, value in headers.items()), payload)


def framed(head: bytes, payload: bytes) -> bytes:
    """Return a message with these packed headers."""
    lengths = _LENGTHS.pack(_AROUND + len(head) + len(payload), len(head))
    front = lengths + _CRC.pack(crc32(lengths)) + head
    return b"".join((front, payload, _CRC.pack(crc32(payload, crc32(front)))))


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack(f">B{len(key)}sBH", len(key), key, _STRING, len(text)) + text


Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclasses.dataclass(eq=False)
class Push:
    """The body of one response. Each event is read from the shard after the previous one was sent.

    `send` waits for a slow client, so a slow client costs the memory of one event and of its
    connection's buffers.
    """

    kinesis: LocalKinesis
    subscription: ServedSubscription
    codec: Codec
    receive: Receive
    send: Send
    _left: int | None = None

    async def run(self, cut_after: int | None = None) -> bool:
        """Send events until the subscription ends or the client disconnects, and return True.

        Return False after `cut_after` bytes: the caller has to reset the connection.
        """
        self._left = cut_after
        waiting = Waiting(self.subscription.alarm, self.receive)
        kind = self.codec.content_type
        try:
            await self._add(event("initial-response", kind, self.codec.encode({})))
            while not waiting.client_left and self._left != 0 and await self._step(waiting):
                # Yield to other clients, even if this one keeps up with its events.
                await asyncio.sleep(0)
            if not waiting.client_left and self._left != 0:
                await self.send({"type": "http.response.body", "body": b""})
        finally:
            waiting.end()
        return self._left != 0

    async def _step(self, waiting: Waiting) -> bool:
        """Send the next event, or wait for it. Return False after the last one."""
        waiting.begin()
        step = self.kinesis.next_step(self.subscription)
        if isinstance(step, PushedEvent | ExceptionEvent):
            await self._add(self._message(step))
        elif isinstance(step, IdleUntil):
            await waiting.wait(self.kinesis.timeout_s(step.until_ms))
        return not isinstance(step, End | ExceptionEvent)

    def _message(self, step: PushedEvent | ExceptionEvent) -> bytes:
        codec = self.codec
        if isinstance(step, PushedEvent):
            return event(EVENT, codec.content_type, codec.encode(step.page))
        payload = codec.encode({"message": step.message})
        return exception(step.code, codec.content_type, payload)

    async def _add(self, message: bytes) -> None:
        if self._left is not None:
            message = message[: self._left]
            self._left -= len(message)
        await self.send({"type": "http.response.body", "body": message, "more_body": True})
