"""A subscription: the connection over which the service pushes a shard's events."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import urllib3.exceptions
from botocore.exceptions import EventStreamError, ReadTimeoutError, ResponseStreamingError
from urllib3 import HTTPResponse

from sparkinesis.errors import CorruptEventStreamError
from sparkinesis.stream.calls.answers.decoding import decode_event
from sparkinesis.stream.calls.answers.event_stream import EventStreamDecoder, Message
from sparkinesis.stream.page import Event

OPERATION = "SubscribeToShard"

CHUNK = 4 * 1024 * 1024
"""The most bytes to read at a time: more than an event of 2 MiB takes in base64."""


class ReceivedEvent(NamedTuple):
    """An event, and the size of its JSON in bytes."""

    event: Event
    size: int


class Subscription:
    """The events of one subscription, in order, until the service ends it (after five minutes).

    Bytes are read from the socket only when the caller asks for an event. So a slow reader slows
    the service down, and no events pile up here. One thread calls `next_event`; any thread may
    call `close`.
    """

    def __init__(self, body: HTTPResponse, service_time_ms: int) -> None:
        self.service_time_ms = service_time_ms
        """The service's clock (epoch ms) at the start of the subscription."""
        self._body = body
        self._decoder = EventStreamDecoder()
        self._messages: Iterator[Message] = iter(())
        self._lock = threading.Lock()
        self._is_reading = False
        self._closed = threading.Event()

    def next_event(self) -> ReceivedEvent | None:
        """Wait for the next event and return it; None once the subscription has ended or is closed.

        Raises botocore's errors: `EventStreamError` for an error that the service sends as the
        last message, `ReadTimeoutError` when no bytes arrive (the service sends events without
        records every few seconds), `ResponseStreamingError` for a broken connection; and
        `CorruptEventStreamError`. Every error closes the subscription.
        """
        try:
            while not self._closed.is_set():
                for message in self._messages:
                    received = _received(message)
                    if received is not None:
                        return received
                data = self._read()
                if not data:
                    self._check_end()
                    break
                self._messages = self._decoder.feed(data)
        except BaseException:
            self.close()
            raise
        self.close()
        return None

    def __iter__(self) -> Iterator[Event]:
        while (received := self.next_event()) is not None:
            yield received.event

    def close(self) -> None:
        """End the subscription and a waiting `next_event` at once. The connection is not reused."""
        with self._lock:
            self._closed.set()
            if self._is_reading:
                # The reader closes the body: closing it here would not wake a running read.
                # An error means that the read has just ended, or that the peer has disconnected.
                with contextlib.suppress(ValueError, RuntimeError, OSError):
                    self._body.shutdown()
                return
        self._body.close()

    def _read(self) -> bytes:
        """Wait for bytes and return them; empty at the end, or when closed."""
        with self._lock:
            if self._closed.is_set():
                return b""
            self._is_reading = True
        try:
            # Read up to the end of the event, into one buffer. Content decoding would copy the
            # bytes.
            wanted = min(self._decoder.missing, CHUNK)
            data = self._body.read(wanted, decode_content=False)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise ReadTimeoutError(endpoint_url=self._body.url) from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # TLS raises ValueError when another thread has shut the socket down; not an error.
            if self._closed.is_set():
                return b""
            raise ResponseStreamingError(error=error) from error
        finally:
            with self._lock:
                self._is_reading = False
        return data or b""

    def _check_end(self) -> None:
        if not self._closed.is_set() and not self._decoder.is_between_messages:
            raise CorruptEventStreamError("The subscription ended in the middle of an event.")


def subscribe(
    client: Any,
    consumer_arn: str,
    shard_id: str,
    starting_position: Mapping[str, Any],
    service_time: Callable[[Mapping[str, Any]], int],
) -> Subscription:
    """Call SubscribeToShard with `sparkinesis.stream.calls.transport.call_client`'s client.

    ``service_time`` reads the service's clock from an answer's headers. Raises botocore's errors.
    """
    answer = client.subscribe_to_shard(
        ConsumerARN=consumer_arn, ShardId=shard_id, StartingPosition=starting_position
    )
    return Subscription(answer["Body"], service_time(answer))


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
