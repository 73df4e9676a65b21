"""UPDATE statements of BatchExecuteStatement, which moto takes but answers wrongly.

moto's PartiQL does not tell a condition that failed, and copies every table for each statement.
Simple UPDATEs become UpdateItem's expressions here:

    UPDATE "table" SET a=? SET b=? REMOVE c WHERE key=? AND a=? AND d IS MISSING

All else stays with moto. Codes and shapes of errors are those of the service's
``BatchStatementError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_NAME = r'"?([A-Za-z_][\w.-]*)"?'
_STATEMENT = re.compile(
    rf"\s*UPDATE\s+{_NAME}\s+(.+?)\s+WHERE\s+(.+?)\s*;?\s*", re.IGNORECASE | re.DOTALL
)
_CLAUSE = re.compile(rf"(?:,|\bSET\b|\bREMOVE\b)\s*{_NAME}\s*(=\s*\?)?\s*", re.IGNORECASE)
_CONDITION = re.compile(
    rf"{_NAME}\s*(?:(=\s*\?)|(IS\s+NOT\s+MISSING)|(IS\s+MISSING))", re.IGNORECASE
)

MAX_STATEMENTS = 25


@dataclass(frozen=True)
class Update:
    """An UPDATE statement, as UpdateItem's arguments."""

    table: str
    key: dict[str, Any]
    update_expression: str
    condition_expression: str
    names: dict[str, str]
    values: dict[str, Any]


def translate(
    statement: str, parameters: Sequence[Any], key_of: Callable[[str], str | None]
) -> Update | None:
    """None for a statement that is not a simple UPDATE, or whose table has no simple key.

    key_of: the name of a table's only key attribute, None if there is no such table or key.
    """
    found = _STATEMENT.fullmatch(statement)
    key_name = key_of(found[1]) if found else None
    if found is None or key_name is None:
        return None
    clauses = _consume(_CLAUSE, found[2])
    conditions = [_CONDITION.fullmatch(each) for each in re.split(r"(?i)\s+AND\s+", found[3])]
    if clauses is None or not all(conditions) or statement.count("?") != len(parameters):
        return None
    left = list(parameters)
    names: dict[str, str] = {}
    values: dict[str, Any] = {}

    def placed(attribute: str) -> str:
        return names.setdefault(attribute, f"#n{len(names)}")

    def valued() -> str:
        name = f":v{len(values)}"
        values[name] = left.pop(0)
        return name

    changes = [f"{placed(c[1])} = {valued()}" for c in clauses if c[2]]
    removed = [placed(c[1]) for c in clauses if not c[2]]
    expression = "SET " + ", ".join(changes) if changes else ""
    if removed:
        expression += " REMOVE " + ", ".join(removed)
    key: Any = None
    tests = [f"attribute_exists({placed(key_name)})"]
    for condition in conditions:
        assert condition is not None
        name, equals, present, _ = condition.groups()
        if name == key_name and equals:
            key = left.pop(0)
        elif equals:
            tests.append(f"{placed(name)} = {valued()}")
        else:
            function = "attribute_exists" if present else "attribute_not_exists"
            tests.append(f"{function}({placed(name)})")
    if key is None or not expression:
        return None
    return Update(
        found[1],
        {key_name: key},
        expression.strip(),
        " AND ".join(tests),
        {placeholder: name for name, placeholder in names.items()},
        values,
    )


def _consume(pattern: re.Pattern[str], text: str) -> list[re.Match[str]] | None:
    """The matches that ``text`` consists of, None if there is more in it."""
    found = list(pattern.finditer(text))
    return found if "".join(match[0] for match in found) == text else None


def install() -> None:
    """Make moto, in this process, answer BatchExecuteStatement so."""
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
        try:
            backend.update_item(
                update.table,
                update.key,
                update_expression=update.update_expression,
                condition_expression=update.condition_expression,
                expression_attribute_names=update.names,
                expression_attribute_values=update.values,
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
