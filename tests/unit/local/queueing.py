"""Queues of `LocalKinesis` for tests: fill in the queue's ARN and shorten answers."""

from __future__ import annotations

import base64
from typing import Any

from sparkinesis.local import LocalKinesis
from tests.unit.local.calls import ARN, ON_DEMAND, Stream

Record = dict[str, Any]
COMMITTED: dict[str, Any] = {"MinimumThroughputBillingCommitment": {"Status": "ENABLED"}}
"""What UpdateAccountSettings takes, before a stream may be warmed."""


def on_demand(kinesis: LocalKinesis, name: str = "s") -> Stream:
    """Create a stream that may have queues."""
    return Stream(kinesis, name=name, **ON_DEMAND)


def create(
    kinesis: LocalKinesis, name: str = "q", stream: str = ARN, **request: Any
) -> dict[str, Any]:
    """Call CreateQueue and return the description. start: the StartingPosition."""
    start = request.pop("start", None)
    configuration = {"StreamARN": stream} | ({"StartingPosition": start} if start else {})
    answer = kinesis.call(
        "CreateQueue", QueueName=name, StreamConfigurationList=[configuration], **request
    )
    return dict(answer["QueueDescription"])


def letters(most: int | None) -> dict[str, Any]:
    """Return the attributes of a queue with this MaxReceiveCount; None for no dead letters."""
    if most is None:
        return {"DeadLetterConfiguration": {"TargetType": "NONE"}}
    return {"DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": most}}


class Queue:
    """A queue. Its methods return records as they are in answers, or their data."""

    def __init__(self, kinesis: LocalKinesis, name: str = "q", **request: Any) -> None:
        self.kinesis = kinesis
        self.arn = str(create(kinesis, name, **request)["QueueARN"])

    def __call__(self, operation: str, **request: Any) -> dict[str, Any]:
        return self.kinesis.call(operation, QueueARN=self.arn, **request)

    def described(self) -> dict[str, Any]:
        return dict(self("DescribeQueue")["QueueDescription"])

    def receive(self, limit: int = 10, *, dead: bool = False, **request: Any) -> list[Record]:
        operation = "ReceiveDeadLetterQueueRecords" if dead else "ReceiveQueueRecords"
        return list(self(operation, Limit=limit, **request)["QueueRecords"])

    def one(self, **request: Any) -> Record:
        (record,) = self.receive(**request)
        return record

    def data(self, limit: int = 10, **request: Any) -> list[str]:
        """Receive, and return the data in order."""
        return sorted(map(text, self.receive(limit, **request)))

    def acknowledge(self, *records: Record, dead: bool = False) -> list[str | None]:
        operation = "AcknowledgeDeadLetterQueueRecords" if dead else "AcknowledgeQueueRecords"
        return self._codes(operation, [{"ReceiptHandle": r["ReceiptHandle"]} for r in records])

    def hold(self, seconds: int, *records: Record, dead: bool = False) -> list[str | None]:
        operation = "UpdateQueueRecordsVisibility"
        if dead:
            operation = "UpdateDeadLetterQueueRecordsVisibility"
        timeout = {"VisibilityTimeoutSeconds": seconds}
        entries = [{"ReceiptHandle": r["ReceiptHandle"], **timeout} for r in records]
        return self._codes(operation, entries)

    def restore(self, *records: Record) -> list[str | None]:
        entries = [{"ReceiptHandle": r["ReceiptHandle"]} for r in records]
        return self._codes("RestoreDeadLetterQueueRecords", entries)

    def _codes(self, operation: str, entries: list[dict[str, Any]]) -> list[str | None]:
        """Return the error code of each entry, None for success: in the order of the entries."""
        answer = self(operation, Entries=entries)
        assert all(entry["ErrorMessage"] for entry in answer["Failed"])
        # A handle that stands twice in one call succeeds first and then fails.
        codes: dict[str, list[str | None]] = {}
        for entry in answer["Successful"] + answer["Failed"]:
            codes.setdefault(entry["ReceiptHandle"], []).append(entry.get("ErrorCode"))
        return [codes[entry["ReceiptHandle"]].pop(0) for entry in entries]


def text(record: Record) -> str:
    return base64.b64decode(record["Data"]).decode()
