"""The calls on a stream's registered consumers, which read it by enhanced fan-out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from botocore.exceptions import ClientError

from sparkinesis.stream.calls.answers.listing import pages
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff, error_code
from sparkinesis.stream.calls.shared_calls import SharedAnswer

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


def describe_consumer(
    client: StreamClient, name: str, stream_arn: str
) -> RegisteredConsumer | None:
    """Return the stream's consumer of that name (DescribeStreamConsumer), or None."""
    return _describe(client, StreamARN=stream_arn, ConsumerName=name)


def describe_consumer_arn(client: StreamClient, consumer_arn: str) -> RegisteredConsumer | None:
    """Return the consumer with that ARN (DescribeStreamConsumer); None if it is not registered."""
    return _describe(client, ConsumerARN=consumer_arn)


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


def try_to_register(client: StreamClient, name: str, stream_arn: str) -> RegisteredConsumer:
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
        return describe_consumer_arn(self._client, consumer_arn)


def _describe(client: StreamClient, **which: str) -> RegisteredConsumer | None:
    def describe(boto_client: Any) -> RegisteredConsumer | None:
        try:
            answer = boto_client.describe_stream_consumer(**which)
        except ClientError as error:
            if error_code(error) != "ResourceNotFoundException":
                raise
            return None
        return _consumer(answer["ConsumerDescription"])

    return client.call("DescribeStreamConsumer", describe)


def _consumer(answer: Mapping[str, Any]) -> RegisteredConsumer:
    return RegisteredConsumer(
        answer["ConsumerName"], answer["ConsumerARN"], answer["ConsumerStatus"]
    )
