"""Measures the calls of a lease table: each attempt, with its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sparkinesis.lease.table.batch import errors_of
from sparkinesis.metrics.catalogue import TABLE_CALL_DURATION
from sparkinesis.metrics.measured import FAILED, OK, measured
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.stream.calls.retry import error_code, result_of

_REFUSED = "ConditionalCheckFailedException"
_WORST_FIRST = ("throttled", "retryable", FAILED, "refused")


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
