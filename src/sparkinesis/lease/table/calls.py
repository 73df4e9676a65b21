"""Calls on a table in DynamoDB: by this process's client, measured, with retries and explained.

`RowTable` has the calls on rows that are not leases, in a lease table or in a table beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import (
    AccessDeniedError,
    LeaseLostError,
    LeaseTableError,
    LeaseTableNotFoundError,
    LeaseTableUnavailableError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.lease.lease import AttributeValue
from sparkinesis.lease.table.client import TableAddress, dynamodb_client, measured_client
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.address import place_of
from sparkinesis.stream.calls.answers.guards import pages, understood
from sparkinesis.stream.calls.explain import ACCESS_DENIED, explain_credentials, words
from sparkinesis.stream.calls.retry import Backoff, error_code, is_retryable

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


_RESERVED = {"key": "#key"}
"""Attributes with the names of words in DynamoDB's expressions, and what stands for them."""


@dataclass(frozen=True, slots=True)
class RowTable(TableCalls):
    """The calls on single rows of any table with one text as its key.

    ``expected`` of a write: the values that the row must have, None: must be absent. The row itself
    must exist then. A write that is refused returns False, and nothing is written. A write whose
    answer was lost is sent again, and is then refused although it was made: the caller reads the
    row.
    """

    key: str = "leaseKey"
    """The attribute that is the key."""
    is_beside: bool = False
    """True for a table beside the lease table."""

    def __str__(self) -> str:
        if not self.is_beside:
            return TableCalls.__str__(self)
        place = place_of(self.region, self.endpoint, self.credentials.profile)
        return f"table {self.name!r} in {place}"

    def call(
        self, operation: str | None, call: Callable[[Any], _T], retry: Backoff | None = None
    ) -> _T:
        try:
            return TableCalls.call(self, operation, call, retry)
        except LeaseTableNotFoundError:
            if not self.is_beside:
                raise
            raise LeaseTableNotFoundError(
                f"There is no {self}, in which workers of KCL 3.0 to 3.4 keep what they tell each "
                "other besides their leases. They create it when they start."
            ) from None

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Return a row as DynamoDB's API does, by a consistent read; None if there is none."""
        request = {**self._row(key), "ConsistentRead": True}
        answer = self.call("GetItem", lambda client: client.get_item(**request))
        item: Mapping[str, Any] | None = answer.get("Item")
        return item or None

    def rows(self) -> list[Mapping[str, Any]]:
        """Return all rows as DynamoDB's API does, by a Scan; a row may be as of a moment ago."""
        return [item for answer in self.pages("Scan") for item in answer["Items"]]

    def put(
        self,
        key: str,
        attributes: Mapping[str, AttributeValue],
        expected: Mapping[str, AttributeValue | None] | None,
    ) -> bool:
        """Write a whole row; ``expected``: None if there must be no row of that key."""
        item = {self.key: {"S": key}, **attributes}
        request = {"TableName": self.name, "Item": item, **self._condition(expected)}
        return self._write("PutItem", request)

    def update(
        self,
        key: str,
        changes: Mapping[str, AttributeValue],
        expected: Mapping[str, AttributeValue | None] | None = None,
    ) -> bool:
        """Set attributes of a row; ``expected``: None to make the row if there is none."""
        request: dict[str, Any] = self._row(key)
        if expected is not None:
            request.update(self._condition(expected))
        values = {f":{name}": value for name, value in changes.items()}
        request["UpdateExpression"] = "SET " + ", ".join(f"{name} = :{name}" for name in changes)
        request["ExpressionAttributeValues"] = {
            **request.get("ExpressionAttributeValues", {}),
            **values,
        }
        return self._write("UpdateItem", request)

    def delete(self, key: str, expected: Mapping[str, AttributeValue | None]) -> bool:
        """Delete a row."""
        return self._write("DeleteItem", {**self._row(key), **self._condition(expected)})

    def _row(self, key: str) -> dict[str, Any]:
        return {"TableName": self.name, "Key": {self.key: {"S": key}}}

    def _condition(self, expected: Mapping[str, AttributeValue | None] | None) -> dict[str, Any]:
        """Return the arguments that make a write conditional."""
        name = _RESERVED.get(self.key, self.key)
        request: dict[str, Any] = {}
        if name != self.key:
            request["ExpressionAttributeNames"] = {name: self.key}
        if expected is None:
            return {**request, "ConditionExpression": f"attribute_not_exists({name})"}
        conditions, values = [f"attribute_exists({name})"], {}
        for other, value in expected.items():
            if value is None:
                conditions.append(f"attribute_not_exists({other})")
            else:
                conditions.append(f"{other} = :known_{other}")
                values[f":known_{other}"] = value
        if values:
            request["ExpressionAttributeValues"] = values
        return {**request, "ConditionExpression": " AND ".join(conditions)}

    def _write(self, operation: str, request: Mapping[str, Any]) -> bool:
        method = {"PutItem": "put_item", "UpdateItem": "update_item", "DeleteItem": "delete_item"}
        try:
            self.call(operation, lambda client: getattr(client, method[operation])(**request))
        except RefusedError:
            return False
        return True


