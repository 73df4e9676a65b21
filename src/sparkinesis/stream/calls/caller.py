"""A call of Kinesis: made again after a failure that passes, measured, its errors explained.

It is made with the client that this process has for its place and role. The calls that grow with
shards and time, and those on queues, are made directly (`sparkinesis.stream.calls.direct`). The
others, and behind a proxy all of them, are made by botocore.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import ServiceError, SparkinesisError
from sparkinesis.metrics.catalogue import CALL_DURATION, CALL_RETRIES, ITERATORS_EXPIRED
from sparkinesis.metrics.health.liveness import expect
from sparkinesis.metrics.metrics import FAILED, OFF, OK, Metrics, tracing_of
from sparkinesis.stream.address import CredentialSource, StreamAddress
from sparkinesis.stream.calls.answers.guards import understood
from sparkinesis.stream.calls.direct.direct_client import DirectClient
from sparkinesis.stream.calls.direct.usual import usual_settings
from sparkinesis.stream.calls.explain import explain, is_unknown_position
from sparkinesis.stream.calls.operations import BOUNDS, DECODERS, IN_CBOR, take_from_parser
from sparkinesis.stream.calls.retry import Attempts, Backoff, Retries, result_of
from sparkinesis.stream.calls.session import READ_TIMEOUT, client_of, open_session
from sparkinesis.stream.position import Position

CREATION = 300.0
"""The most seconds to wait for a stream or a queue that is being created."""
_ASK_EVERY = 1.0
"""Seconds between two calls about it, and `_LOG_EVERY` between two lines about it."""
_LOG_EVERY = 30.0

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class _HasStatus(Protocol):
    @property
    def status(self) -> str: ...


_Described = TypeVar("_Described", bound=_HasStatus)


CallError: TypeAlias = ClientError | BotoCoreError


class CallTarget(Protocol):
    """Where calls go, and by which credentials: the address of a stream or of a queue."""

    @property
    def region(self) -> str | None: ...
    @property
    def endpoint(self) -> str | None: ...
    @property
    def credentials(self) -> CredentialSource: ...


class SentCall:
    """An attempt whose request was sent before the call's turn came. For one thread at a time.

    answer: waits for the answer, and raises botocore's errors; called once. sent_ms, sent_at: the
    instant of the request, by ``wall_clock_ms`` and by ``clock``, that of the retries.
    """

    def __init__(
        self,
        answer: Callable[[], dict[str, Any]],
        sent_ms: int,
        sent_at: float,
        clock: Callable[[], float],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        self._answer, self._clock, self._wall_clock_ms = answer, clock, wall_clock_ms
        self.sent_ms, self._sent_at = sent_ms, sent_at
        self.got_ms = 0
        """The wall clock (epoch ms) at the answer."""
        self.seconds = 0.0
        """The time from the request to the answer; 0 once this was taken: the call goes on."""
        self._found: dict[str, Any] | Exception | None = None

    def wait(self) -> dict[str, Any] | None:
        """Wait for the answer and return it; None for an error, which `take` raises."""
        if self._found is None:
            try:
                self._found = self._answer()
            except Exception as error:  # noqa: BLE001 - raised later
                self._found = error
            self.got_ms = self._wall_clock_ms()
            self.seconds = self._clock() - self._sent_at
        return None if isinstance(self._found, Exception) else self._found

    def take(self) -> dict[str, Any]:
        """Wait for the answer and return it. Raises botocore's errors."""
        answer = self.wait()
        self.seconds = 0.0
        if answer is None:
            assert isinstance(self._found, Exception)
            raise self._found
        return answer


