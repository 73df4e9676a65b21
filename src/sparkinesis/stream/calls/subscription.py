"""One SubscribeToShard call: a connection over which the service pushes a shard's events."""

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
from sparkinesis.stream.calls.event_stream import EventStreamDecoder, Message
from sparkinesis.stream.page import Event, decode_event

OPERATION = "SubscribeToShard"

CHUNK = 256 * 1024
"""Bytes that are read from the socket at a time, at most; fewer if no more are there."""


class ReceivedEvent(NamedTuple):
    """An event, and how many bytes its JSON has."""

    event: Event
    size: int


class Subscription:
    """The events of one subscription, in order, until the service ends it (after five minutes).

    Nothing is read from the socket unless an event is asked for, so a slow reader holds up the
    service, and no events pile up here. `next_event` is for one thread; `close` for any.
    """

    def __init__(self, body: HTTPResponse, service_time_ms: int) -> None:
        self.service_time_ms = service_time_ms
        """The service's clock (epoch ms) when it began."""
        self._body = body
        self._decoder = EventStreamDecoder()
        self._messages: Iterator[Message] = iter(())
        self._lock = threading.Lock()
        self._is_reading = False
        self._closed = threading.Event()

    def next_event(self) -> ReceivedEvent | None:
        """The next event, waiting for it; None when the subscription is over, or was closed.

        Raises botocore's errors: `EventStreamError` for what the service sends as the
        subscription's last message, `ReadTimeoutError` when nothing came for long (the service
        sends events without records every few seconds), `ResponseStreamingError` for a broken
        connection; and `CorruptEventStreamError`. The subscription is closed then.
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
        """End it at once, and a `next_event` that waits. Its connection is not used again."""
        with self._lock:
            self._closed.set()
            if self._is_reading:
                # The reader closes it. To close it here would not wake a read under way.
                # Errors: the read has just ended by itself, or the other end has gone.
                with contextlib.suppress(ValueError, RuntimeError, OSError):
                    self._body.shutdown()
                return
        self._body.close()

    def _read(self) -> bytes:
        """What has come, at least a byte; waits for it. Nothing at the end, or when closed."""
        with self._lock:
            if self._closed.is_set():
                return b""
            self._is_reading = True
        try:
            # As it came: what decodes a body's content would copy it.
            data = self._body.read1(CHUNK, decode_content=False)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise ReadTimeoutError(endpoint_url=self._body.url) from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # ValueError: TLS, when another thread has shut the socket down. Then it is no error.
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
    """Call SubscribeToShard with `sparkinesis.stream.calls.transport.subscription_client`'s client.

    ``service_time`` reads the service's clock from an answer's headers. Raises botocore's errors.
    """
    answer = client.subscribe_to_shard(
        ConsumerARN=consumer_arn, ShardId=shard_id, StartingPosition=starting_position
    )
    return Subscription(answer["Body"], service_time(answer))


def _received(message: Message) -> ReceivedEvent | None:
    """A message's event; None for a message that is to be passed over.

    Raises botocore's `EventStreamError` for an exception of the service.
    """
    headers, payload = message
    kind = headers.get(":message-type")
    if kind == "event":
        # Passed over: initial-response, and what the service may send besides in future.
        if headers.get(":event-type") != "SubscribeToShardEvent":
            return None
        return ReceivedEvent(decode_event(payload), len(payload))
    if kind == "exception":
        raise _error(headers.get(":exception-type"), _exception_text(payload))
    if kind == "error":
        raise _error(headers.get(":error-code"), headers.get(":error-message"))
    raise CorruptEventStreamError(f"A message is of the unknown type {kind!r}.")


def _error(code: object, text: object) -> EventStreamError:
    error = {"Code": str(code or "Unknown"), "Message": str(text or "")}
    return EventStreamError({"Error": error, "ResponseMetadata": {}}, OPERATION)


def _exception_text(payload: memoryview) -> str:
    try:
        words = msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return str(words.get("message") or words.get("Message") or "")
