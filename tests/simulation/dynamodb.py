"""A lease table, as DynamoDB keeps it, and boto3's client of it, as far as workers use it.

A test compares the answers with moto's.
"""

from __future__ import annotations

import functools
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

from sparkinesis.local.lease_tables import Item, LocalTable, TableError
from tests.simulation.history import TableServer
from tests.simulation.journal import EPOCH_MS
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
    sent: float = 0.0
    """When the request was sent."""


class LeaseTableModel(LocalTable):
    """The table of `sparkinesis.local.lease_tables`, with what servers and networks do to it."""

    def __init__(self, name: str, clock: Callable[[], float], rng: random.Random) -> None:
        super().__init__(name)
        self.writes: list[Write] = []
        """The changes of leases."""
        self.fleet_writes: list[Write] = []
        """The changes of rows that are no leases: the leader's lock, the mode, workers' stats."""
        self.staleness = 0.0
        """The probability that an eventually consistent read returns an old row."""
        self.server: TableServer = "DynamoDB"
        self._clock = clock
        self._rng = rng
        self._by: Process | None = None
        """The process whose call is served now."""
        self._sent = 0.0
        self._past: dict[str, list[tuple[float, Item | None]]] = {}

    @property
    def now(self) -> float:
        return self._clock()

    @property
    def tells_rows(self) -> bool:  # type: ignore[override]
        return self.server not in _TELL_NO_ROWS

    @property
    def lease_rows(self) -> dict[str, Item]:
        """The rows of leases."""
        return {key: row for key, row in self.rows.items() if is_lease(row)}

    def serve(
        self,
        operation: str,
        request: Mapping[str, Any],
        by: Process | None = None,
        errors: Sequence[str | None] = (),
        sent: float | None = None,
    ) -> Any:
        """One call, at once. Raises ClientError.

        ``errors``: those that the statements of a batch meet, each its own. ``sent``: when the call
        was sent; None: now.
        """
        self._by, self._sent = by, self._clock() if sent is None else sent
        try:
            if request.get("TableName", self.name) != self.name:
                # Some Java KCLs have tables beside the lease table.
                raise TableError("ResourceNotFoundException", "Requested resource not found")
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
        date = formatdate(EPOCH_MS // 1000 + int(self._clock()), usegmt=True)
        headers = {"date": date}
        return {**answer, "ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": headers}}

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
        now, before = self._clock(), self.rows.get(key)
        writes = self.writes if is_lease(before or row or {}) else self.fleet_writes
        sent = now if self._by is None else self._sent
        writes.append(Write(now, key, before, row, self._by, sent))
        super().put(key, row)
        self._past.setdefault(key, [(float("-inf"), None)]).append((now, row))

    def put_long_ago(self, key: str, row: Item) -> None:
        """Writes a row that each read finds, however old it is."""
        self.put(key, row)
        self._past[key] = [(float("-inf"), row)]

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


def is_lease(row: Item) -> bool:
    """True for a row of a lease, as workers of this library write it."""
    return "entityType" not in row


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
        sent = self._table.now

        def serve(process: Process) -> Any:
            errors: Sequence[str | None] = ()
            if operation == "BatchExecuteStatement":
                errors = self._statement_errors(process, len(request["Statements"]))
            return self._table.serve(operation, request, process, errors, sent)

        return self._network.call("dynamodb", operation, serve, timeout=TIMEOUT)
