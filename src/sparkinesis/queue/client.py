"""The calls on one queue: their requests, the values of their answers, and what errors mean."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from sparkinesis.errors import (
    AccessDeniedError,
    QueueNotFoundError,
    ServiceError,
    SparkinesisError,
    StreamNotFoundError,
    printable,
)
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.queue.address import QueueAddress
from sparkinesis.stream.calls.answers.decoding import decode_fetched
from sparkinesis.stream.calls.caller import Caller, CallError, CallTarget
from sparkinesis.stream.calls.direct.direct_client import method_name
from sparkinesis.stream.calls.explain import ACCESS_DENIED, explain_place, unexplained, words
from sparkinesis.stream.calls.operations import ON_QUEUES
from sparkinesis.stream.calls.retry import NOT_IMPLEMENTED, Backoff, error_code, status_of

MOST_ENTRIES = 10
"""The most records that a call receives, and the most that a call acknowledges."""

UNKNOWN = "Unknown"
"""The code of a receipt handle that an answer does not name: the call may have taken effect."""
_UNNAMED = "the answer does not name this receipt handle"

_T = TypeVar("_T")

_METHODS = {operation: method_name(operation) for operation in ON_QUEUES}


def _missing() -> int:
    raise msgspec.ValidationError("ReceiveCount is missing")


class Received(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """A record of one delivery, which may be an aggregate of many user records."""

    receipt_handle: str
    """The handle of this delivery: each other delivery of the record has another one."""
    record_id: str
    """The same in each delivery, and in each queue of the stream. It is no sequence number."""
    data: bytes
    partition_key: str | None = None
    arrived_at: float | None = msgspec.field(default=None, name="ApproximateArrivalTimestamp")
    """The record's arrival in the stream, in epoch seconds of the service."""
    first_received_at: float | None = msgspec.field(default=None, name="FirstReceiveTimestamp")
    receive_count: int = msgspec.field(default_factory=_missing)
    """The receives since the record was last restored, this one included."""


class RecordCalls(NamedTuple):
    """The operations on some records of a queue."""

    receive: str
    acknowledge: str
    """Has a record be done."""
    set_visibility: str


RECORDS = RecordCalls(
    "ReceiveQueueRecords", "AcknowledgeQueueRecords", "UpdateQueueRecordsVisibility"
)
DEAD_LETTERS = RecordCalls(
    "ReceiveDeadLetterQueueRecords",
    "AcknowledgeDeadLetterQueueRecords",
    "UpdateDeadLetterQueueRecordsVisibility",
)
RESTORED = DEAD_LETTERS._replace(acknowledge="RestoreDeadLetterQueueRecords")
"""Dead letters that are done once they are records again, which are received with a count from 0.
"""


class Answered(NamedTuple):
    """What a call said of one receipt handle."""

    receipt_handle: str
    code: str | None
    """None: successful. `UNKNOWN`: the answer does not name the handle."""
    message: str = ""


class DeadLetterConfiguration(msgspec.Struct, frozen=True, rename="pascal"):
    """When a record becomes a dead letter. The defaults of these classes are the service's."""

    target_type: str = "BUILT_IN"
    max_receive_count: int | None = 6


class QueueAttributes(msgspec.Struct, frozen=True, rename="pascal"):
    """What can be changed of a queue."""

    visibility_timeout_seconds: int = 30
    dead_letter_configuration: DeadLetterConfiguration = DeadLetterConfiguration()


class QueueStream(msgspec.Struct, frozen=True, rename="pascal"):
    """The stream of a queue, and the start in it as DescribeQueue returns both."""

    stream_arn: str = msgspec.field(name="StreamARN")
    starting_position: dict[str, str | float] = {}
    """``Type`` and, once the queue is ACTIVE, ``Timestamp`` in epoch seconds."""


class QueueSummary(msgspec.Struct, frozen=True, rename="pascal"):
    """What ListQueues says of a queue."""

    name: str = msgspec.field(name="QueueName")
    arn: str = msgspec.field(name="QueueARN")
    status: str = msgspec.field(name="QueueStatus")
    """``CREATING``, ``ACTIVE``, ``UPDATING``, which receives as well, or ``DELETING``."""
    created_at: float = msgspec.field(name="QueueCreationTimestamp")
    """Epoch seconds."""
    streams: list[QueueStream]
    """The service permits one."""


