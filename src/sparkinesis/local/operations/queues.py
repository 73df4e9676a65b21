"""The operations on queues, on their records, and on their dead letters.

A receive is a `Poll`: LocalKinesis calls `received` until there are records, or the time is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests, validation
from sparkinesis.local.model.queue import (
    Attributes,
    DeliveredRecord,
    Poll,
    Queue,
    QueueEntry,
    QueueStart,
)
from sparkinesis.local.model.tokens import ListQueuesToken, ReceiptHandle, seal, unseal
from sparkinesis.local.operations import account
from sparkinesis.local.operations.context import (
    ACCOUNT,
    Context,
    Json,
    check_serving,
    millis,
    resume,
)
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


def receive_queue_records(context: Context, request: requests.ReceiveRecords) -> Poll:
    return _poll(context, request, dead=False)


def receive_dead_letter_queue_records(context: Context, request: requests.ReceiveRecords) -> Poll:
    return _poll(context, request, dead=True)


def acknowledge_queue_records(context: Context, request: requests.Receipts) -> Json:
    return _each(context, request, _acknowledge, dead=False)


def acknowledge_dead_letter_queue_records(context: Context, request: requests.Receipts) -> Json:
    return _each(context, request, _acknowledge, dead=True)


def update_queue_records_visibility(context: Context, request: requests.Receipts) -> Json:
    return _each(context, request, _set_visibility, dead=False)


def update_dead_letter_queue_records_visibility(
    context: Context, request: requests.Receipts
) -> Json:
    return _each(context, request, _set_visibility, dead=True)


def restore_dead_letter_queue_records(context: Context, request: requests.Receipts) -> Json:
    return _each(context, request, _restore, dead=True)


def _poll(context: Context, request: requests.ReceiveRecords, *, dead: bool) -> Poll:
    visibility_s = request.visibility_timeout_seconds
    return Poll(
        context.find_serving_queue(request.queue_arn),
        request.limit,
        None if visibility_s is None else visibility_s * 1000,
        context.now + request.wait_time_seconds * 1000,
        dead=dead,
    )


def received(context: Context, poll: Poll, now: int, *, may_wait: bool) -> Json | None:
    """Return the answer to a receive; None if it waits for records. Raises: KinesisError."""
    queue, room = poll.queue, poll.limit
    queue.settle(now)
    check_serving(queue)
    if context.limits is not None:
        most = context.limits.queue_in_flight
        room = most - queue.in_flight(now)
        if room <= 0:
            raise service_errors.throttled(
                f"Queue {queue.name} under account {ACCOUNT} has {most} records in flight, which "
                "is the limit."
            )
    limit = min(poll.limit, room)
    deliveries = queue.receive(now, limit, poll.visibility_ms, dead=poll.dead)
    if not deliveries and may_wait and now < poll.until_ms:
        return None
    poll.is_answered = True
    if context.fault.turns_order:
        deliveries.reverse()
    context.records = len(deliveries)
    context.bytes = sum(delivery.record.size for delivery in deliveries)
    return {"QueueRecords": [_record_json(delivery) for delivery in deliveries]}


def _record_json(delivery: DeliveredRecord) -> Json:
    record = delivery.record
    answer: Json = {
        "ReceiptHandle": delivery.handle,
        "RecordId": delivery.record_id,
        "Data": record.data,
        "ApproximateArrivalTimestamp": record.approximate_arrival_timestamp,
        "FirstReceiveTimestamp": delivery.first_received_ms / 1000,
        "ReceiveCount": delivery.receive_count,
    }
    if record.partition_key is not None:
        answer["PartitionKey"] = record.partition_key
    return answer


Change = Callable[[Context, Queue, QueueEntry, requests.Receipt], None]


def _acknowledge(context: Context, queue: Queue, held: QueueEntry, _: requests.Receipt) -> None:
    if context.fault.forgets_acknowledgement:
        queue.release(held)
    else:
        queue.acknowledge(held)


def _set_visibility(
    context: Context, queue: Queue, held: QueueEntry, asked: requests.Receipt
) -> None:
    queue.hold(held, context.now + asked.visibility_timeout_seconds * 1000)


def _restore(_context: Context, queue: Queue, held: QueueEntry, _: requests.Receipt) -> None:
    queue.restore(held)


def _each(context: Context, request: requests.Receipts, change: Change, *, dead: bool) -> Json:
    """Change each record (or dead letter) that a handle holds; the others are in `Failed`."""
    queue, fault = context.find_serving_queue(request.queue_arn), context.fault
    successful: list[Json] = []
    failed: list[Json] = []
    for i, entry in enumerate(request.entries):
        handle = entry.receipt_handle
        failure: KinesisError | None = None
        if i in fault.entries and fault.code is not None:
            failure = KinesisError(fault.code, fault.message)
        if failure is None or fault.takes_effect:
            held = queue.held(handle, context.now, dead=dead)
            if held is not None:
                change(context, queue, held, entry)
            else:
                failure = failure or _holds_nothing(queue, handle)
        if failure is None:
            successful.append({"ReceiptHandle": handle})
        else:
            why = {"ErrorCode": failure.code, "ErrorMessage": failure.message}
            failed.append({"ReceiptHandle": handle, **why})
    return {"Successful": successful, "Failed": failed}


def _holds_nothing(queue: Queue, handle: str) -> KinesisError:
    issued = unseal(handle, ReceiptHandle)
    if issued is None or issued.queue_id != queue.id:
        return service_errors.invalid_argument(
            f"The receipt handle was not issued by queue {queue.name}."
        )
    return KinesisError(
        "ResourceNotFoundException",
        "The receipt handle holds no such record: its visibility timeout has expired, or the "
        "record is acknowledged, restored, or past its retention.",
    )
