"""Lease tables in this process: the calls of DynamoDB that workers make, without moto.

Moto takes two seconds to start; a lease table of this module is there at once. Conditions and
updates are evaluated from the expressions that the package sends; other expressions are none of
its. A test compares the answers with moto's.
"""

from __future__ import annotations

import functools
import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from sparkinesis.local.wire.partiql import translate

if TYPE_CHECKING:
    from sparkinesis.local.wire.answer import Answer

Item: TypeAlias = Mapping[str, Mapping[str, Any]]

KEY = "leaseKey"
_OWNER = "leaseOwner"
_PAGE = 4_000
"""The most rows of an answer: of leases, about the 1 MB that an answer of DynamoDB has at most."""
_REFUSED = "The conditional request failed"


class TableError(Exception):
    """An error as DynamoDB answers it. item: the row that failed a condition."""

    def __init__(self, code: str, message: str, item: Item | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.item = item


class LocalTable:
    """One table whose primary key is ``leaseKey``. For one thread at a time."""

    tells_rows = True
    """True if a refusal shows the row that refuses it, when a request asks for the row."""

    def __init__(self, name: str, crashed: Collection[str] = ()) -> None:
        """``crashed``: the workers whose writes are refused."""
        self.name = name
        self.is_there = False
        self.indexes: list[str] = []
        """The names of its indexes, which are all by the owner of a lease."""
        self._billing = "PROVISIONED"
        self.rows: dict[str, Item] = {}
        self._crashed = crashed

    def answer(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a call, at once. Raises `TableError`."""
        if operation == "BatchExecuteStatement":
            return {"Responses": [self.execute(each) for each in request["Statements"]]}
        if operation == "CreateTable":
            if self.is_there:
                raise TableError("ResourceInUseException", "Table exists")
            self.is_there = True
            self._billing = request.get("BillingMode", "PROVISIONED")
            return {"TableDescription": {"TableName": self.name}}
        if not self.is_there:
            raise TableError("ResourceNotFoundException", "No such table")
        if operation == "DescribeTable":
            return {
                "Table": {
                    "TableName": self.name,
                    "TableStatus": "ACTIVE",
                    "KeySchema": [{"AttributeName": KEY, "KeyType": "HASH"}],
                    "AttributeDefinitions": [{"AttributeName": KEY, "AttributeType": "S"}],
                    "BillingModeSummary": {"BillingMode": self._billing},
                    "GlobalSecondaryIndexes": [{"IndexName": name} for name in self.indexes],
                }
            }
        if operation == "UpdateTable":
            creates = [each["Create"] for each in request["GlobalSecondaryIndexUpdates"]]
            self.indexes += [each["IndexName"] for each in creates]
            return {"TableDescription": {"TableName": self.name}}
        if operation == "Query":
            if request["IndexName"] not in self.indexes:
                raise TableError("ValidationException", "The table does not have the index")
            return _page(self.owned(request["ExpressionAttributeValues"][":owner"]["S"]), request)
        if operation == "BatchGetItem":
            wanted = [key[KEY]["S"] for key in request["RequestItems"][self.name]["Keys"]]
            rows = {row[KEY]["S"]: row for row in self.scan(consistent=False)}
            found = [rows[key] for key in wanted if key in rows]
            return {"Responses": {self.name: found}, "UnprocessedKeys": {}}
        if operation == "Scan":
            return _page(self.scan(consistent=request.get("ConsistentRead", False)), request)
        if operation == "GetItem":
            row = self.rows.get(request["Key"][KEY]["S"])
            return {} if row is None else {"Item": row}
        return self._write(operation, request)

    def scan(self, *, consistent: bool) -> list[Item]:  # noqa: ARG002 - others know older rows
        return [self.rows[key] for key in sorted(self.rows)]

    def owned(self, owner: str) -> list[Item]:
        """Return the keys of the rows of an owner, as an index has them."""
        rows = self.scan(consistent=False)
        return [{KEY: row[KEY], _OWNER: row[_OWNER]} for row in rows if _owner(row) == owner]

    def put(self, key: str, row: Item | None) -> None:
        """Write a row without a condition; None deletes the row."""
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row

    def _write(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        key = (request.get("Key") or request["Item"])[KEY]["S"]
        values = request.get("ExpressionAttributeValues", {})
        row = self.rows.get(key)
        tests = _conditions(request.get("ConditionExpression", ""))
        new: dict[str, Any] | None = None
        if operation == "PutItem":
            new = request["Item"]
        elif operation != "DeleteItem":
            assert operation == "UpdateItem", operation
            new = dict(row or request["Key"])
            for change in _changes(request["UpdateExpression"]):
                change(new, values)
        if not all(test(row or {}, values) for test in tests) or self._is_of_crashed(new):
            wanted = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            item = row if wanted and self.tells_rows else None
            raise TableError("ConditionalCheckFailedException", _REFUSED, item)
        self.put(key, new)
        return {"Attributes": new} if operation == "UpdateItem" else {}

    def _is_of_crashed(self, row: Item | None) -> bool:
        return row is not None and _writer(row) in self._crashed

    def execute(self, statement: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to one statement of a batch."""
        update = translate(statement["Statement"], statement["Parameters"], lambda _: KEY)
        assert update is not None, statement
        if not self.is_there:
            return {"Error": {"Code": "ResourceNotFound", "Message": "No such table"}}
        key = update.key[KEY]["S"]
        row = self.rows.get(key)
        holds = row is not None and all(_holds(row, *each) for each in update.expected.items())
        kept = {name: value for name, value in (row or {}).items() if name not in update.remove}
        new = {**kept, **update.set}
        if not holds or self._is_of_crashed(new):
            error: dict[str, Any] = {"Code": "ConditionalCheckFailed", "Message": _REFUSED}
            if row is not None and self.tells_rows:
                error["Item"] = row
            return {"Error": error, "TableName": self.name}
        self.put(key, new)
        return {"TableName": self.name}


def _page(rows: Sequence[Item], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer that has rows, in the order of their keys, behind a request's start."""
    start = request.get("ExclusiveStartKey")
    if start is not None:
        rows = rows[bisect_right(rows, start[KEY]["S"], key=lambda row: row[KEY]["S"]) :]
    if len(rows) <= _PAGE:
        return {"Items": rows}
    return {"Items": rows[:_PAGE], "LastEvaluatedKey": {KEY: rows[_PAGE - 1][KEY]}}


_Test: TypeAlias = Callable[[Item, Mapping[str, Any]], bool]
_Change: TypeAlias = Callable[[dict[str, Any], Mapping[str, Any]], None]


@functools.cache
def _conditions(expression: str) -> list[_Test]:
    """Return the parts of a conjunction of ``a = :b`` and ``attribute_(not_)exists(a)``."""
    return [_condition(part) for part in expression.split(" AND ") if part]


def _condition(part: str) -> _Test:
    found = re.fullmatch(r"(attribute_exists|attribute_not_exists)\((\w+)\)", part)
    if found is not None:
        wanted, name = found[1] == "attribute_exists", found[2]
        return lambda row, _: (name in row) == wanted
    name, value = part.split(" = ")
    return lambda row, values: bool(row.get(name) == values[value])


@functools.cache
def _changes(expression: str) -> list[_Change]:
    """Return the clauses SET a = :b, ADD a :b, REMOVE a."""
    changes: list[_Change] = []
    parts = re.split(r"\s*\b(SET|ADD|REMOVE)\b\s*", expression)
    for keyword, clause in zip(parts[1::2], parts[2::2], strict=True):
        changes += [_change(keyword, piece) for piece in clause.split(", ")]
    return changes


def _change(keyword: str, piece: str) -> _Change:
    if keyword == "REMOVE":
        return lambda row, _: row.pop(piece, None)
    name, value = piece.split(" = " if keyword == "SET" else " ")
    if keyword == "SET":
        return lambda row, values: row.update({name: values[value]})
    return lambda row, values: row.update({name: _sum(row.get(name), values[value])})


def _sum(old: Mapping[str, str] | None, added: Mapping[str, str]) -> Mapping[str, str]:
    return {"N": str(int((old or {"N": "0"})["N"]) + int(added["N"]))}


def _holds(row: Item, name: str, condition: Mapping[str, Any]) -> bool:
    """Return whether a row meets a condition in the form of `sparkinesis.local.wire.partiql`."""
    operator = condition["ComparisonOperator"]
    if operator == "EQ":
        return bool(row.get(name) == condition["AttributeValueList"][0])
    return (name in row) is (operator == "NOT_NULL")


class LeaseTables:
    """The lease tables of a local server, in place of `sparkinesis.local.wire.dynamodb.Moto`."""

    pid = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[str, LocalTable] = {}
        self._crashed: set[str] = set()

    def start(self) -> None:
        """Do nothing: the tables are there."""

    def stop(self) -> None:
        """Do nothing: the tables end with this object."""

    def rows(self, table: str) -> list[Item]:
        """Return the rows of a table; none if the table is missing."""
        with self._lock:
            return list(self._tables[table].rows.values()) if table in self._tables else []

    def crash(self, worker_id: str) -> None:
        """Make a worker a crashed one: none of its writes is accepted from now on.

        Its leases have no owner afterwards, as if their failover time had passed, and it is neither
        the leader nor known to it.
        """
        with self._lock:
            self._crashed.add(worker_id)
            for table in self._tables.values():
                for key, row in list(table.rows.items()):
                    if _owner(row) == worker_id:
                        table.put(key, {name: row[name] for name in row if name != _OWNER})
                    elif _writer(row) == worker_id:
                        table.put(key, None)

    def forward(
        self,
        service: str,
        method: str,  # noqa: ARG002 - always a POST to /
        path: str,  # noqa: ARG002
        headers: Iterable[tuple[bytes, bytes]],
        body: bytes,
    ) -> Answer:
        """Answer a call of DynamoDB by HTTP, as `Moto.forward` does."""
        from sparkinesis.local.wire.answer import Answer, text  # noqa: PLC0415

        target = dict(headers).get(b"x-amz-target", b"").decode("latin-1")
        operation = target.partition(".")[2]
        if service != "dynamodb" or operation not in _OPERATIONS:
            # 501, because clients retry after 500, 502, 503 and 504.
            return text(501, f"{service} {operation}: only the calls of workers are served here")
        request = msgspec.json.decode(body)
        status = 200
        try:
            with self._lock:
                answer = self._answer(operation, request)
        except TableError as error:
            status = 400
            answer = {"__type": f"{_PREFIX}{error.code}", "message": error.message}
            if error.item is not None:
                answer["Item"] = error.item
        kind = (b"content-type", b"application/x-amz-json-1.0")
        return Answer(status, [kind], msgspec.json.encode(answer))

    def _answer(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if operation == "ListTables":
            there = (name for name, table in self._tables.items() if table.is_there)
            return {"TableNames": sorted(there)}
        table = self._table(operation, request)
        if operation == "DeleteTable" and table.is_there:
            del self._tables[table.name]
            return {"TableDescription": {"TableName": table.name}}
        return table.answer(operation, request)

    def _table(self, operation: str, request: Mapping[str, Any]) -> LocalTable:
        if operation == "BatchExecuteStatement":
            # Of a batch, a worker writes to one table.
            first = request["Statements"][0]
            update = translate(first["Statement"], first["Parameters"], lambda _: KEY)
            assert update is not None, first
            name = update.table
        elif operation == "BatchGetItem":
            (name,) = request["RequestItems"]
        else:
            name = request["TableName"]
        return self._tables.setdefault(name, LocalTable(name, self._crashed))


_PREFIX = "com.amazonaws.dynamodb.v20120810#"
_OPERATIONS = {
    "BatchExecuteStatement",
    "BatchGetItem",
    "CreateTable",
    "DeleteItem",
    "DeleteTable",
    "DescribeTable",
    "GetItem",
    "ListTables",
    "PutItem",
    "Query",
    "Scan",
    "UpdateItem",
    "UpdateTable",
}


def _owner(row: Item) -> str | None:
    return row[_OWNER]["S"] if _OWNER in row else None


def _writer(row: Item) -> str | None:
    """Return the worker to which a row belongs: a lease, the leader's lock, or a worker's stats."""
    if row.get("entityType") == {"S": "WORKER_METRIC_STATS"}:
        return str(row[KEY]["S"])
    return row["ownerName"]["S"] if "ownerName" in row else _owner(row)
