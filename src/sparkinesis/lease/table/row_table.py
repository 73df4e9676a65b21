"""The calls on rows that are not leases, in a lease table or in a table beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from sparkinesis.errors import LeaseTableNotFoundError
from sparkinesis.lease.lease import AttributeValue
from sparkinesis.lease.table.calls import RefusedError, TableCalls
from sparkinesis.stream.address import place_of
from sparkinesis.stream.calls.retry import Backoff

_T = TypeVar("_T")

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
