"""Retrieval by enhanced fan-out: each shard's records are pushed to a registered consumer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from sparkinesis.errors import (
    AccessDeniedError,
    ConsumerLimitError,
    ConsumerNotFoundError,
    SparkinesisError,
)
from sparkinesis.stream.calls.client import Fetched, StreamClient
from sparkinesis.stream.calls.retry import Retry
from sparkinesis.stream.fan_out.consumers import ConsumerFinder
from sparkinesis.stream.fan_out.cursor import RETRY as SUBSCRIPTION_RETRY
from sparkinesis.stream.fan_out.cursor import FanOutCursor
from sparkinesis.stream.fan_out.interruption import BETWEEN_SUBSCRIPTIONS
from sparkinesis.stream.fan_out.registration import RETRY as REGISTRATION_RETRY
from sparkinesis.stream.fan_out.registration import deregister_consumer, register_consumer
from sparkinesis.worker.options import AheadLimits, FanOutOptions
from sparkinesis.worker.retrieval.ahead import FetchAhead, FetchRequest, PageSource
from sparkinesis.worker.retrieval.memory_estimates import response_memory
from sparkinesis.worker.retrieval.polling import Polling

_log = logging.getLogger(__name__)

_BRIEFLY = 3.0
"""Seconds: a worker that has let go of all shards does not stay for the sake of a consumer."""


class _ShutDownError(Exception):
    """A shutdown was requested while a registration was waited for."""


class FanOut:
    """Subscribes to each shard, as one consumer for all workers of the application.

    The consumer is registered in `prepare`, before any lease is taken: where that is refused,
    nothing is disturbed. One that somebody deregisters later is registered again by the next shard
    that is told so, unless its ARN was given.
    """

    def __init__(
        self,
        application: str,
        client: StreamClient,
        options: FanOutOptions,
        polling: Polling,
        *,
        limits: AheadLimits,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        subscription_clock: Callable[[], float],
        uniform: Callable[[float, float], float],
    ) -> None:
        """``polling``: what to fall back to, if the options say so.

        subscription_clock: tells how old a subscription is, and follows the service's.
        """
        self._application = application
        self._client = client
        self._options = options
        self._polling = polling
        self._limits = limits
        self._clock = clock
        self._subscription_clock = subscription_clock
        self._uniform = uniform
        self._briefly = Retry(give_up_after=_BRIEFLY, clock=clock, sleep=sleep, uniform=uniform)
        self._find_consumer = ConsumerFinder(client, clock)
        self._wait: Callable[[float], bool] = threading.Event().wait
        self._lock = threading.Lock()
        self._consumer_arn = options.consumer_arn
        """None: not registered yet, or not any more."""
        self._is_refused = False
        """Registering was, and so shards are polled."""

    def prepare(self, wait: Callable[[float], bool]) -> None:
        """Register the consumer, and wait until it is active.

        Raises `ConsumerLimitError` and `AccessDeniedError` unless polling is to take over then;
        `StreamNotFoundError` and `ServiceError`.
        """
        self._wait = wait
        try:
            self._consumer()
        except _ShutDownError:
            _log.info("The consumer %s is not waited for any more", self._name)

    def open(self, request: FetchRequest) -> FetchAhead:
        def open_source() -> PageSource:
            consumer_arn = self._consumer()
            if consumer_arn is None:
                return self._polling.source(request)
            cursor = FanOutCursor(
                self._client,
                consumer_arn,
                request.shard_id,
                request.start,
                inclusive=request.inclusive,
                find_consumer=self._find_consumer,
                retry=replace(
                    SUBSCRIPTION_RETRY, clock=self._subscription_clock, uniform=self._uniform
                ),
            )
            return SubscribedShard(cursor, lambda: self._forget(consumer_arn))

        return FetchAhead(
            open_source,
            on_page=request.on_page,
            memory=request.memory,
            limits=self._limits,
            name=f"{self._application}-{request.shard_id}-fetch",
            clock=self._clock,
            next_after=0.0 if self._is_refused else BETWEEN_SUBSCRIPTIONS,
        ).start()

    def finish(self, is_last: Callable[[], bool]) -> None:
        """Deregister the consumer behind the last worker, if the options say so."""
        consumer_arn = self._consumer_arn
        if not self._options.deregister or consumer_arn is None or not is_last():
            return
        try:
            deregister_consumer(self._client, consumer_arn, self._briefly)
            _log.info("Deregistered the consumer %s", consumer_arn)
        except SparkinesisError as error:
            _log.warning("The consumer %s stays registered, and is billed: %s", consumer_arn, error)

    @property
    def _name(self) -> str:
        return self._options.consumer_name or self._application

    def _consumer(self) -> str | None:
        """The consumer's ARN, registered where it is not; None: fall back to polling."""
        with self._lock:
            if self._consumer_arn is None and not self._is_refused:
                try:
                    self._consumer_arn = register_consumer(
                        self._client,
                        self._name,
                        replace(
                            REGISTRATION_RETRY,
                            clock=self._clock,
                            sleep=self._sleep,
                            uniform=self._uniform,
                        ),
                    )
                except (ConsumerLimitError, AccessDeniedError) as error:
                    if not self._options.fall_back_to_polling:
                        raise
                    self._is_refused = True
                    _log.warning(
                        "Records are fetched by polling, as fall_back_to_polling says, until this "
                        "worker is started anew: %s",
                        error,
                    )
            return self._consumer_arn

    def _forget(self, consumer_arn: str) -> None:
        """This consumer is gone; another one may have been registered since."""
        with self._lock:
            if self._consumer_arn == consumer_arn != self._options.consumer_arn:
                self._consumer_arn = None

    def _sleep(self, seconds: float) -> None:
        if self._wait(seconds):
            raise _ShutDownError


_LARGEST_EVENT = response_memory(2_097_152, 10_000)
_SMALLEST_EVENT = 65_536
"""Bytes of memory that are held for an event that has not come, at least: one without records."""


class SubscribedShard:
    """A shard's pages, one event of its subscription each; used by one thread, but for `stop`.

    While no event is asked for, nothing is read from the socket. An event is what the service makes
    it, and cannot be divided; it is taken to be as large as the one before.
    """

    is_divisible = False

    def __init__(self, cursor: FanOutCursor, on_gone: Callable[[], None]) -> None:
        self._cursor = cursor
        self._on_gone = on_gone
        self.wanted = _LARGEST_EVENT

    @property
    def at_end(self) -> bool:
        return self._cursor.at_end

    def wait(self) -> bool:
        return True

    def fetch(self, room: int) -> Fetched | None:
        del room
        try:
            fetched = self._cursor.fetch()
        except ConsumerNotFoundError:
            self._on_gone()
            raise
        if fetched is not None:
            event = response_memory(fetched.size, len(fetched.page.records))
            self.wanted = min(_LARGEST_EVENT, max(_SMALLEST_EVENT, event))
        return fetched

    def keep(self, fetched: Fetched, count: int) -> Fetched:
        del count
        return fetched

    def stop(self) -> None:
        self._cursor.stop()
