"""A call on a stream: made again after a failure that passes, measured, its errors explained."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.metrics.catalogue import CALL_DURATION, CALL_RETRIES, ITERATORS_EXPIRED
from sparkinesis.metrics.health.signs import expect
from sparkinesis.metrics.measured import FAILED, measured
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.metrics.tracing import tracing_of
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.answers.guards import understood
from sparkinesis.stream.calls.explain import explain, is_unknown_position
from sparkinesis.stream.calls.retry import Attempts, Backoff, Retries, result_of
from sparkinesis.stream.calls.transport import call_client
from sparkinesis.stream.position import Position

_T = TypeVar("_T")


class StreamCaller:
    """Makes calls on one stream. For any thread.

    Errors: `StreamNotFoundError`, `AccessDeniedError`, `DataLossError` (the shard or the position
    no longer exists), `ExpiredIteratorError`, and `ServiceError` for all other failures, once the
    retries are used up.

    metrics: takes the measurements of the calls, by the clock of ``retry``.
    """

    def __init__(self, address: StreamAddress, retry: Backoff, metrics: Metrics) -> None:
        self.address = address
        self.metrics = metrics
        self._retry = retry
        self._tracing = tracing_of(metrics)

    def attempts(self) -> Attempts:
        """Return this client's retries, for a reader that does not hold a thread while it waits."""
        return Attempts(self._retry)

    def wait(self, seconds: float) -> None:
        """Wait as long as a retry does, in a thread that is not expected before."""
        expect(seconds)
        self._retry.sleep(seconds)

    def call(
        self,
        operation: str,
        call: Callable[[Any], _T],
        *,
        shard_id: str | None = None,
        position: Position | None = None,
        budget: AbstractContextManager[object] | None = None,
        retry: Retries | None = None,
    ) -> _T:
        """Make ``call`` with boto3's client, with retries; each attempt enters ``budget``.

        Raises sparkinesis's error for the last error of botocore, and what ``retry`` raises.
        """
        try:
            client = call_client(self.address)
            measured_call = self._measured(operation, shard_id, call)
            attempt = functools.partial(measured_call, client)
            if budget is not None:
                attempt = functools.partial(_within, budget, attempt)
            return (retry or self._retry).call(
                attempt,
                lambda error: self.count_retry(operation, error),
                lambda error: is_unknown_position(error, position),
            )
        except (ClientError, BotoCoreError) as error:
            explained = explain(error, operation, self.address, shard_id, position)
            # `from None`: the text quotes the service, and a second traceback would hide it.
            raise explained from None

    def call_once(
        self, operation: str, call: Callable[[Any], _T], shard_id: str | None = None
    ) -> _T:
        """Make ``call`` with boto3's client, in one attempt. Raises botocore's errors."""
        return self._measured(operation, shard_id, call)(call_client(self.address))

    def _measured(
        self, operation: str, shard_id: str | None, attempt: Callable[[Any], _T]
    ) -> Callable[[Any], _T]:
        """Return ``attempt``, `understood`; if there are metrics, measured and traced each time."""
        metrics = self.metrics
        attempt = functools.partial(understood, attempt)
        if metrics is OFF:
            return attempt
        stream, shard = self.address.name, shard_id or ""

        def traced(client: Any) -> _T:
            with self._tracing.call(operation, stream, shard_id):
                return attempt(client)

        def observe(result: str, seconds: float) -> None:
            metrics.observe(CALL_DURATION, (stream, shard, operation, result), seconds)
            if result == "expired":
                metrics.add(ITERATORS_EXPIRED, (stream, shard))

        return measured(
            traced, self._retry.clock, observe, lambda error: result_of(error, operation)
        )

    def count_retry(self, operation: str, error: ClientError | BotoCoreError) -> None:
        """Measure that a call is made again after an error."""
        if self.metrics is not OFF:
            result = result_of(error, operation)
            reason = "doubted" if result == FAILED else result
            self.metrics.add(CALL_RETRIES, (self.address.name, operation, reason))


def _within(budget: AbstractContextManager[object], call: Callable[[], _T]) -> _T:
    with budget:
        return call()
