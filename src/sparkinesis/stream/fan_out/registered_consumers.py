"""The registered consumers of a stream, which read it by enhanced fan-out: calls, registration.

All workers of an application share one consumer (`register_consumer`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import ConsumerLimitError, ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.answers.guards import pages
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.explain import explain
from sparkinesis.stream.calls.retry import Backoff, error_code, is_retryable
from sparkinesis.stream.calls.shared_calls import SharedAnswer, at_once

_FRESH_FOR = 2.0
"""Seconds for which a consumer's state is good enough to explain why subscriptions ended."""


class RegisteredConsumer(msgspec.Struct, frozen=True):
    """A registered consumer, which has 2 MiB/s of each shard to itself."""

    name: str
    arn: str
    status: str
    """``CREATING``, ``ACTIVE`` or ``DELETING``."""

    @property
    def is_active(self) -> bool:
        return self.status == "ACTIVE"


def describe_consumer(client: StreamClient, **which: str) -> RegisteredConsumer | None:
    """Return a consumer (DescribeStreamConsumer); None if it is not registered.

    which: its ``ConsumerARN``, or the ``StreamARN`` and its ``ConsumerName``.
    """

    def describe(boto_client: Any) -> RegisteredConsumer | None:
        try:
            answer = boto_client.describe_stream_consumer(**which)
        except ClientError as error:
            if error_code(error) != "ResourceNotFoundException":
                raise
            return None
        return _consumer(answer["ConsumerDescription"])

    return client.call("DescribeStreamConsumer", describe)


def list_consumers(client: StreamClient, stream_arn: str) -> list[RegisteredConsumer]:
    """Return the stream's consumers (ListStreamConsumers, all pages)."""

    def ask(token: str | None) -> Mapping[str, Any]:
        request = {"StreamARN": stream_arn, **({"NextToken": token} if token else {})}

        def listed(boto_client: Any) -> Mapping[str, Any]:
            answer = boto_client.list_stream_consumers(**request)
            return {**answer, "Consumers": [_consumer(one) for one in answer.get("Consumers", ())]}

        return client.call("ListStreamConsumers", listed)

    listing = pages(f"ListStreamConsumers of {client.address}", "NextToken", ask)
    return [consumer for answer in listing for consumer in answer["Consumers"]]


def _try_to_register(client: StreamClient, name: str, stream_arn: str) -> RegisteredConsumer:
    """Call RegisterStreamConsumer once. Raises botocore's errors."""
    answer = client.call_once(
        "RegisterStreamConsumer",
        lambda c: c.register_stream_consumer(StreamARN=stream_arn, ConsumerName=name),
    )
    return _consumer(answer["Consumer"])


def deregister_consumer(
    client: StreamClient, consumer_arn: str, retry: Backoff | None = None
) -> None:
    """Deregister the consumer (DeregisterStreamConsumer), which ends its subscriptions.

    Does nothing if the consumer is not registered. Raises the errors of `StreamClient`.
    """

    def deregister(boto_client: Any) -> None:
        try:
            boto_client.deregister_stream_consumer(ConsumerARN=consumer_arn)
        except ClientError as error:
            if error_code(error) != "ResourceNotFoundException":
                raise

    client.call("DeregisterStreamConsumer", deregister, retry=retry)


