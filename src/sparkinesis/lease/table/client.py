"""A lease table's address, and its DynamoDB client: makes the calls on rows directly, measured."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

import msgspec

from sparkinesis.lease.table.statements import errors_of
from sparkinesis.metrics.catalogue import TABLE_CALL_DURATION
from sparkinesis.metrics.metrics import FAILED, OFF, OK, Metrics, measured
from sparkinesis.stream.address import FOUND_BY_BOTO, CredentialSource, place_of
from sparkinesis.stream.calls.answers.guards import MIB, Bound, decode_object
from sparkinesis.stream.calls.direct.direct_client import DirectClient
from sparkinesis.stream.calls.direct.http_answer import HttpAnswer
from sparkinesis.stream.calls.direct.usual import usual_settings
from sparkinesis.stream.calls.retry import error_code, result_of
from sparkinesis.stream.calls.session import client_of, open_session

_READ_TIMEOUT = 5.0
"""Seconds. A renewal that hangs must leave time for another within the failover time."""

_MOST_CONNECTIONS = 64
_REFUSED = "ConditionalCheckFailedException"
_WORST_FIRST = ("throttled", "retryable", FAILED, "refused")

BOUNDS: Mapping[str, Bound] = {
    # A row has 400 KB at most, some more in JSON.
    **dict.fromkeys(
        ("DescribeTable", "GetItem", "PutItem", "UpdateItem", "DeleteItem"),
        Bound(_READ_TIMEOUT, 4 * MIB),
    ),
    # 25 rows, if the conditions of all statements are refused.
    "BatchExecuteStatement": Bound(_READ_TIMEOUT, 32 * MIB),
    # 1 MB of rows; of BatchGetItem 16 MB.
    **dict.fromkeys(("Scan", "Query", "BatchGetItem"), Bound(30.0, 32 * MIB)),
}
"""Generous: what the service's limits permit (API reference)."""


@dataclass(frozen=True, slots=True)
class TableAddress:
    """The lease table of the application ``name``, which is the table's name as well.

    Its text names the table and the region or endpoint, for errors and log lines.
    """

    name: str
    region: str | None = None
    endpoint: str | None = None
    credentials: CredentialSource = FOUND_BY_BOTO
    is_ours: bool = True
    """False for the table of another application, which is only read."""

    def __str__(self) -> str:
        place = place_of(self.region, self.endpoint, self.credentials.profile)
        return f"lease table {self.name!r} in {place}"


@functools.lru_cache(maxsize=16)
def dynamodb_client(region: str | None, endpoint: str | None, credentials: CredentialSource) -> Any:
    """Return the client, with its connection pool, of this process, region, endpoint and role."""
    return DirectClient(
        functools.partial(open_session, credentials, region, endpoint),
        lambda session: client_of(
            session, "dynamodb", endpoint, read_timeout=_READ_TIMEOUT, bounds=BOUNDS
        ),
        dict.fromkeys(_DIRECTLY, _decode),
        bounds=BOUNDS,
        most_idle=_MOST_CONNECTIONS,
        read_timeout=_READ_TIMEOUT,
        usual=usual_settings("dynamodb", region, endpoint, credentials),
    )


_DIRECTLY = (
    "DescribeTable",
    "CreateTable",
    "Scan",
    "Query",
    "GetItem",
    "BatchGetItem",
    "PutItem",
    "UpdateItem",
    "DeleteItem",
    "BatchExecuteStatement",
)
"""The operations of each start, and those whose number grows with leases and time."""


_Row: TypeAlias = dict[str, dict[str, Any]]


class _Found(TypedDict, total=False):
    """What is read of the answers of all operations; the decoder checks it in passing."""

    Item: _Row
    Items: list[_Row]
    Attributes: _Row
    LastEvaluatedKey: _Row
    Responses: list[dict[str, Any]] | dict[str, list[_Row]]
    UnprocessedKeys: dict[str, Any]
    Table: dict[str, Any]


_DECODER = msgspec.json.Decoder(_Found)


def _decode(answer: HttpAnswer) -> dict[str, Any]:
    found = decode_object(answer.body, _DECODER)
    if b'"B"' in answer.body or b'"BS"' in answer.body:
        for item in _items(found):
            item.update({name: _with_bytes(value) for name, value in item.items()})
    return found


def _items(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows and keys of an answer."""
    answers, of_tables = [found], found.get("Responses", ())
    if isinstance(of_tables, dict):  # of BatchGetItem: the rows of each table
        for items in of_tables.values():
            yield from items
    else:
        answers += of_tables
    for answer in (*answers, *(each.get("Error") for each in answers)):
        for name in ("Item", "Attributes", "LastEvaluatedKey"):
            if item := (answer or {}).get(name):
                yield item
    yield from found.get("Items", ())


def _with_bytes(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an attribute's value with bytes in the place of base64, as botocore has it."""
    ((kind, content),) = value.items()
    if kind == "B":
        return {kind: base64.b64decode(content)}
    if kind == "BS":
        return {kind: [base64.b64decode(each) for each in content]}
    if kind == "L":
        return {kind: [_with_bytes(each) for each in content]}
    if kind == "M":
        return {kind: {name: _with_bytes(each) for name, each in content.items()}}
    return value


def table_result(error: BaseException) -> str:
    """Return the result of a failed attempt, as metrics name it. Pure."""
    return "refused" if error_code(error) == _REFUSED else result_of(error)


def batch_result(errors: Iterable[BaseException]) -> str:
    """Return the result of a batch: the worst of its statements' results. Pure.

    A batch that was answered may have been throttled in part.
    """
    results = {table_result(error) for error in errors}
    return next((result for result in _WORST_FIRST if result in results), OK)


def measured_client(client: Any, clock: Callable[[], float], metrics: Metrics) -> Any:
    """Return a DynamoDB client whose calls are measured; the same one if there are no metrics."""
    return client if metrics is OFF else _MeasuredClient(client, clock, metrics)


class _MeasuredClient:
    def __init__(self, client: Any, clock: Callable[[], float], metrics: Metrics) -> None:
        self._client = client
        self._clock = clock
        self._metrics = metrics

    def __getattr__(self, method: str) -> Any:
        """Return the client's method, measured."""
        call: Callable[..., Any] = getattr(self._client, method)
        operation = method.title().replace("_", "")

        def observe(result: str, seconds: float) -> None:
            self._metrics.observe(TABLE_CALL_DURATION, (operation, result), seconds)

        return measured(
            call,
            self._clock,
            observe,
            table_result,
            lambda answer: batch_result(errors_of(answer)),
        )