_NEEDED = (
    "A worker needs dynamodb:DescribeTable, CreateTable (and TagResource for tags) to set the "
    "table up, UpdateContinuousBackups for point-in-time recovery, and Scan, GetItem, PutItem, "
    "UpdateItem, DeleteItem and PartiQLUpdate on it"
)


def explain(
    error: ClientError | BotoCoreError, operation: str, table: TableAddress
) -> SparkinesisError:
    """Return the error to raise for ``error``, as one paragraph without a second traceback."""
    code = error_code(error)
    said = words(error)
    call = f"{operation} on the {table}"
    about_credentials = explain_credentials(error, said, call, table.credentials)
    if about_credentials is not None:
        return about_credentials
    if code in {"ResourceNotFoundException", "ResourceNotFound"}:
        return LeaseTableNotFoundError(
            f"There is no {table}. {_if_missing(table)} The service said: {said}"
        )
    if code in ACCESS_DENIED:
        return AccessDeniedError(
            f"Not allowed to call {call}. {_permissions(operation, table)} The service said: {said}"
        )
    if code == "NoRegionError":
        return ServiceError(
            f"No region is known for the {table}. Set the region, for instance to eu-west-1, or "
            "the environment variable AWS_REGION."
        )
    if is_retryable(error):
        if code == "EndpointConnectionError":
            return LeaseTableUnavailableError(
                f"Nothing answers for the {table}. {_if_unreachable(table)} botocore said: {said}"
            )
        return LeaseTableUnavailableError(
            f"{call} failed. Every retry was used up. The service said: {said}"
        )
    return ServiceError(f"{call} failed. A retry would not help. The service said: {said}")


def lease_lost(doing: str, shard: str, table: TableAddress, why: str) -> LeaseLostError:
    """Return the error of a write to a lease that the worker no longer holds."""
    return LeaseLostError(
        f"Cannot {doing} for shard {shard} in the {table}: this worker no longer holds the lease; "
        f"{why}. Nothing was written. Stop processing the shard: the next owner of the lease "
        "resumes from its last checkpoint."
    )


def write_refused(doing: str, shard: str, table: TableAddress) -> LeaseTableError:
    """Return the error of a write that the server refuses again and again."""
    return LeaseTableError(
        f"Cannot {doing} for shard {shard} in the {table}: the server refuses the write, although "
        "the row meets the write's condition. Nothing was written. Check which server answers "
        "there, and that its conditional writes work."
    )


def _if_missing(table: TableAddress) -> str:
    if table.is_ours:
        return (
            "Either it was deleted, or the application has not run yet, or it is looked for in "
            "the wrong place. If it was deleted, restore it from a backup, or from the checkpoints "
            'that the workers have logged: see the runbook "The lease table was deleted". Until '
            "then start and stop no worker: those that run resume once the table is back, and one "
            "that starts makes an empty table. Otherwise check the name, which is the "
            "application's unless that sets table_name, the region, the endpoint and the account "
            "of the credentials."
        )
    return (
        "A KCL application keeps its checkpoints in a DynamoDB table of its own name: check that "
        "name in the option initialPosition, that the application runs in the region of the "
        "option region, and that your credentials are of its account."
    )


def _permissions(operation: str, table: TableAddress) -> str:
    if table.is_ours:
        return f"Give the credentials in use dynamodb:{operation}. {_NEEDED}."
    return (
        f"Give the credentials in use dynamodb:{operation} on it; nothing else is called on it, "
        "and nothing is written."
    )


def _if_unreachable(table: TableAddress) -> str:
    if table.is_ours:
        return "Check the region and the endpoint, and that this machine reaches it."
    return (
        "Check the options region and dynamodbEndpoint for a typing error, and that the driver "
        "reaches the endpoint."
    )