class ConsumerFinder:
    """Finds a consumer by its ARN, to see whether the consumer is still registered. For any thread.

    The subscriptions to all shards of a stream end at once when their consumer is deregistered,
    and an account may call DescribeStreamSummary 20 times a second (the service's API reference):
    the cursors that share a finder share its calls.
    """

    def __init__(self, client: StreamClient, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._shared: dict[str, SharedAnswer[RegisteredConsumer | None]] = {}

    def __call__(self, consumer_arn: str) -> RegisteredConsumer | None:
        """Return the consumer, or None if it is not registered; at most two seconds old.

        Raises the errors of `StreamClient`; `StreamNotFoundError` if the stream was deleted.
        """
        with self._lock:
            shared = self._shared.setdefault(
                consumer_arn,
                SharedAnswer(lambda: self._find(consumer_arn), _FRESH_FOR, self._clock),
            )
        return shared()

    def _find(self, consumer_arn: str) -> RegisteredConsumer | None:
        self._client.describe()  # raises if the stream does not exist
        return describe_consumer(self._client, ConsumerARN=consumer_arn)


def _consumer(answer: Mapping[str, Any]) -> RegisteredConsumer:
    return RegisteredConsumer(
        answer["ConsumerName"], answer["ConsumerARN"], answer["ConsumerStatus"]
    )


RETRY = Backoff(base=1.0, cap=10.0)
"""The backoff between two checks of a consumer that is not active yet; each waits 0.5 s more."""

MOST_CONSUMERS = 20
MOST_BEING_CREATED = 5
"""The limits of a stream's consumers, its queues included (API reference, RegisterStreamConsumer).
Streams in some modes may have 50. The service enforces the limits; these numbers only explain its
refusals."""


def register_consumer(
    client: StreamClient,
    name: str,
    retry: Backoff = RETRY,
    pace: Callable[[str], None] = at_once,
) -> str:
    """Return the ARN of the stream's ACTIVE consumer ``name``; register it if it does not exist.

    Workers that register at the same time get the same consumer. A consumer that is being deleted
    is registered again once it is deleted. Waits ``retry.give_up_after`` seconds at most. ``pace``
    waits until this process may make a call of an operation.

    Raises `ConsumerLimitError` if the stream has the most consumers that it may have,
    `ServiceError` if the consumer is not ACTIVE in time, and the errors of `StreamClient`.
    """
    stream_arn = client.stream_arn()
    deadline = retry.clock() + retry.give_up_after
    attempt = 0
    while True:
        pace("DescribeStreamConsumer")
        consumer = describe_consumer(client, StreamARN=stream_arn, ConsumerName=name)
        said = ""
        if consumer is None:
            pace("RegisterStreamConsumer")
            consumer, said = _register(client, name, stream_arn, is_first=attempt == 0)
        if consumer is not None and consumer.is_active:
            return consumer.arn
        pause = 0.5 + retry.pause(attempt)
        if retry.clock() + pause > deadline:
            raise ServiceError(
                _not_active(client.address, name, consumer, retry.give_up_after, said)
            )
        retry.sleep(pause)
        attempt += 1


def _register(
    client: StreamClient, name: str, stream_arn: str, *, is_first: bool
) -> tuple[RegisteredConsumer | None, str]:
    """Try once. Return the new consumer; or None and the service's answer if a retry may help."""
    try:
        return _try_to_register(client, name, stream_arn), ""
    except (ClientError, BotoCoreError) as error:
        code = error_code(error)
        # The first refusal may be throttling: many workers may register in the same second.
        if code == "LimitExceededException" and not is_first:
            consumers = list_consumers(client, stream_arn)
            # If the list has the name, another worker has just registered the consumer.
            if is_full(consumers) and name not in {consumer.name for consumer in consumers}:
                raise ConsumerLimitError(_full(client.address, name, consumers)) from None
        # ResourceInUse: another worker has registered the consumer, or it is being deleted.
        elif code != "ResourceInUseException" and not is_retryable(error):
            raise explain(error, "RegisterStreamConsumer", client.address, None, None) from None
        return None, f" The last answer to RegisterStreamConsumer was {code}."


def is_full(consumers: Sequence[RegisteredConsumer]) -> bool:
    """Return True if the stream has the most consumers that it may have.

    A LimitExceededException may also mean too many calls a second, or too many consumers in
    creation: both pass.
    """
    states = [consumer.status for consumer in consumers]
    return (
        len(states) >= MOST_CONSUMERS
        and states.count("CREATING") < MOST_BEING_CREATED
        and "DELETING" not in states
    )


def _full(address: StreamAddress, name: str, consumers: Sequence[RegisteredConsumer]) -> str:
    names = ", ".join(sorted(consumer.name for consumer in consumers))
    return (
        f"Cannot register the consumer {name!r} with {address}: the stream already has "
        f"{len(consumers)} registered consumers, which is its limit: {names}. Deregister an unused "
        "one (aws kinesis deregister-stream-consumer), set the consumer name to one of them if it "
        "belongs to this application, or read by polling."
    )


def _not_active(
    address: StreamAddress,
    name: str,
    consumer: RegisteredConsumer | None,
    timeout: float,
    said: str,
) -> str:
    state = "is not registered" if consumer is None else f"is {consumer.status}"
    return (
        f"The consumer {name!r} of {address} {state} after {timeout:.0f} seconds; it must be "
        f"ACTIVE.{said} Try again later, or inspect the consumer with: aws kinesis "
        "describe-stream-consumer."
    )
