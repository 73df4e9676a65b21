"""UPDATE statements of BatchExecuteStatement, which moto executes wrongly.

moto's PartiQL does not report a failed condition, and copies every table for each statement. This
module turns simple UPDATEs into calls of moto's UpdateItem:

    UPDATE "table" SET a=? SET b=? REMOVE c WHERE key=? AND a=? AND d IS MISSING

moto executes all other statements. Codes and shapes of errors are those of the service's
``BatchStatementError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_NAME = r'"?([A-Za-z_][\w.-]*)"?'
_TABLE = r'"?([\w.-]+)"?'
_STATEMENT = re.compile(
    rf"\s*UPDATE\s+{_TABLE}\s+(.+?)\s+WHERE\s+(.+?)\s*;?\s*", re.IGNORECASE | re.DOTALL
)
_CLAUSE = re.compile(rf"(?:,|\bSET\b|\bREMOVE\b)\s*{_NAME}\s*(=\s*\?)?\s*", re.IGNORECASE)
_CONDITION = re.compile(
    rf"{_NAME}\s*(?:(=\s*\?)|(IS\s+NOT\s+MISSING)|(IS\s+MISSING))", re.IGNORECASE
)

MAX_STATEMENTS = 25


@dataclass(frozen=True)
class UpdateStatement:
    """An UPDATE statement, as arguments of UpdateItem."""

    table: str
    key: dict[str, Any]
    set: dict[str, Any]
    remove: tuple[str, ...]
    expected: dict[str, Any]
    """Conditions in the service's older form, from before expressions: moto need not parse it."""

    @property
    def change(self) -> dict[str, Any]:
        """The changes, as an expression only if moto's older form would lose a type."""
        if all(next(iter(value)) in {"S", "N"} for value in self.set.values()):
            puts = {name: {"Action": "PUT", "Value": value} for name, value in self.set.items()}
            removals = {name: {"Action": "DELETE"} for name in self.remove}
            return {
                "update_expression": "",
                "expression_attribute_names": {},
                "expression_attribute_values": {},
                "attribute_updates": {**puts, **removals},
            }
        places = {name: f"#n{i}" for i, name in enumerate((*self.set, *self.remove))}
        values = {f":v{i}": value for i, value in enumerate(self.set.values())}
        changes = [f"{places[name]} = :v{i}" for i, name in enumerate(self.set)]
        expression = "SET " + ", ".join(changes)
        if self.remove:
            expression += " REMOVE " + ", ".join(places[name] for name in self.remove)
        return {
            "update_expression": expression,
            "expression_attribute_names": {place: name for name, place in places.items()},
            "expression_attribute_values": values,
        }


def translate(
    statement: str, parameters: Sequence[Any], key_of: Callable[[str], str | None]
) -> UpdateStatement | None:
    """Parse a simple UPDATE; return None for other statements and for tables with a sort key.

    key_of: returns the name of a table's only key attribute; None if it has none.
    """
    found = _STATEMENT.fullmatch(statement)
    key_name = key_of(found[1]) if found else None
    if found is None or key_name is None:
        return None
    clauses = _consume(_CLAUSE, found[2])
    conditions = [_CONDITION.fullmatch(each) for each in re.split(r"(?i)\s+AND\s+", found[3])]
    if clauses is None or statement.count("?") != len(parameters):
        return None
    left = list(parameters)
    changes = {clause[1]: left.pop(0) for clause in clauses if clause[2]}
    removed = tuple(clause[1] for clause in clauses if not clause[2])
    expected: dict[str, Any] = {}
    for condition in conditions:
        if condition is None or condition[1] in expected:
            return None
        name, equals, present, _ = condition.groups()
        if equals:
            expected[name] = {"ComparisonOperator": "EQ", "AttributeValueList": [left.pop(0)]}
        else:
            expected[name] = {"ComparisonOperator": "NOT_NULL" if present else "NULL"}
    key = expected.get(key_name, {}).get("AttributeValueList")
    if key is None:
        return None
    return UpdateStatement(found[1], {key_name: key[0]}, changes, removed, expected)


def _consume(pattern: re.Pattern[str], text: str) -> list[re.Match[str]] | None:
    """Return the matches that make up ``text``; None if they do not cover all of it."""
    found = list(pattern.finditer(text))
    return found if "".join(match[0] for match in found) == text else None


def install() -> None:
    """Patch BatchExecuteStatement of moto in this process."""
    from moto.dynamodb.exceptions import (  # noqa: PLC0415
        ConditionalCheckFailed,
        DynamodbException,
        MockValidationException,
    )
    from moto.dynamodb.models import DynamoDBBackend  # noqa: PLC0415

    by_moto = DynamoDBBackend.batch_execute_statement

    def key_of(backend: Any, table: str) -> str | None:
        found = backend.tables.get(table)
        if found is None or found.range_key_attr is not None:
            return None
        return str(found.hash_key_attr)

    def one(backend: Any, statement: dict[str, Any]) -> dict[str, Any]:
        update = translate(
            statement["Statement"],
            statement.get("Parameters", []),
            lambda table: key_of(backend, table),
        )
        if update is None:
            answers: list[dict[str, Any]] = by_moto(backend, [statement])
            return answers[0]
        if not {*update.set, *update.remove}.isdisjoint(update.key):
            message = "Cannot update an attribute that is part of the key"
            return {"Error": {"Code": "ValidationError", "Message": message}}
        try:
            backend.update_item(
                update.table,
                update.key,
                expected=update.expected,
                **update.change,
            )
        except ConditionalCheckFailed:
            error: dict[str, Any] = {
                "Code": "ConditionalCheckFailed",
                "Message": "The conditional request failed",
            }
            if statement.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
                item = backend.get_item(update.table, update.key)
                if item is not None:
                    error["Item"] = item.to_json()["Attributes"]
            return {"Error": error, "TableName": update.table}
        except DynamodbException as refused:
            return {"Error": {"Code": "ValidationError", "Message": str(refused.message)}}
        return {"TableName": update.table}

    def batch_execute_statement(
        self: Any, statements: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        if not 1 <= len(statements) <= MAX_STATEMENTS:
            raise MockValidationException(
                "1 validation error detected: Value at 'statements' failed to satisfy constraint: "
                f"Member must have length less than or equal to {MAX_STATEMENTS}"
            )
        return [one(self, statement) for statement in statements]

    DynamoDBBackend.batch_execute_statement = batch_execute_statement
