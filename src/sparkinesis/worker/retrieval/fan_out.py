"""Retrieval by enhanced fan-out: each shard's records are pushed to a registered consumer."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from msgspec.structs import replace

from sparkinesis.errors import (
    AccessDeniedError,
    ConsumerLimitError,
    ConsumerNotFoundError,
    SparkinesisError,
)
from sparkinesis.events import ConsumerDeregistered, PollingInstead
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.retry import Backoff
from sparkinesis.stream.calls.shared_calls import at_once
from sparkinesis.stream.fan_out.cursor import RETRY as SUBSCRIPTION_RETRY
from sparkinesis.stream.fan_out.cursor import FanOutCursor
from sparkinesis.stream.fan_out.interruption import BETWEEN_SUBSCRIPTIONS
from sparkinesis.stream.fan_out.registered_consumers import RETRY as REGISTRATION_RETRY
from sparkinesis.stream.fan_out.registered_consumers import (
    ConsumerFinder,
    deregister_consumer,
    register_consumer,
)
from sparkinesis.stream.page import Fetched
from sparkinesis.stream.timing import Timing
from sparkinesis.worker.options import AheadLimits, FanOutOptions
from sparkinesis.worker.reporting.teller import TELL_NOBODY, EventPublisher
from sparkinesis.worker.retrieval.ahead import FetchAhead, FetchRequest, PageSource, RetrievalMode
from sparkinesis.worker.retrieval.memory_estimates import response_memory
from sparkinesis.worker.retrieval.polling import Polling

_log = logging.getLogger(__name__)

_DEREGISTER_WITHIN = 3.0
"""Seconds that a worker, whose shards are all released, stays to deregister the consumer."""


class _ShutDownError(Exception):
    """A shutdown was requested while the worker waited for a registration."""


class FanOut(RetrievalMode):
    """Subscribes to each shard, as one consumer for all workers of the application.

    The consumer is registered in `prepare`, before any lease is taken, so that a refusal does not
    interrupt other workers. If somebody deregisters the consumer later, the next shard that gets
    the error registers it again, unless the options give its ARN.
    """

    def __init__(
        self,
        application: str,
        client: StreamClient,
        options: FanOutOptions,
        polling: Polling,
        *,
        limits: AheadLimits,
        timing: Timing,
        rng: random.Random,
        subscription_clock: Callable[[], float],
        pace: Callable[[str], None] = at_once,
        tell: EventPublisher = TELL_NOBODY,
    ) -> None:
        """``polling``: the fallback, where the options allow one.

        subscription_clock: measures the age of subscriptions; must run as the service's clock does.
        pace: waits until this process may call an operation that the account may call rarely.
        """
        self._pace = pace
        self._tell = tell
        self._application = application
        self._client = client
        self._options = options
        self._polling = polling
        self._limits = limits
        self._clock = timing.clock
        self._subscription_retry = replace(
            timing.of(SUBSCRIPTION_RETRY, rng), clock=subscription_clock
        )
        self._registration_retry = replace(timing.of(REGISTRATION_RETRY, rng), sleep=self._sleep)
        self._deregistration_retry = timing.of(Backoff(give_up_after=_DEREGISTER_WITHIN), rng)
        self._find_consumer = ConsumerFinder(client, timing.clock)
        self._wait: Callable[[float], bool] = threading.Event().wait
        self._lock = threading.Lock()
        self._consumer_arn = options.consumer_arn
        """The consumer's ARN; None while no consumer is registered."""
        self._is_refused = False
        """True once registering was refused: shards are polled instead."""

    def prepare(self, wait: Callable[[float], bool]) -> None:
        """Register the consumer, and wait until it is active.

        Raises `StreamNotFoundError` and `ServiceError`; also `ConsumerLimitError` and
        `AccessDeniedError`, unless ``fall_back_to_polling`` is set.
        """
        self._wait = wait
        try:
            self._consumer()
        except _ShutDownError:
            _log.info("Stopped waiting for the consumer %s, as the worker shuts down.", self._name)

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
                retry=self._subscription_retry,
            )
            return SubscribedShard(cursor, lambda: self._forget(consumer_arn))

        next_after = 0.0 if self._is_refused else BETWEEN_SUBSCRIPTIONS
        return FetchAhead(request, open_source, self._limits, self._clock, next_after).start()

    def finish(self, is_last: Callable[[], bool]) -> None:
        """Deregister the consumer if the options ask for it and no other worker is running."""
        consumer_arn = self._consumer_arn
        if not self._options.deregister or consumer_arn is None or not is_last():
            return
        failed = None
        try:
            deregister_consumer(self._client, consumer_arn, self._deregistration_retry)
        except SparkinesisError as error:
            failed = str(error)
        self._tell(ConsumerDeregistered(consumer_arn, failed))

    @property
    def _name(self) -> str:
        return self._options.consumer_name or self._application

    def _consumer(self) -> str | None:
        """Return the consumer's ARN, registering the consumer if need be; None: poll instead."""
        with self._lock:
            if self._consumer_arn is None and not self._is_refused:
                try:
                    self._consumer_arn = register_consumer(
                        self._client, self._name, self._registration_retry, self._pace
                    )
                except (ConsumerLimitError, AccessDeniedError) as error:
                    if not self._options.fall_back_to_polling:
                        raise
                    self._is_refused = True
                    address = self._client.address
                    self._tell(PollingInstead(address.name, str(address), self._name, str(error)))
            return self._consumer_arn

    def _forget(self, consumer_arn: str) -> None:
        """Have the consumer registered again, unless that has happened since."""
        with self._lock:
            if self._consumer_arn == consumer_arn != self._options.consumer_arn:
                self._consumer_arn = None

    def _sleep(self, seconds: float) -> None:
        if self._wait(seconds):
            raise _ShutDownError


_LARGEST_EVENT = response_memory(2_097_152, 10_000)
_SMALLEST_EVENT = 65_536
"""Bytes: the least memory that is reserved for the next event, which may have no records."""


class SubscribedShard:
    """The pages of a subscribed shard, each an event. For one thread at a time, except `stop`.

    Nothing is read from the socket between calls of `fetch`. The service chooses the size of an
    event, and an event cannot be divided; its size is estimated by that of the event before.
    """

    is_divisible = False

    def __init__(self, cursor: FanOutCursor, on_gone: Callable[[], None]) -> None:
        self._cursor = cursor
        self._on_gone = on_gone
        self.wanted = _LARGEST_EVENT

    @property
    def at_end(self) -> bool:
        return self._cursor.at_end

    def due_in(self, wake: Callable[[], None]) -> float:
        return self._cursor.due_in(wake)

    def fetch(self, room: int) -> Fetched | None:
        del room
        try:
            fetched = self._cursor.step()
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
