"""A lease table, as DynamoDB keeps it, and boto3's client of it, as far as workers use it.

Conditions and updates are evaluated from the expressions that the package sends. A test compares
the answers with moto's.
"""

from __future__ import annotations

import functools
import random
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sparkinesis.local.wire.partiql import translate
from tests.simulation.history import TableServer
from tests.simulation.network import Network, client_error, operation_of
from tests.simulation.scheduler import Process

Item: TypeAlias = Mapping[str, Mapping[str, Any]]

_TELL_NO_ROWS = {"dynalite", "older"}

TIMEOUT = 5.0
"""The timeout in seconds of the clients of `sparkinesis.lease.table.client`."""
_KEY = "leaseKey"
_LONGEST_LAG = 2.0
"""The maximum age in seconds of an eventually consistent read."""
_IN_DOUBT = "in doubt"
_STATEMENT_ERRORS = (
    "ThrottlingError",
    "ProvisionedThroughputExceeded",
    "TransactionConflict",
    "InternalServerError",  # and it has no effect
    _IN_DOUBT,  # the same, and it took effect
)


def draw_errors(rng: random.Random, rate: float, count: int) -> list[str | None]:
    """Draws an error, or None, for each statement of a batch, with the given probability."""
    return [rng.choice(_STATEMENT_ERRORS) if rng.random() < rate else None for _ in range(count)]


@dataclass(frozen=True, slots=True)
class Write:
    """One change of a row. ``before`` is None for a new row, ``after`` for a deleted one."""

    at: float
    key: str
    before: Item | None
    after: Item | None
    by: Process | None


class LeaseTableModel:
    """One table whose primary key is ``leaseKey``."""

    def __init__(self, name: str, clock: Callable[[], float], rng: random.Random) -> None:
        self.name = name
        self.is_there = False
        self.writes: list[Write] = []
        self.rows: dict[str, Item] = {}
        self.staleness = 0.0
        """The probability that an eventually consistent read returns an old row."""
        self.server: TableServer = "DynamoDB"
        self._clock = clock
        self._rng = rng
        self._past: dict[str, list[tuple[float, Item | None]]] = {}

    def serve(
        self,
        operation: str,
        request: Mapping[str, Any],
        by: Process | None = None,
        errors: Sequence[str | None] = (),
    ) -> Any:
        """One call, at once. Raises ClientError.

        ``errors``: those that the statements of a batch meet, each its own.
        """
        if operation == "BatchExecuteStatement":
            answer = self._execute_all(request["Statements"], by, errors)
        else:
            answer = self._serve(operation, request, by)
        return {**answer, "ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": {}}}

    def _serve(self, operation: str, request: Mapping[str, Any], by: Process | None) -> Any:
        if operation == "CreateTable":
            if self.is_there:
                raise client_error(operation, "ResourceInUseException", "Table exists", 400)
            self.is_there = True
            return {"TableDescription": {"TableName": self.name}}
        if not self.is_there:
            raise client_error(operation, "ResourceNotFoundException", "No such table", 400)
        if operation == "DescribeTable":
            return {
                "Table": {
                    "TableName": self.name,
                    "TableStatus": "ACTIVE",
                    "KeySchema": [{"AttributeName": _KEY, "KeyType": "HASH"}],
                    "AttributeDefinitions": [{"AttributeName": _KEY, "AttributeType": "S"}],
                }
            }
        if operation == "Scan":
            return {"Items": self._scan(request["ConsistentRead"]), "LastEvaluatedKey": None}
        if operation == "GetItem":
            row = self.rows.get(request["Key"][_KEY]["S"])
            return {} if row is None else {"Item": row}
        return self._write(operation, request, by)

    def _write(self, operation: str, request: Mapping[str, Any], by: Process | None) -> Any:
        key = (request.get("Key") or request["Item"])[_KEY]["S"]
        values = request.get("ExpressionAttributeValues", {})
        row = self.rows.get(key)
        tests = _conditions(request["ConditionExpression"])
        if not all(test(row or {}, values) for test in tests):
            more = {}
            wanted = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            if row is not None and wanted and self.server not in _TELL_NO_ROWS:
                more = {"Item": row}
            raise client_error(
                operation,
                "ConditionalCheckFailedException",
                "The conditional request failed",
                400,
                **more,
            )
        if operation == "DeleteItem":
            self._put(key, None, by)
            return {}
        if operation == "PutItem":
            self._put(key, request["Item"], by)
            return {}
        assert operation == "UpdateItem", operation
        new = dict(row or request["Key"])
        for change in _changes(request["UpdateExpression"]):
            change(new, values)
        self._put(key, new, by)
        return {"Attributes": new}

    def _execute_all(
        self,
        statements: Sequence[Mapping[str, Any]],
        by: Process | None,
        errors: Sequence[str | None],
    ) -> Any:
        if self.server == "dynalite":
            operation = "BatchExecuteStatement"
            raise client_error(operation, "UnknownOperationException", "", 400)
        responses = []
        for i, statement in enumerate(statements):
            error = errors[i] if errors else None
            response = self._execute(statement, by) if error in {None, _IN_DOUBT} else {}
            if error is not None:
                code = "InternalServerError" if error == _IN_DOUBT else error
                response = {"Error": {"Code": code, "Message": "Injected"}}
            responses.append(response)
        return {"Responses": responses}

    def _execute(self, statement: Mapping[str, Any], by: Process | None) -> Any:
        update = translate(statement["Statement"], statement["Parameters"], lambda _: _KEY)
        assert update is not None, statement
        if not self.is_there:
            return {"Error": {"Code": "ResourceNotFound", "Message": "No such table"}}
        key = update.key[_KEY]["S"]
        row = self.rows.get(key)
        if row is None or not all(_holds(row, *each) for each in update.expected.items()):
            if self.server == "moto":
                return {"TableName": self.name}
            error: dict[str, Any] = {
                "Code": "ConditionalCheckFailed",
                "Message": "The conditional request failed",
            }
            if row is not None and self.server not in _TELL_NO_ROWS:
                error["Item"] = row
            return {"Error": error, "TableName": self.name}
        new = {name: value for name, value in row.items() if name not in update.remove}
        self._put(key, {**new, **update.set}, by)
        return {"TableName": self.name}

    def put(self, key: str, row: Item | None) -> None:
        """Writes a row without a condition and without a writer's name; None deletes the row."""
        self._put(key, row, None)

    def _put(self, key: str, row: Item | None, by: Process | None) -> None:
        now = self._clock()
        before = self.rows.get(key)
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row
        self.writes.append(Write(now, key, before, row, by))
        self._past.setdefault(key, [(float("-inf"), None)]).append((now, row))

    def _scan(self, consistent: bool) -> list[Item]:
        if consistent or not self.staleness:
            return [self.rows[key] for key in sorted(self.rows)]
        seen = []
        for key in sorted(self._past):
            row = self.rows.get(key)
            if self._rng.random() < self.staleness:
                row = self._as_of(key, self._clock() - _LONGEST_LAG * self._rng.random())
            if row is not None:
                seen.append(row)
        return seen

    def _as_of(self, key: str, instant: float) -> Item | None:
        versions = self._past[key]
        return versions[bisect_right(versions, instant, key=lambda version: version[0]) - 1][1]


