"""A subscription: the connection over which the service pushes a shard's events.

They come as AWS event stream messages, in chunks of bytes of any size. A message is a prelude
(total length, length of the headers, CRC-32 of both), headers, a payload, and a CRC-32 of all
preceding bytes; numbers are big-endian. See "Amazon event stream encoding" in the reference of
Smithy, and of Amazon Transcribe. zlib-ng computes a CRC-32 ten times as fast as Python's zlib: in
0.05 and not 0.48 ms per MB.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec
from botocore.exceptions import EventStreamError, ReadTimeoutError, ResponseStreamingError
from zlib_ng.zlib_ng import crc32

from sparkinesis.errors import CorruptEventStreamError
from sparkinesis.stream.calls.answers.decoding import decode_event
from sparkinesis.stream.calls.direct.http_answer import StreamedBody
from sparkinesis.stream.page import SubscribeToShardEvent

HeaderValue: TypeAlias = bool | int | bytes | str

_MAX_HEADERS = 128 * 1024
_MAX_PAYLOAD = 24 * 1024 * 1024
"""The largest headers and payload of a message in bytes, by the encoding's rules."""

_PRELUDE = struct.Struct("!III")
_CRC = struct.Struct("!I")
_FRAME = _PRELUDE.size + _CRC.size

_FIXED = {2: "!b", 3: "!h", 4: "!i", 5: "!q", 8: "!q"}
"""The numeric header types: byte, short, integer, long, and timestamp in epoch ms."""
_BYTES, _STRING, _UUID = 6, 7, 9


class Message(NamedTuple):
    """A message. Its payload is a view of the bytes that were fed if one chunk held all of it."""

    headers: dict[str, HeaderValue]
    payload: memoryview


class EventStreamDecoder:
    """Decodes bytes into messages. Keeps only the bytes of the incomplete message.

    A reader that reads `missing` bytes at a time never has a message copied: it feeds the prelude,
    which has the length, and then the rest of the message in one piece.

    Raises `CorruptEventStreamError` for bytes that are not valid messages; the bytes after them
    cannot be decoded either.
    """

    def __init__(self) -> None:
        self._prelude: bytes | None = None
        self._parts: list[memoryview] = []
        """The bytes after the prelude, or those of an incomplete prelude."""
        self.missing = _PRELUDE.size
        """The number of bytes up to the end of the prelude or, after that, of the message."""

    @property
    def is_between_messages(self) -> bool:
        """True if all bytes fed so far belong to complete messages."""
        return self._prelude is None and not self._parts

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[Message]:
        """Yield the messages that ``data`` completes. Exhaust the iterator before feeding more."""
        view = memoryview(data)
        while len(view) >= self.missing:
            self._parts.append(view[: self.missing])
            view = view[self.missing :]
            whole = self._parts[0] if len(self._parts) == 1 else memoryview(b"".join(self._parts))
            self._parts = []
            prelude, self._prelude = self._prelude, None
            if prelude is None:
                # Check the lengths first: a broken length would make the caller wait for bytes
                # that never come.
                self._prelude = bytes(whole)
                self.missing = _total_length(self._prelude) - _PRELUDE.size
            else:
                self.missing = _PRELUDE.size
                yield _decode(prelude, whole)
        if view:
            self._parts.append(view)
            self.missing -= len(view)


def _total_length(prelude: bytes) -> int:
    total, headers, crc = _PRELUDE.unpack(prelude)
    computed = crc32(prelude[: -_CRC.size])
    if computed != crc:
        raise CorruptEventStreamError(
            f"The prelude of an event has the checksum {crc:08x}; expected {computed:08x}."
        )
    if headers > _MAX_HEADERS or not headers + _FRAME <= total <= headers + _FRAME + _MAX_PAYLOAD:
        raise CorruptEventStreamError(
            f"The prelude of an event gives impossible lengths: {total} bytes, {headers} of them "
            "headers."
        )
    return int(total)


def _decode(prelude: bytes, rest: memoryview) -> Message:
    """Return the message of a prelude and the bytes after it."""
    total, header_length, _ = _PRELUDE.unpack(prelude)
    content, (crc,) = rest[: -_CRC.size], _CRC.unpack(rest[-_CRC.size :])
    computed = crc32(content, crc32(prelude))
    if computed != crc:
        raise CorruptEventStreamError(
            f"An event of {total} bytes has the checksum {crc:08x}; expected {computed:08x}."
        )
    return Message(_headers(bytes(content[:header_length])), content[header_length:])


