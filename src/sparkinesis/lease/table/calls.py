"""Calls on a table in DynamoDB: by this process's client, measured, with retries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.lease.table.client import TableAddress, dynamodb_client, measured_client
from sparkinesis.lease.table.table_errors import explain
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.calls.answers.guards import pages, understood
from sparkinesis.stream.calls.retry import Backoff, error_code

_T = TypeVar("_T")

REFUSED = "ConditionalCheckFailedException"


def _brief_retry() -> Backoff:
    # Brief, because renewals and checkpoints are retried by their callers, who know the deadline.
    return Backoff(base=0.05, cap=1.0, give_up_after=3.0)


@dataclass(frozen=True, slots=True)
class TableCalls(TableAddress):
    """The calls on the table at an address. Safe to share between threads.

    All calls raise `LeaseTableNotFoundError` if there is no such table, `AccessDeniedError`,
    `LeaseTableUnavailableError` once retries ran out, and `ServiceError` for anything else.
    """

    retry: Backoff = field(default_factory=_brief_retry, compare=False, repr=False)
    metrics: Metrics = field(default=OFF, compare=False, repr=False)
    """Takes the measurements of the calls, by the clock of ``retry``."""

    def client(self) -> Any:
        """Return the client whose calls are measured."""
        client = dynamodb_client(self.region, self.endpoint, self.credentials)
        return measured_client(client, self.retry.clock, self.metrics)

    def call(
        self, operation: str | None, call: Callable[[Any], _T], retry: Backoff | None = None
    ) -> _T:
        """Make a call with retries; ``operation``: None for several calls that retry themselves.

        Raises `RefusedError` if a condition failed.
        """
        try:
            client = self.client()
            if operation is None:
                return understood(call, client)
            return (retry or self.retry).call(lambda: understood(call, client))
        except (ClientError, BotoCoreError) as error:
            if error_code(error) == REFUSED:
                raise RefusedError(item_of(error)) from None
            name = operation or str(getattr(error, "operation_name", "DescribeTable"))
            # `from None`: the service's words are in the text; a second traceback hides it.
            raise explain(error, name, self) from None

    def pages(
        self, operation: str, retry: Backoff | None = None, **request: Any
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the answers of a Scan or a Query, page by page."""

        def ask(start: Any) -> Mapping[str, Any]:
            more = {"ExclusiveStartKey": start} if start else {}

            def ask_once(client: Any) -> Mapping[str, Any]:
                method = getattr(client, operation.lower())
                answer: Mapping[str, Any] = method(TableName=self.name, **request, **more)
                answer["Items"]
                return answer

            return self.call(operation, ask_once, retry)

        return pages(f"{operation} of the {self}", "LastEvaluatedKey", ask)


class RefusedError(Exception):
    """A condition failed; never leaves the lease layer.

    item: the row that failed it. Not all servers return the row, and a row may be missing.
    """

    def __init__(self, item: Mapping[str, Any] | None) -> None:
        super().__init__()
        self.item = item


def item_of(error: ClientError | BotoCoreError) -> Mapping[str, Any] | None:
    """Return the row in an error of DynamoDB; None: it has none."""
    if not isinstance(error, ClientError):
        return None
    item: Mapping[str, Any] | None = error.response.get("Item")
    return item or None
