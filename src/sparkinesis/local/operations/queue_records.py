"""The operations on the records of a queue, and on its dead letters.

A receive is a `Poll`: LocalKinesis calls `received` until there are records, or the time is over.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkinesis.local import service_errors
from sparkinesis.local.encoding import requests
from sparkinesis.local.model.queue import DeliveredRecord, Poll, Queue, QueueEntry
from sparkinesis.local.model.tokens import ReceiptHandle, unseal
from sparkinesis.local.operations.context import ACCOUNT, Context, Json, check_serving
from sparkinesis.local.service_errors import KinesisError


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
