"""An atomic write to one row of a lease table, as DynamoDB's calls take it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sparkinesis.lease.lease import AttributeValue, Lease


class Update(msgspec.Struct, frozen=True):
    """An atomic write to one existing row.

    Attributes that the update does not name keep their values.
    """

    after: Lease
    """The row after the write, provided that it was up to date before."""
    expected: Mapping[str, AttributeValue | None]
    """The values that the row must have; None: must be absent. The row itself must exist."""
    set: Mapping[str, AttributeValue]
    add: Sequence[str] = ()
    """Numbers to raise by one."""
    remove: Sequence[str] = ()

    @property
    def key(self) -> str:
        return self.after.key

    def request(self, table: str) -> dict[str, Any]:
        """Return UpdateItem's arguments; the answer holds the new row, a refusal the old one."""
        values = {f":{name}": value for name, value in self.set.items()}
        clauses = []
        if self.set:
            clauses.append("SET " + ", ".join(f"{name} = :{name}" for name in self.set))
        if self.add:
            clauses.append("ADD " + ", ".join(f"{name} :one" for name in self.add))
            values[":one"] = {"N": "1"}
        if self.remove:
            clauses.append("REMOVE " + ", ".join(self.remove))
        conditions = []
        for name, value in self.expected.items():
            if value is None:
                conditions.append(f"attribute_not_exists({name})")
            else:
                conditions.append(f"{name} = :known_{name}")
                values[f":known_{name}"] = value
        if not any(self.expected.values()):
            conditions.insert(0, "attribute_exists(leaseKey)")
        request = {
            "TableName": table,
            "Key": {"leaseKey": {"S": self.key}},
            "UpdateExpression": " ".join(clauses),
            "ConditionExpression": " AND ".join(conditions),
            "ReturnValues": "ALL_NEW",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        return {**request, "ExpressionAttributeValues": values} if values else request

    def statement(self, table: str) -> dict[str, Any]:
        """Return the same write as a statement of BatchExecuteStatement (PartiQL).

        A number to raise is set to its next value, which the row's counter makes certain. So an
        update that raises a number, and does not expect the counter, has no statement.
        """
        assert not self.add or "leaseCounter" in self.expected
        switches = {"N": str(self.after.owner_switches)}
        changes = {**self.set, **dict.fromkeys(self.add, switches)}
        # PartiQL's UPDATE creates no row: for a missing row, its condition fails.
        words = [f'UPDATE "{table}"', *(f"SET {name}=?" for name in changes)]
        words += [f"REMOVE {name}" for name in self.remove]
        parameters = [*changes.values(), {"S": self.key}]
        conditions = ["leaseKey=?"]
        for name, value in self.expected.items():
            if value is None:
                conditions.append(f"{name} IS MISSING")
            else:
                conditions.append(f"{name}=?")
                parameters.append(value)
        return {
            "Statement": f"{' '.join(words)} WHERE {' AND '.join(conditions)}",
            "Parameters": parameters,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


def has_landed(update: Update, row: Lease) -> bool:
    """Return True if ``row`` shows that ``update``, whose answer was lost, took effect.

    A handoff may have been requested or withdrawn since: neither changes the counter.
    """
    return _fenced(update.after) == _fenced(row)


def _fenced(row: Lease) -> tuple[object, ...]:
    return (row.counter, row.actual_owner, row.checkpoint, row.pending, row.fencing_token)