def _headers(data: bytes) -> dict[str, HeaderValue]:
    headers: dict[str, HeaderValue] = {}
    at = 0
    try:
        while at < len(data):
            length = data[at]
            name = _slice(data, at + 1, length).decode()
            if name in headers:
                raise CorruptEventStreamError(f"An event has the header {name} twice.")
            headers[name], at = _value(data, at + 1 + length)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise CorruptEventStreamError(f"The headers of an event are broken: {error}.") from None
    return headers


def _value(data: bytes, at: int) -> tuple[HeaderValue, int]:
    """Return the value whose type byte is at ``at``, and the offset of the next header."""
    kind = data[at]
    at += 1
    if kind in {0, 1}:
        return kind == 0, at
    if kind in _FIXED:
        (number,) = struct.unpack_from(_FIXED[kind], data, at)
        return int(number), at + struct.calcsize(_FIXED[kind])
    if kind == _UUID:
        return _slice(data, at, 16), at + 16
    if kind not in {_BYTES, _STRING}:
        raise CorruptEventStreamError(f"An event has a header of the unknown type {kind}.")
    (length,) = struct.unpack_from("!H", data, at)
    value = _slice(data, at + 2, length)
    return (value.decode() if kind == _STRING else value), at + 2 + length


def _slice(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise IndexError("they are truncated")
    return data[at : at + length]


OPERATION = "SubscribeToShard"

CHUNK = 4 * 1024 * 1024
"""The most bytes to read at a time: more than an event of 2 MiB takes in base64."""

LONGEST_EVENT = 60.0
"""Seconds in which the next event has to arrive, whole. The service sends one every few seconds; a
server that sends a byte now and then, or only messages to skip, would hold a thread for ever."""

_INITIAL_WAIT_MS = 1_000
"""How long to wait for the first message, which the service sends at once."""


class ReceivedEvent(NamedTuple):
    """An event, and the size of its JSON in bytes."""

    event: SubscribeToShardEvent
    size: int


class Subscription:
    """The events of one subscription, in order, until the service ends it (after five minutes).

    Bytes are read from the socket only when the caller asks for an event. So a slow reader slows
    the service down, and no events pile up here. One thread at a time calls `next_event`; any
    thread may call the others.

    A selector may wait for the next event: once ``has_data`` is true or the descriptor is readable,
    `next_event` waits no longer than the rest of the event takes to arrive.
    """

    def __init__(
        self,
        body: StreamedBody,
        service_time_ms: int,
        longest_event: float = LONGEST_EVENT,
        *,
        on_event: Callable[[SubscribeToShardEvent], None] = lambda _: None,
    ) -> None:
        """``on_event``: is called with each event, before it is returned."""
        self._on_event = on_event
        self.service_time_ms = service_time_ms
        """The service's clock (epoch ms) at the start of the subscription."""
        self._body = body
        self._longest_event = longest_event
        self._decoder = EventStreamDecoder()
        self._first: ReceivedEvent | None = None
        self._failure: BaseException | None = None
        """The failure of `skip_initial_response`, which `next_event` raises."""
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._is_reading = False
        self._is_watched = False
        """A selector may have the descriptor."""

    def fileno(self) -> int:
        """Return the descriptor of the connection, for a selector; -1 once the subscription ended.

        Once this was called, `close` makes the descriptor readable, and only `next_event`, which
        returns None then, closes it: another connection does not get its number under a selector.
        """
        with self._lock:
            self._is_watched = True
        return self._body.fileno()

    @property
    def has_data(self) -> bool:
        """True if bytes of the next event, or its end, have arrived where no selector sees them.

        Then call `next_event`, and do not wait for the descriptor.
        """
        return (
            self._first is not None
            or self._failure is not None
            or self._closed.is_set()
            or self._body.has_data
        )

    def next_event(self) -> ReceivedEvent | None:
        """Wait for the next event and return it; None once the subscription has ended or is closed.

        Raises botocore's errors: `EventStreamError` for an error that the service sends as the
        last message, `ReadTimeoutError` when no bytes arrive (the service sends events without
        records every few seconds) or no whole event in time, `ResponseStreamingError` for a broken
        connection; and `CorruptEventStreamError`. Every error closes the subscription.
        """
        try:
            received = self._take_first() or self._next()
        except BaseException:
            self._end()
            raise
        if received is None:
            self._end()
        return received

    def close(self) -> None:
        """End the subscription and a waiting `next_event` at once. The connection is not reused."""
        with self._lock:
            self._closed.set()
            if self._is_reading or self._is_watched:
                self._body.shutdown()
                return
        self._body.close()

    def skip_initial_response(self) -> None:
        """Read the first message if it arrives at once, so that the next bytes are an event's.

        A failure is raised by `next_event`.
        """
        try:
            if self._body.await_data(_INITIAL_WAIT_MS):
                until = self._body.instant_in(self._longest_event)
                while self._first is None:
                    self._first, is_over = self._step(until)
                    if is_over or self._decoder.is_between_messages:
                        break
        except BaseException as error:  # noqa: BLE001 - raised by the next call
            self._failure = error

    def _take_first(self) -> ReceivedEvent | None:
        first, failure = self._first, self._failure
        self._first = self._failure = None
        if self._closed.is_set():
            return None
        if failure is not None:
            raise failure
        return first

    def _next(self) -> ReceivedEvent | None:
        until = self._body.instant_in(self._longest_event)
        while not self._closed.is_set():
            received, is_over = self._step(until)
            if received is not None or is_over:
                return received
        return None

    def _step(self, until: float) -> tuple[ReceivedEvent | None, bool]:
        """Read once; return the event that is whole then, and whether the body has ended."""
        # At most one message is whole: no more bytes are read than the message has.
        data = self._read(until)
        if not data:
            self._check_end()
            return None, True
        found = None
        for message in self._decoder.feed(data):
            found = _received(message)
            if found is not None:
                self._on_event(found.event)
        return found, False

    def _end(self) -> None:
        self._closed.set()
        self._body.close()

    def _read(self, until: float) -> bytes | bytearray:
        """Wait for bytes and return them; empty at the end, or when closed."""
        with self._lock:
            if self._closed.is_set():
                return b""
            self._is_reading = True
        try:
            # Read up to the end of the event, into one buffer.
            return self._body.read(min(self._decoder.missing, CHUNK), until)
        except (OSError, EOFError, ValueError) as error:
            if self._closed.is_set():
                return b""
            if isinstance(error, TimeoutError):
                raise ReadTimeoutError(endpoint_url=self._body.url, error=error) from error
            raise ResponseStreamingError(error=error) from error
        finally:
            with self._lock:
                self._is_reading = False

    def _check_end(self) -> None:
        if not self._closed.is_set() and not self._decoder.is_between_messages:
            raise CorruptEventStreamError("The subscription ended in the middle of an event.")


def subscribe(
    client: Any,
    consumer_arn: str,
    shard_id: str,
    starting_position: Mapping[str, Any],
    service_time: Callable[[Mapping[str, Any]], int],
    *,
    on_event: Callable[[SubscribeToShardEvent], None] = lambda _: None,
) -> Subscription:
    """Call SubscribeToShard with `sparkinesis.stream.calls.caller.call_client`'s client.

    ``service_time`` reads the service's clock from an answer's headers. Raises botocore's errors.
    """
    answer = client.subscribe_to_shard(
        ConsumerARN=consumer_arn, ShardId=shard_id, StartingPosition=starting_position
    )
    subscription = Subscription(answer["Body"], service_time(answer), on_event=on_event)
    subscription.skip_initial_response()
    return subscription


def _received(message: Message) -> ReceivedEvent | None:
    """Return a message's event; None for a message to skip.

    Raises botocore's `EventStreamError` for an exception that the service sent.
    """
    headers, payload = message
    kind = headers.get(":message-type")
    if kind == "event":
        # Skip initial-response, and types that the service may add.
        if headers.get(":event-type") != "SubscribeToShardEvent":
            return None
        return ReceivedEvent(decode_event(payload), len(payload))
    if kind == "exception":
        raise _error(headers.get(":exception-type"), _exception_text(payload))
    if kind == "error":
        raise _error(headers.get(":error-code"), headers.get(":error-message"))
    raise CorruptEventStreamError(f"A message has the unknown type {kind!r}.")


def _error(code: object, text: object) -> EventStreamError:
    error = {"Code": str(code or "Unknown"), "Message": str(text or "")}
    return EventStreamError({"Error": error, "ResponseMetadata": {}}, OPERATION)


def _exception_text(payload: memoryview) -> str:
    try:
        words = msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return str(words.get("message") or words.get("Message") or "")
