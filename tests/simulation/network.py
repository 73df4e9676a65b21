"""The network between a process and a service: latency, and faults on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    ReadTimeoutError,
)

from sparkinesis.errors import ServiceError
from tests.simulation.scheduler import Process, Scheduler

URL = "http://simulated"

THROTTLED = "ProvisionedThroughputExceededException"

FAULTS = (
    "throttle",  # refused, no effect
    "error",  # 500, no effect
    "error_after",  # 500, and it took effect
    "timeout",  # never arrived
    "timeout_after",  # arrived; the answer did not
    "late",  # arrives when nobody waits for the answer any more
    "reset",  # the connection broke before
    "reset_after",  # or behind it
    "refused",  # nobody listens
    "slow",  # seconds
    "denied",  # for a while: a policy that somebody changes, and changes back
    "expired",  # GetRecords: ExpiredIteratorException; others: as `error`
    "statements",  # of a batch fail, each on its own; others: nothing
    "batches",  # `error_after`; others: nothing
)
OVERLOADED = "overloaded"
"""A fault of the lease table: calls wait in a queue, up to twice as long as their callers wait.

So some answers come just in time, and some requests take effect when nobody waits any more."""

LOSE_ANSWERS = {"error_after", "timeout_after", "reset_after", "late", OVERLOADED}
"""Faults after which a caller does not know if the call took effect."""
MAX_LATENCY = 0.5
"""Seconds one way, of a call that is not late."""

SLOWEST = 3.0
"""Seconds that a slow answer takes longer, at most."""

_LATEST = 2.0
"""Timeouts after which a late request arrives, at most."""


def longest_way(fault: str, timeout: float) -> float:
    """Seconds after which a request that meets this fault has arrived, if ever."""
    return _LATEST * timeout if fault in {"late", OVERLOADED} else MAX_LATENCY


class Faults(Protocol):
    """Decides the fault of a call."""

    def __call__(
        self, service: str, operation: str, process: Process, stream: str = ""
    ) -> str | None:
        """``stream``: the name of the stream that the call is about, if it is known."""


def operation_of(method: str) -> str:
    """The operation of a method of boto3's clients."""
    if method.startswith("_"):
        raise AttributeError(method)
    return "".join(map(str.capitalize, method.split("_")))


def client_error(operation: str, code: str, message: str, status: int, **more: Any) -> ClientError:
    """An error as boto3's clients raise it."""
    response = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
        **more,
    }
    return ClientError(response, operation)


Answer: TypeAlias = Callable[[Any, BaseException | None], None]
"""Takes the answer to a call, or its error."""


class Network:
    """Carries calls of tasks to services, which know nothing of tasks.

    A request that was sent arrives, whatever becomes of the process that has sent it.
    """

    def __init__(self, scheduler: Scheduler, faults: Faults) -> None:
        self._scheduler = scheduler
        self._faults = faults
        self._random = scheduler.rng.random

    def call(
        self,
        service: str,
        operation: str,
        serve: Callable[[Process], Any],
        *,
        timeout: float,
        stream: str = "",
    ) -> Any:
        """The answer of ``serve``, called when the request arrives; or what botocore raises.

        ``timeout``: seconds that the client waits for an answer. ``stream``: see `Faults`.
        """
        scheduler = self._scheduler
        scheduler.maybe_pause()
        task = scheduler.current
        assert task is not None, "only tasks call services"
        process = task.process
        fault = self._faults(service, operation, process, stream)
        there, back = self._latency(), self._latency()
        if fault == "slow":
            back += 1.0 + (SLOWEST - 1.0) * self._random()
        elif fault == "late":
            there = timeout * (1.0 + (_LATEST - 1.0) * self._random())
        elif fault == OVERLOADED:
            there = _LATEST * timeout * self._random()
        answer: list[Any] = []
        if fault in {None, "slow", *LOSE_ANSWERS}:

            def arrive() -> None:
                try:
                    answer.append((serve(process), None))
                except (ClientError, ServiceError) as error:
                    # The second: the answer is none that the client can read.
                    answer.append((None, error))

            scheduler.at(scheduler.now + there, arrive)
        if fault in {"timeout", "timeout_after", "late"} or there + back > timeout:
            scheduler.park(timeout)
            raise ReadTimeoutError(endpoint_url=URL)
        scheduler.park(there + back)
        if fault not in {None, "slow", OVERLOADED}:
            raise self._failure(fault, operation)
        value, error = answer[0]
        if error is not None:
            raise error
        return value

    def poll(
        self,
        service: str,
        operation: str,
        begin: Callable[[Process, Answer], None],
        *,
        timeout: float,
    ) -> Any:
        """As `call`, of a call that may wait at the service: ``begin`` is given what takes its end.

        Whoever sent it may be gone by then, as far as the service knows it is not.
        """
        scheduler = self._scheduler
        scheduler.maybe_pause()
        task = scheduler.current
        assert task is not None, "only tasks call services"
        process, is_waiting = task.process, True
        fault = self._faults(service, operation, process)
        there, back = self._latency(), self._latency()
        if fault == "slow":
            back += 1.0 + (SLOWEST - 1.0) * self._random()
        elif fault == "late":
            there = timeout * (1.0 + (_LATEST - 1.0) * self._random())
        answers: list[tuple[Any, BaseException | None]] = []

        def come(value: Any, error: BaseException | None) -> None:
            answers.append((value, error))
            if is_waiting:
                scheduler.wake(task)

        def answer(value: Any, error: BaseException | None) -> None:
            if fault not in {"timeout_after", "late"}:
                scheduler.at(scheduler.now + back, lambda: come(value, error))

        if fault in {None, "slow", *LOSE_ANSWERS}:
            scheduler.at(scheduler.now + there, lambda: begin(process, answer))
        elif fault != "timeout":
            scheduler.at(scheduler.now + there, lambda: answer(None, None))
        was_woken = scheduler.park(timeout)
        is_waiting = False
        if not was_woken:
            raise ReadTimeoutError(endpoint_url=URL)
        if fault not in {None, "slow"}:
            raise self._failure(fault, operation)
        ((value, error),) = answers
        if error is not None:
            raise error
        return value

    def note(self, log: dict[tuple[str, str], list[float]], about: str) -> None:
        """Records the present time for the current task's process."""
        task = self._scheduler.current
        assert task is not None, "only tasks call services"
        log.setdefault((task.process.name, about), []).append(self._scheduler.now)

    def _latency(self) -> float:
        """Seconds one way: a few milliseconds, seldom much more."""
        chance = self._random()
        return 0.002 + 0.01 * chance if chance < 0.98 else MAX_LATENCY * self._random()

    @staticmethod
    def _failure(fault: str | None, operation: str) -> Any:
        if fault == "throttle":
            return client_error(operation, THROTTLED, "Slow down", 400)
        if fault == "denied":
            return client_error(operation, "AccessDeniedException", "Not authorized", 400)
        if fault == "expired" and operation == "GetRecords":
            return client_error(operation, "ExpiredIteratorException", "Iterator expired", 400)
        if fault in {"reset", "reset_after"}:
            return ConnectionClosedError(endpoint_url=URL)
        if fault == "refused":
            return EndpointConnectionError(endpoint_url=URL, error="refused")
        return client_error(operation, "InternalServerError", "Injected", 500)
