"""Registering a consumer for enhanced fan-out: all workers of a name share one."""

from __future__ import annotations

from collections.abc import Sequence

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import ConsumerLimitError, ServiceError
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.explain import explain
from sparkinesis.stream.calls.retry import Retry, error_code, is_retryable
from sparkinesis.stream.fan_out.consumers import (
    Consumer,
    deregister_consumer,
    describe_consumer,
    list_consumers,
    try_to_register,
)

__all__ = ["deregister_consumer", "register_consumer"]

RETRY = Retry(base=1.0, cap=10.0)
"""The pauses between two looks at a consumer that is not active yet, less half a second each."""

MOST_CONSUMERS = 20
MOST_BEING_CREATED = 5
"""What RegisterStreamConsumer permits to a stream, by the service's API reference. In some modes a
stream may have 50 consumers: the service says what is too many, this only tells why."""


def register_consumer(
    client: StreamClient,
    name: str,
    retry: Retry = RETRY,
) -> str:
    """The ARN of the stream's ACTIVE consumer ``name``, which is registered if it is not there.

    Workers may do this at the same time: all get the same consumer. One that is being deleted is
    waited for and registered anew. Takes ``retry.give_up_after`` seconds at most.

    Raises `ConsumerLimitError` when the stream has as many consumers as it may, `ServiceError`
    when the time is over, and the errors of `StreamClient`.
    """
    stream_arn = client.stream_arn()
    deadline = retry.clock() + retry.give_up_after
    attempt = 0
    while True:
        consumer, said = describe_consumer(client, name, stream_arn), ""
        if consumer is None:
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
) -> tuple[Consumer | None, str]:
    """Try once: the new consumer; or none, and what was said, if another time it may work."""
    try:
        return try_to_register(client, name, stream_arn), ""
    except (ClientError, BotoCoreError) as error:
        code = error_code(error)
        # Once proves nothing of a stream that may have 50: many workers may ask in one second.
        if code == "LimitExceededException" and not is_first:
            consumers = list_consumers(client, stream_arn)
            # One of that name: another worker was quicker, and took the last place.
            if is_full(consumers) and name not in {consumer.name for consumer in consumers}:
                raise ConsumerLimitError(_full(client.address, name, consumers)) from None
        # ResourceInUse: another worker has just registered it, or it is being deleted.
        elif code != "ResourceInUseException" and not is_retryable(error):
            raise explain(error, "RegisterStreamConsumer", client.address, None, None) from None
        return None, f" RegisterStreamConsumer was last answered by {code}."


def is_full(consumers: Sequence[Consumer]) -> bool:
    """Whether a LimitExceededException will not pass by itself.

    It also comes for too many calls a second, and while too many consumers are being created.
    """
    states = [consumer.status for consumer in consumers]
    return (
        len(states) >= MOST_CONSUMERS
        and states.count("CREATING") < MOST_BEING_CREATED
        and "DELETING" not in states
    )


def _full(address: StreamAddress, name: str, consumers: Sequence[Consumer]) -> str:
    names = ", ".join(sorted(consumer.name for consumer in consumers))
    return (
        f"The consumer {name!r} cannot be registered with {address}: the stream has "
        f"{len(consumers)} registered consumers, and may not have more. They are {names}. "
        "Deregister one that nobody uses (aws kinesis deregister-stream-consumer), take the name "
        "of one of them if it is meant for this application, or read by polling."
    )


def _not_active(
    address: StreamAddress, name: str, consumer: Consumer | None, timeout: float, said: str
) -> str:
    state = "is not there" if consumer is None else f"is {consumer.status}"
    return (
        f"The consumer {name!r} of {address} {state}, {timeout:.0f} seconds after it was asked "
        f"for; it has to be ACTIVE.{said} Try again later, or look at it with: aws kinesis "
        "describe-stream-consumer."
    )
