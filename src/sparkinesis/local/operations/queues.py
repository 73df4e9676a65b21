"""The operations on queues: create, describe, update, delete, list."""

from __future__ import annotations

import hashlib

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.model.queue import Attributes, Queue, QueueStart
from sparkinesis.local.model.tokens import ListQueuesToken, seal
from sparkinesis.local.operations import account
from sparkinesis.local.operations.context import ACCOUNT, Context, Json, millis, resume
from sparkinesis.local.service_errors import KinesisError

_MOST_LISTED = 100


def create_queue(context: Context, request: requests.CreateQueue) -> Json:
    name, region, count = request.queue_name, context.region, len(request.stream_configuration_list)
    if count != 1:
        rule = "Member must have length less than or equal to 1"
        raise service_errors.validation(
            validation.violation(f"'[{count} members]'", "streamConfigurationList", rule)
        )
    (configuration,) = request.stream_configuration_list
    start = _start(context, configuration.starting_position)
    attributes = _attributes(request.queue_attributes, Attributes())
    validation.check_tags(f"queue {name} under account {ACCOUNT}", request.tags or {}, {})
    stream = context.find(None, configuration.stream_arn, active=True)
    if not stream.settings.is_on_demand:
        raise service_errors.provisioned(stream.name, ACCOUNT)
    if any(queue.name == name for queue in region.all_queues(context.now)):
        raise KinesisError(
            "ResourceInUseException", f"Queue {name} under account {ACCOUNT} already exists."
        )
    account.check_consumers(context, stream)
    account.check_changing_queues(context)
    arn = f"arn:aws:kinesis:{region.name}:{ACCOUNT}:queue/{_new_id(context)}"
    queue = Queue(name, arn, stream, start, attributes, created_ms=context.now)
    queue.tags.update(request.tags or {})
    queue.create(context.now, context.delays.stream_ms)
    region.queues[queue.id] = queue
    return _described(queue)


def describe_queue(context: Context, request: requests.QueueRequest) -> Json:
    return _described(context.find_queue(request.queue_arn))


def update_queue(context: Context, request: requests.UpdateQueue) -> Json:
    queue = context.find_queue(request.queue_arn)
    attributes = _attributes(request.queue_attributes, queue.attributes)
    if queue.status != "ACTIVE":
        raise service_errors.queue_not_active(queue.name, ACCOUNT, queue.status)
    queue.change(lambda _: queue.set_attributes(attributes), context.now, context.delays.stream_ms)
    return _described(queue, attributes)


def delete_queue(context: Context, request: requests.QueueRequest) -> None:
    queue = context.find_queue(request.queue_arn)
    if queue.status == "DELETING":
        return
    account.check_changing_queues(context, queue)
    queue.delete(context.now, context.delays.stream_ms)


def list_queues(context: Context, request: requests.ListQueues) -> Json:
    after = ""
    if request.next_token is not None:
        after = resume(request.next_token, ListQueuesToken, context.now).after_queue
    queues = [
        queue
        for queue in context.region.all_queues(context.now)
        if queue.name > after and _is_wanted(queue, request.stream_filter)
    ]
    page = queues[: request.max_results or _MOST_LISTED]
    answer: Json = {"QueueSummaries": [_summary(queue) for queue in page]}
    if len(queues) > len(page):
        answer["NextToken"] = seal(ListQueuesToken(context.now, page[-1].name))
    return answer


def _start(context: Context, asked: requests.QueueStartingPosition | None) -> QueueStart:
    """Check a starting position. Raises: KinesisError."""
    if asked is None:
        return QueueStart()
    if (asked.type == "AT_TIMESTAMP") != (asked.timestamp is not None):
        raise KinesisError(
            "ValidationException",
            f"StartingPosition of type {asked.type}: Timestamp is required for AT_TIMESTAMP, and "
            "refused else.",
        )
    if asked.timestamp is None:
        return QueueStart(asked.type)
    time_ms = millis(asked.timestamp)
    if time_ms > context.now:
        raise service_errors.invalid_argument(
            f"The Timestamp of the StartingPosition cannot be in the future. Timestamp: {time_ms} "
            f"ms, now: {context.now} ms"
        )
    return QueueStart(asked.type, time_ms)


def _attributes(asked: requests.QueueAttributes | None, before: Attributes) -> Attributes:
    """Return attributes with those that a request names changed. Raises: KinesisError."""
    if asked is None:
        return before
    visibility_s, max_receives = before
    if asked.visibility_timeout_seconds is not None:
        visibility_s = asked.visibility_timeout_seconds
    letters = asked.dead_letter_configuration
    if letters is not None:
        if letters.target_type == "BUILT_IN" and letters.max_receive_count is None:
            raise KinesisError(
                "ValidationException",
                "DeadLetterConfiguration of TargetType BUILT_IN needs a MaxReceiveCount.",
            )
        max_receives = letters.max_receive_count if letters.target_type == "BUILT_IN" else None
    return Attributes(visibility_s, max_receives)


def _new_id(context: Context) -> str:
    """Return an id that no queue has had, even of the same name: letters and digits."""
    context.region.queues_made += 1
    text = f"{context.region.name} {context.region.queues_made} {context.now}"
    return "q" + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _is_wanted(queue: Queue, filters: list[requests.QueueStreamFilter] | None) -> bool:
    if filters is None:
        return True
    # SDKs send a time in whole seconds.
    created_s = queue.stream.created_ms // 1000
    return any(
        one.stream_arn == queue.stream.arn
        and one.stream_creation_timestamp in {None, created_s, queue.stream.created_ms / 1000}
        for one in filters
    )


def _described(queue: Queue, attributes: Attributes | None = None) -> Json:
    visibility_s, max_receives = attributes or queue.attributes
    letters: Json = {"TargetType": "NONE"}
    if max_receives is not None:
        letters = {"TargetType": "BUILT_IN", "MaxReceiveCount": max_receives}
    start: Json = {"Type": queue.start.type}
    if queue.start.time_ms is not None:
        start["Timestamp"] = queue.start.time_ms / 1000
    return {
        "QueueDescription": {
            **_names(queue),
            "StreamConfigurationList": [{"StreamARN": queue.stream.arn, "StartingPosition": start}],
            "QueueAttributes": {
                "VisibilityTimeoutSeconds": visibility_s,
                "DeadLetterConfiguration": letters,
            },
        }
    }


def _summary(queue: Queue) -> Json:
    stream = queue.stream
    identity = {
        "StreamARN": stream.arn,
        "StreamCreationTimestamp": stream.created_ms / 1000,
    }
    return {**_names(queue), "Streams": [identity]}


def _names(queue: Queue) -> Json:
    return {
        "QueueName": queue.name,
        "QueueARN": queue.arn,
        "QueueStatus": queue.status,
        "QueueCreationTimestamp": queue.created_ms / 1000,
    }