_Test: TypeAlias = Callable[[Item, Mapping[str, Any]], bool]
_Change: TypeAlias = Callable[[dict[str, Any], Mapping[str, Any]], None]


@functools.cache
def _conditions(expression: str) -> Sequence[_Test]:
    """The parts of a conjunction of ``a = :b``, attribute_exists(a), attribute_not_exists(a)."""
    return [_condition(part) for part in expression.split(" AND ")]


def _condition(part: str) -> _Test:
    found = re.fullmatch(r"(attribute_exists|attribute_not_exists)\((\w+)\)", part)
    if found is not None:
        wanted, name = found[1] == "attribute_exists", found[2]
        return lambda row, _: (name in row) == wanted
    name, value = part.split(" = ")
    return lambda row, values: bool(row.get(name) == values[value])


@functools.cache
def _changes(expression: str) -> Sequence[_Change]:
    """The clauses SET a = :b, ADD a :b, REMOVE a."""
    changes: list[_Change] = []
    parts = re.split(r"\s*\b(SET|ADD|REMOVE)\b\s*", expression)
    for keyword, clause in zip(parts[1::2], parts[2::2], strict=True):
        changes += [_change(keyword, piece) for piece in clause.split(", ")]
    return changes


def _change(keyword: str, piece: str) -> _Change:
    if keyword == "REMOVE":
        return lambda row, _: _remove(row, piece)
    name, value = piece.split(" = " if keyword == "SET" else " ")
    if keyword == "SET":
        return lambda row, values: row.update({name: values[value]})
    return lambda row, values: row.update({name: _sum(row.get(name), values[value])})


def _remove(row: dict[str, Any], name: str) -> None:
    row.pop(name, None)


def _sum(old: Mapping[str, str] | None, added: Mapping[str, str]) -> Mapping[str, str]:
    return {"N": str(int((old or {"N": "0"})["N"]) + int(added["N"]))}


def _holds(row: Item, name: str, condition: Mapping[str, Any]) -> bool:
    """A condition in the form of `sparkinesis.local.wire.partiql`."""
    operator = condition["ComparisonOperator"]
    if operator == "EQ":
        return bool(row.get(name) == condition["AttributeValueList"][0])
    return (name in row) is (operator == "NOT_NULL")


class DynamoDBClient:
    """A client whose answers and errors are boto3's, with the hooks of the package."""

    def __init__(
        self,
        network: Network,
        table: LeaseTableModel,
        statement_errors: Callable[[Process, int], Sequence[str | None]] = lambda *_: (),
    ) -> None:
        """``statement_errors``: returns the errors of a process's batch of this many statements."""
        self._network = network
        self._table = table
        self._statement_errors = statement_errors

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return functools.partial(self._call, operation_of(name))

    def _call(self, operation: str, **request: Any) -> Any:
        def serve(process: Process) -> Any:
            errors: Sequence[str | None] = ()
            if operation == "BatchExecuteStatement":
                errors = self._statement_errors(process, len(request["Statements"]))
            return self._table.serve(operation, request, process, errors)

        return self._network.call("dynamodb", operation, serve, timeout=TIMEOUT)