class Caller:
    """Makes calls on one stream or queue. For any thread.

    Errors, once the retries are used up: those of `explained`.

    subject: the stream or queue in measurements. metrics: takes the measurements of the calls, by
    the clock of ``retry``.
    """

    def __init__(self, place: CallTarget, subject: str, retry: Backoff, metrics: Metrics) -> None:
        self.metrics = metrics
        self._place = place
        self._subject = subject
        self._retry = retry
        self._tracing = tracing_of(metrics)

    def explained(self, error: CallError, operation: str, *about: Any) -> SparkinesisError:
        """Return sparkinesis's error for one of botocore's.

        about: of a stream, the id of a shard, and a position in it; each may be None.
        """
        raise NotImplementedError

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
        sent: SentCall | None = None,
    ) -> _T:
        """Make ``call`` with boto3's client, with retries; each attempt enters ``budget``.

        sent: the first attempt, if its request was sent ahead; ``call`` takes its answer.

        Raises sparkinesis's error for the last error of botocore, and what ``retry`` raises.
        """
        try:
            client = call_client(self._place)
            if sent is not None:
                sent.wait()  # before the attempt is measured, and its budget entered
            attempt = functools.partial(self._attempt, operation, shard_id, call, client, sent)
            if budget is not None:
                attempt = functools.partial(_within, budget, attempt)
            return (retry or self._retry).call(
                attempt,
                lambda error: self.count_retry(operation, error),
                lambda error: is_unknown_position(error, position),
            )
        except (ClientError, BotoCoreError) as error:
            # `from None`: the text quotes the service, and a second traceback would hide it.
            raise self.explained(error, operation, shard_id, position) from None

    def call_once(
        self, operation: str, call: Callable[[Any], _T], shard_id: str | None = None
    ) -> _T:
        """Make ``call`` with boto3's client, in one attempt. Raises botocore's errors."""
        return self._attempt(operation, shard_id, call, call_client(self._place), None)

    def when_created(
        self, describe: Callable[[], _Described], kind: str, gone: type[SparkinesisError]
    ) -> _Described:
        """Return what ``describe`` returns once it is no longer CREATING: wait for `CREATION`.

        kind: the word for what is described. Raises what ``describe`` raises, ``gone`` if it is
        being deleted, and `ServiceError` if its creation does not end in time.
        """
        clock, next_line = self._retry.clock, 0.0
        since = clock()
        while True:
            found = describe()
            waited = clock() - since
            if found.status == "DELETING":
                raise gone(
                    f"{self._place} is being deleted (DELETING). Name another {kind}, or make "
                    "this one anew once it is gone."
                )
            if found.status != "CREATING":
                if next_line:
                    _log.warning("%s is %s after %.0f s.", self._place, found.status, waited)
                return found
            if waited >= CREATION:
                raise ServiceError(
                    f"{self._place} is still being created (CREATING) after {waited:.0f} s. Start "
                    "again once it is ACTIVE."
                )
            if waited >= next_line:
                _log.warning(
                    "%s is being created (CREATING), for %.0f s so far; waiting for up to %.0f s.",
                    self._place,
                    waited,
                    CREATION,
                )
                next_line = waited + _LOG_EVERY
            self.wait(_ASK_EVERY)

    def _attempt(
        self,
        operation: str,
        shard_id: str | None,
        call: Callable[[Any], _T],
        client: Any,
        sent: SentCall | None,
    ) -> _T:
        """Make one attempt, `understood`; if there are metrics, measured and traced.

        It makes no functions of its own: thousands of idle shards are asked by one call each.
        """
        if self.metrics is OFF:
            return understood(call, client)
        clock = self._retry.clock
        began = clock() - (0.0 if sent is None else sent.seconds)
        try:
            with self._tracing.call(operation, self._subject, shard_id):
                found = understood(call, client)
        except Exception as error:
            self._observe(operation, shard_id, result_of(error, operation), clock() - began)
            raise
        self._observe(operation, shard_id, OK, clock() - began)
        return found

    def _observe(self, operation: str, shard_id: str | None, result: str, seconds: float) -> None:
        shard = shard_id or ""
        self.metrics.observe(CALL_DURATION, (self._subject, shard, operation, result), seconds)
        if result == "expired":
            self.metrics.add(ITERATORS_EXPIRED, (self._subject, shard))

    def count_retry(self, operation: str, error: ClientError | BotoCoreError) -> None:
        """Measure that a call is made again after an error."""
        if self.metrics is not OFF:
            result = result_of(error, operation)
            reason = "doubted" if result == FAILED else result
            self.metrics.add(CALL_RETRIES, (self._subject, operation, reason))


class StreamCaller(Caller):
    """Makes calls on one stream. For any thread.

    Errors: `StreamNotFoundError`, `AccessDeniedError`, `DataLossError` (the shard or the position
    no longer exists), `ExpiredIteratorError`, and `ServiceError` for all other failures, once the
    retries are used up.
    """

    def __init__(self, address: StreamAddress, retry: Backoff, metrics: Metrics) -> None:
        super().__init__(address, address.name, retry, metrics)
        self.address = address

    def explained(self, error: CallError, operation: str, *about: Any) -> SparkinesisError:
        return explain(error, operation, self.address, *about)


def _within(budget: AbstractContextManager[object], call: Callable[[], _T]) -> _T:
    with budget:
        return call()


MOST_CLIENTS = 4096
"""The most clients to keep. An application may read each of its streams by a role of its own; a
client that is not kept assumes its role anew, by each call."""

MOST_CONNECTIONS = 256
"""The most idle connections to keep: each shard has a call or a subscription of its own."""

_opening = threading.Lock()


def _renew_lock() -> None:
    global _opening  # noqa: PLW0603 - a lock that is held during a fork is never released
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def call_client(address: CallTarget) -> Any:
    """Return the client for all calls, SubscribeToShard included.

    There is one client, with one pool of connections, per process, region, endpoint and role. The
    threads of many shards ask for it at once: one of them opens it, and the others wait.
    """
    key = address.region, address.endpoint, address.credentials
    client = _clients.get(key)
    if client is None:
        with _opening:
            client = _clients.get(key)
            if client is None:
                client = _open(*key)
                while len(_clients) >= MOST_CLIENTS:
                    del _clients[next(iter(_clients))]
                _clients[key] = client
    return client


_clients: dict[tuple[str | None, str | None, CredentialSource], Any] = {}
"""The clients of this process, the oldest first. Threads read it without a lock, so that none waits
for its client while that of another stream's role is opened."""


def _open(region: str | None, endpoint: str | None, credentials: CredentialSource) -> Any:
    return DirectClient(
        functools.partial(open_session, credentials, region, endpoint),
        functools.partial(_botocores, endpoint),
        DECODERS,
        bounds=BOUNDS,
        streamed={"SubscribeToShard"},
        in_cbor=IN_CBOR,
        most_idle=MOST_CONNECTIONS,
        read_timeout=READ_TIMEOUT,
        usual=usual_settings("kinesis", region, endpoint, credentials),
    )


def _botocores(endpoint: str | None, session: Any) -> Any:
    client = client_of(
        session, "kinesis", endpoint, max_pool_connections=MOST_CONNECTIONS, bounds=BOUNDS
    )
    take_from_parser(client)
    return client
