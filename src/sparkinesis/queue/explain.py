"""Turns errors of calls on queues into errors that say what, where, and what to do."""

from __future__ import annotations

from sparkinesis.errors import (
    AccessDeniedError,
    QueueNotFoundError,
    ServiceError,
    SparkinesisError,
    StreamNotFoundError,
    printable,
)
from sparkinesis.stream.calls.caller import CallError, CallTarget
from sparkinesis.stream.calls.explain import ACCESS_DENIED, explain_place, unexplained, words
from sparkinesis.stream.calls.retry import NOT_IMPLEMENTED, error_code, status_of

_NO_OPERATION = frozenset({"UnknownOperationException", "UnknownOperation", "404"})
"""The codes of servers that do not know the operation. What the endpoints of streams answer to
calls on queues is not known."""
_OTHER_ENDPOINT = (
    "Queues have a VPC endpoint service of their own, other than that of streams; an emulator may "
    "not have queues."
)


def explain_queue(
    error: CallError, operation: str, subject: str, place: CallTarget
) -> SparkinesisError:
    """Return the error to raise for ``error``, of a call on ``subject``."""
    code, where, said = error_code(error), printable(subject), words(error)
    about = explain_place(
        error, operation, where, place.credentials, "region, the endpoint and the sts_endpoint"
    )
    if about is not None:
        return about
    endpoint = f" {_OTHER_ENDPOINT} This endpoint was given." if place.endpoint else ""
    if code in _NO_OPERATION or status_of(error) == NOT_IMPLEMENTED:
        return ServiceError(
            f"The endpoint of {where} does not know {operation}. {_OTHER_ENDPOINT} The service "
            f"said: {said}"
        )
    if code == "ResourceNotFoundException" and operation == "CreateQueue":
        return StreamNotFoundError(
            f"There is no stream for {where}. Check its name or ARN, and that the credentials "
            f"belong to its account. The service said: {said}"
        )
    if code == "ResourceNotFoundException":
        return QueueNotFoundError(
            f"There is no {where}: it was deleted, or belongs to another region or account. A "
            "queue that was made anew has another ARN: give its name, which is looked up at each "
            f"start.{endpoint} The service said: {said}"
        )
    if code in ACCESS_DENIED:
        return AccessDeniedError(
            f"Not allowed to call {operation} on {where}. Grant the credentials in use "
            f"{_needed(operation, code)}. The service said: {said}"
        )
    if code == "LimitExceededException" and operation == "CreateQueue":
        return ServiceError(
            f"Cannot make {where} now: of an account and region, five queues may be CREATING "
            "or DELETING at a time, and a stream may have 20 queues and registered consumers "
            f"together (some 50). Start again once others are ACTIVE. The service said: {said}"
        )
    return unexplained(error, operation, where)


def _needed(operation: str, code: str) -> str:
    """Return the permissions that a caller of this operation needs, and on which resources."""
    if code.startswith("KMS"):
        return "kms:Decrypt on the key of the queue's stream"
    if operation == "CreateQueue":
        return "kinesis:CreateQueue, and kinesis:AssociateStreamsWithQueue on the stream"
    if operation == "ListQueues":
        return "kinesis:ListQueues, or name the queue by its ARN, which is not looked up"
    return (
        f"kinesis:{operation} on the queue, whose ARN ends with queue/ and an id; a queue of "
        "another account needs a resource policy that permits it, too"
    )
