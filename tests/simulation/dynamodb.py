"""A lease table, as DynamoDB keeps it, and boto3's client of it, as far as workers use it.

A test compares the answers with moto's.
"""

from __future__ import annotations

import functools
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkinesis.local.lease_tables import Item, LeaseTable, TableError
from tests.simulation.history import TableServer
from tests.simulation.network import Network, client_error, operation_of
from tests.simulation.scheduler import Process

_TELL_NO_ROWS = {"dynalite", "older"}

TIMEOUT = 5.0
"""The timeout in seconds of the clients of `sparkinesis.lease.table.client`."""
_LONGEST_LAG = 2.0
"""The maximum age in seconds of an eventually consistent read."""
_FAILED = "ConditionalCheckFailed"
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


class LeaseTableModel(LeaseTable):
    """The table of `sparkinesis.local.lease_tables`, with what servers and networks do to it."""

    def __init__(self, name: str, clock: Callable[[], float], rng: random.Random) -> None:
        super().__init__(name)
        self.writes: list[Write] = []
        self.staleness = 0.0
        """The probability that an eventually consistent read returns an old row."""
        self.server: TableServer = "DynamoDB"
        self._clock = clock
        self._rng = rng
        self._by: Process | None = None
        """The process whose call is served now."""
        self._past: dict[str, list[tuple[float, Item | None]]] = {}

    @property
    def tells_rows(self) -> bool:  # type: ignore[override]
        return self.server not in _TELL_NO_ROWS

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
        self._by = by
        try:
            if operation != "BatchExecuteStatement":
                answer = self.answer(operation, request)
            elif self.server == "dynalite":
                raise client_error(operation, "UnknownOperationException", "", 400)
            else:
                answer = self._execute_all(request["Statements"], errors)
        except TableError as error:
            more = {} if error.item is None else {"Item": error.item}
            raise client_error(operation, error.code, error.message, 400, **more) from None
        finally:
            self._by = None
        return {**answer, "ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": {}}}

    def _execute_all(
        self, statements: Sequence[Mapping[str, Any]], errors: Sequence[str | None]
    ) -> Any:
        responses = []
        for i, statement in enumerate(statements):
            error = errors[i] if errors else None
            response = self.execute(statement) if error in {None, _IN_DOUBT} else {}
            if error is not None:
                code = "InternalServerError" if error == _IN_DOUBT else error
                response = {"Error": {"Code": code, "Message": "Injected"}}
            elif self.server == "moto" and response.get("Error", {}).get("Code") == _FAILED:
                response = {"TableName": self.name}
            responses.append(response)
        return {"Responses": responses}

    def put(self, key: str, row: Item | None) -> None:
        """Writes a row; outside of `serve`, without a writer's name."""
        now = self._clock()
        self.writes.append(Write(now, key, self.rows.get(key), row, self._by))
        super().put(key, row)
        self._past.setdefault(key, [(float("-inf"), None)]).append((now, row))

    def scan(self, *, consistent: bool) -> list[Item]:
        if consistent or not self.staleness:
            return super().scan(consistent=True)
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