class QueueDescription(QueueSummary, frozen=True, rename="pascal"):
    """What DescribeQueue says of a queue."""

    streams: list[QueueStream] = msgspec.field(name="StreamConfigurationList")
    attributes: QueueAttributes = msgspec.field(name="QueueAttributes", default=QueueAttributes())

    @property
    def stream_arn(self) -> str:
        return self.streams[0].stream_arn

    @property
    def visibility_timeout(self) -> int:
        """Seconds for which a received record is not delivered again."""
        return self.attributes.visibility_timeout_seconds

    @property
    def max_receive_count(self) -> int | None:
        """The receives after which a record is a dead letter; None: it never becomes one."""
        dead_letters = self.attributes.dead_letter_configuration
        return None if dead_letters.target_type == "NONE" else dead_letters.max_receive_count


class QueueClient(Caller):
    """The calls on one queue. Threads may share a client.

    The calls on records are made once each and raise botocore's errors, of which `explained` makes
    sparkinesis's. The others back off, and raise `QueueNotFoundError`, `AccessDeniedError`, and
    `ServiceError` for all other failures.

    calls: on which records.
    """

    def __init__(
        self,
        address: QueueAddress,
        retry: Backoff | None = None,
        metrics: Metrics = OFF,
        calls: RecordCalls = RECORDS,
    ) -> None:
        super().__init__(address, address.label, retry or Backoff(), metrics)
        self.address = address
        self.calls = calls

    def explained(self, error: CallError, operation: str, *about: Any) -> SparkinesisError:
        del about  # a queue has neither shards nor positions
        return explain_queue(error, operation, f"{self.address}", self.address)

    def receive(
        self, limit: int, wait_seconds: int, visibility_seconds: int | None = None
    ) -> list[Received]:
        """Receive up to ``limit`` records (1 to 10), as soon as there is one.

        Each is hidden from other receives from now on. A receive is never repeated here: if its
        answer is lost, records are hidden for which nobody has a handle.

        wait_seconds: 1 to 20; the most seconds to wait for a record. visibility_seconds: 0 to
        43,200; None: the queue's.
        """
        request = {"Limit": limit, "WaitTimeSeconds": wait_seconds}
        if visibility_seconds is not None:
            request["VisibilityTimeoutSeconds"] = visibility_seconds
        return self._once(
            self.calls.receive, request, lambda body: decode_fetched(_RECEIVED, body).records
        )

    def acknowledge(self, handles: Sequence[str]) -> list[Answered]:
        """Acknowledge 1 to 10 records, which then are done."""
        entries = [{"ReceiptHandle": handle} for handle in handles]
        return self._answers(self.calls.acknowledge, entries)

    def set_visibility(self, entries: Sequence[tuple[str, int]]) -> list[Answered]:
        """Hide 1 to 10 records for these seconds (0 to 43,200) from the call on; 0 releases."""
        hidden = [
            {"ReceiptHandle": handle, "VisibilityTimeoutSeconds": seconds}
            for handle, seconds in entries
        ]
        return self._answers(self.calls.set_visibility, hidden)

    def describe(self) -> QueueDescription:
        """Call DescribeQueue."""
        return self._described("DescribeQueue", {})

    def describe_created(self) -> QueueDescription:
        """Return the description of the queue once it is no longer CREATING.

        Waits for `sparkinesis.stream.calls.caller.CREATION`. Raises as `describe`,
        `QueueNotFoundError` if the queue is being deleted, and `ServiceError` if its creation does
        not end in time.
        """
        return self.when_created(self.describe, "queue", QueueNotFoundError)

    def update(
        self,
        visibility_timeout: int | None = None,
        max_receive_count: int | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> QueueDescription:
        """Change attributes of the queue, for later receives (UpdateQueue).

        What is not given stays. max_receive_count: None: no record becomes a dead letter.
        """
        attributes = queue_attributes(visibility_timeout, max_receive_count)
        return self._described("UpdateQueue", {"QueueAttributes": attributes})

    def delete(self) -> None:
        """Delete the queue, with its dead letters. The stream's records stay.

        If the answer of an attempt is lost, the next one may raise `QueueNotFoundError`.
        """
        self.call("DeleteQueue", lambda client: client.delete_queue(QueueARN=self.address.arn))

    def _described(self, operation: str, request: Mapping[str, Any]) -> QueueDescription:
        return self.call(
            operation,
            lambda client: decode_description(
                _sent(client, operation, {"QueueARN": self.address.arn, **request})
            ),
        )

    def _once(
        self, operation: str, request: Mapping[str, Any], decode: Callable[[bytes | bytearray], _T]
    ) -> _T:
        whole = {"QueueARN": self.address.arn, **request}
        return self.call_once(operation, lambda client: decode(_sent(client, operation, whole)))

    def _answers(self, operation: str, entries: Sequence[Mapping[str, Any]]) -> list[Answered]:
        handles = [entry["ReceiptHandle"] for entry in entries]
        if not 1 <= len(handles) <= MOST_ENTRIES or len({*handles}) < len(handles):
            raise ValueError(
                f"{operation} takes 1 to {MOST_ENTRIES} receipt handles, each once: what it says "
                f"of two equal ones cannot be told apart. {len(handles)} were given."
            )
        return self._once(operation, {"Entries": entries}, functools.partial(answered, handles))


def queue_attributes(
    visibility_timeout: int | None, max_receive_count: int | msgspec.UnsetType | None
) -> dict[str, Any]:
    """Return the QueueAttributes of a request: those that are given."""
    attributes: dict[str, Any] = {}
    if visibility_timeout is not None:
        attributes["VisibilityTimeoutSeconds"] = visibility_timeout
    if max_receive_count is None:
        attributes["DeadLetterConfiguration"] = {"TargetType": "NONE"}
    elif max_receive_count is not msgspec.UNSET:
        attributes["DeadLetterConfiguration"] = {
            "TargetType": "BUILT_IN",
            "MaxReceiveCount": max_receive_count,
        }
    return attributes


def _sent(client: Any, operation: str, request: Mapping[str, Any]) -> bytes | bytearray:
    """Make a call, and return the body of the answer."""
    body: bytes | bytearray = getattr(client, _METHODS[operation])(**request)["Body"]
    return body


class _Delivery(msgspec.Struct, frozen=True):
    records: list[Received] = msgspec.field(name="QueueRecords")


class _Successful(msgspec.Struct, frozen=True, rename="pascal"):
    receipt_handle: str


class _Failed(msgspec.Struct, frozen=True, rename="pascal"):
    receipt_handle: str
    error_code: str
    error_message: str | None = None


class _Answers(msgspec.Struct, frozen=True, rename="pascal"):
    successful: list[_Successful] = []
    failed: list[_Failed] = []


class _Described(msgspec.Struct, frozen=True):
    description: QueueDescription = msgspec.field(name="QueueDescription")


_RECEIVED = msgspec.json.Decoder(_Delivery)
_ANSWERS = msgspec.json.Decoder(_Answers)
_DESCRIBED = msgspec.json.Decoder(_Described)


def answered(handles: Sequence[str], body: bytes | bytearray) -> list[Answered]:
    """Return what an answer says of each handle, in their order. A failure wins."""
    answers = _ANSWERS.decode(body)
    said = {one.receipt_handle: Answered(one.receipt_handle, None) for one in answers.successful}
    for one in answers.failed:
        message = one.error_message or ""
        said[one.receipt_handle] = Answered(one.receipt_handle, one.error_code, message)
    return [said.get(handle) or Answered(handle, UNKNOWN, _UNNAMED) for handle in handles]


def decode_description(body: bytes | bytearray) -> QueueDescription:
    """Return the description that an answer holds. Raises msgspec's errors, and ValueError."""
    found = _DESCRIBED.decode(body).description
    if not found.streams:
        raise ValueError("the description of the queue names no stream")
    return found


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
