"""Registration of the consumer that all workers of an application share for enhanced fan-out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import ConsumerLimitError, ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.explain import explain
from sparkinesis.stream.calls.retry import Backoff, error_code, is_retryable
from sparkinesis.stream.calls.shared_calls import at_once
from sparkinesis.stream.fan_out.consumers import (
    RegisteredConsumer,
    deregister_consumer,
    describe_consumer,
    list_consumers,
    try_to_register,
)

__all__ = ["deregister_consumer", "register_consumer"]

RETRY = Backoff(base=1.0, cap=10.0)
"""The backoff between two checks of a consumer that is not active yet; each waits 0.5 s more."""

MOST_CONSUMERS = 20
MOST_BEING_CREATED = 5
"""The limits of a stream's consumers (API reference, RegisterStreamConsumer). Streams in some modes
may have 50 consumers. The service enforces the limits; these numbers only explain its refusals."""


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
        consumer, said = describe_consumer(client, name, stream_arn), ""
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
        return try_to_register(client, name, stream_arn), ""
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
