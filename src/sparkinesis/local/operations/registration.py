"""The operations on registered consumers (enhanced fan-out)."""

from __future__ import annotations

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.model import limits
from sparkinesis.local.model.queue import Queue
from sparkinesis.local.model.registered_consumer import Consumer, ExceptionEvent
from sparkinesis.local.model.stream import Stream
from sparkinesis.local.model.tokens import ListConsumersToken, seal
from sparkinesis.local.operations import account
from sparkinesis.local.operations.context import ACCOUNT, Context, Json, queue_id, resume
from sparkinesis.local.service_errors import KinesisError

Resource = Stream | Consumer | Queue
"""The kinds of things that a ResourceARN names."""


def register_stream_consumer(context: Context, request: requests.RegisterStreamConsumer) -> Json:
    stream = context.find(None, request.stream_arn)
    name = request.consumer_name
    tags = request.tags or {}
    validation.check_tags(f"consumer {name} under account {ACCOUNT}", tags, {})
    if not stream.is_serving:
        raise service_errors.not_active(stream.name, ACCOUNT, stream.status)
    if name in stream.consumers:
        raise KinesisError(
            "ResourceInUseException",
            f"Consumer {name} under stream {stream.name} already exists for account {ACCOUNT}.",
        )
    account.check_consumers(context, stream)
    creating = [c.name for c in stream.consumers.values() if c.status(context.now) == "CREATING"]
    if len(creating) >= limits.MAX_CREATING_CONSUMERS:
        raise service_errors.limit_exceeded(
            f"Stream {stream.name} under account {ACCOUNT} has {limits.MAX_CREATING_CONSUMERS} "
            "consumers in state CREATING, which is the limit."
        )
    arn = f"{stream.arn}/consumer/{name}:{context.now // 1000}"
    consumer = stream.consumers[name] = Consumer(
        name, arn, context.now, context.now + context.delays.consumer_ms
    )
    consumer.tags.update(tags)
    return {"Consumer": _consumer_json(consumer, context.now)}


def deregister_stream_consumer(context: Context, request: requests.StreamConsumer) -> None:
    stream, consumer = _named(context, request)
    if consumer.gone_ms is None:
        consumer.gone_ms = context.now + context.delays.consumer_ms
        consumer.fail_subscriptions(
            ExceptionEvent("ResourceNotFoundException", _not_found(consumer.name, stream))
        )
        stream.settle(context.now)


def describe_stream_consumer(context: Context, request: requests.StreamConsumer) -> Json:
    stream, consumer = _named(context, request)
    return {
        "ConsumerDescription": {**_consumer_json(consumer, context.now), "StreamARN": stream.arn}
    }


def list_stream_consumers(context: Context, request: requests.ListStreamConsumers) -> Json:
    stream = context.find(None, request.stream_arn)
    after = ""
    if request.next_token is not None:
        token = resume(request.next_token, ListConsumersToken, context.now)
        if token.stream_arn != stream.arn:
            raise service_errors.invalid_argument("Invalid NextToken.")
        after = token.after_consumer
    consumers = [stream.consumers[name] for name in sorted(stream.consumers) if name > after]
    page = consumers[: request.max_results or 100]
    answer: Json = {"Consumers": [_consumer_json(consumer, context.now) for consumer in page]}
    if len(consumers) > len(page):
        answer["NextToken"] = seal(ListConsumersToken(context.now, stream.arn, page[-1].name))
    return answer


def _named(context: Context, request: requests.StreamConsumer) -> tuple[Stream, Consumer]:
    if request.consumer_arn is None and (
        request.stream_arn is None or request.consumer_name is None
    ):
        raise service_errors.invalid_argument(
            "Either ConsumerARN or both StreamARN and ConsumerName must be provided."
        )
    return find_consumer(context, request.consumer_arn, request.stream_arn, request.consumer_name)


def find_consumer(
    context: Context, arn: str | None, stream_arn: str | None = None, name: str | None = None
) -> tuple[Stream, Consumer]:
    """Return a stream and its consumer of this ARN, or else of this name. Raises: KinesisError."""
    if arn is not None:
        stream_arn, _, rest = arn.partition("/consumer/")
        name = rest.rpartition(":")[0]
    stream = context.find(None, stream_arn)
    consumer = stream.consumers.get(name or "")
    if consumer is None or (arn is not None and arn != consumer.arn):
        raise KinesisError("ResourceNotFoundException", _not_found(name, stream))
    return stream, consumer


def find_resource(context: Context, arn: str) -> Resource:
    """Return the stream, consumer or queue that a ResourceARN names. Raises: KinesisError."""
    if queue_id(arn) is not None:
        return context.find_queue(arn)
    if "/consumer/" in arn:
        return find_consumer(context, arn)[1]
    return context.find(None, arn)


def check_active(context: Context, resource: Resource) -> None:
    """Raise KinesisError unless the stream, consumer or queue is ACTIVE."""
    if isinstance(resource, Stream):
        if resource.status != "ACTIVE":
            raise service_errors.not_active(resource.name, ACCOUNT, resource.status)
    elif isinstance(resource, Queue):
        if resource.status != "ACTIVE":
            raise service_errors.queue_not_active(resource.name, ACCOUNT, resource.status)
    elif resource.status(context.now) != "ACTIVE":
        stream = resource.arn.partition(":stream/")[2].partition("/")[0]
        created_s = resource.created_ms // 1000
        raise KinesisError(
            "ResourceInUseException",
            f"Consumer {resource.name} with creation timestamp {created_s} under stream {stream} "
            f"and account {ACCOUNT} is not in ACTIVE status.",
        )


def _not_found(name: str | None, stream: Stream) -> str:
    return f"Consumer {name}, stream {stream.name} under account {ACCOUNT} not found."


def _consumer_json(consumer: Consumer, now: int) -> Json:
    return {
        "ConsumerName": consumer.name,
        "ConsumerARN": consumer.arn,
        "ConsumerStatus": consumer.status(now),
        "ConsumerCreationTimestamp": consumer.created_ms / 1000,
    }
