"""Retrieval by enhanced fan-out: each shard's records are pushed to a registered consumer."""

# A stream has one consumer for the application, and a shard one subscription of that:
#
# - The number of a stream's consumers is limited. The application's is registered before any lease
#   is taken, so that a refusal interrupts no other worker.
# - Of a consumer and a shard, one subscription lives, and for five seconds after it began another
#   is refused (`FetchAhead.next_from`). A worker that loses a lease closes its subscription at once
#   (`ShardFetching.end`): it would disturb the next owner's.
# - When somebody deregisters the consumer, all shards of a worker meet the error together. Each
#   asked for the consumer by itself once, and the account's 20 calls a second were used up for all
#   that it runs. So the cursors share one look (`ConsumerFinder`), and the first shard registers.
# - The service chooses how large an event is, up to the memory of `_LARGEST_EVENT`, and an event
#   cannot be divided. Nothing is read from a socket before there is memory for the next one.

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
from sparkinesis.worker.aws_options import FanOutOptions
from sparkinesis.worker.options import AheadLimits
from sparkinesis.worker.reporting.event_log import DISCARD_EVENTS, EventPublisher
from sparkinesis.worker.retrieval.ahead import FetchAhead, FetchRequest, PageSource, RetrievalMode
from sparkinesis.worker.retrieval.memory import response_memory
from sparkinesis.worker.retrieval.polling import Polling

_log = logging.getLogger(__name__)

_DEREGISTER_WITHIN = 3.0
"""Seconds that a worker, whose shards are all released, stays to deregister the consumer. With the
usual patience, a service that fails would hold up the worker's end for five minutes."""


class _ShutDownError(Exception):
    """A shutdown was requested while the worker waited for a registration."""


class ConsumerRegistration:
    """The registered consumer of one stream, which all workers of the application share.

    For any thread. It is registered in `prepare`. If somebody deregisters it later, the next shard
    that gets the error has it registered again (`forget`), unless the options give its ARN.
    """

    def __init__(
        self,
        application: str,
        client: StreamClient,
        options: FanOutOptions,
        *,
        timing: Timing,
        rng: random.Random,
        pace: Callable[[str], None] = at_once,
        publish: EventPublisher = DISCARD_EVENTS,
    ) -> None:
        """``pace``: waits until this process may make a call that is rare for the account."""
        self._name = options.consumer_name or application
        self._client = client
        self._options = options
        self._pace = pace
        self._publish = publish
        self._retry = replace(timing.of(REGISTRATION_RETRY, rng), sleep=self._sleep)
        self._deregistration_retry = timing.of(Backoff(give_up_after=_DEREGISTER_WITHIN), rng)
        self._wait: Callable[[float], bool] = threading.Event().wait
        self._lock = threading.Lock()
        self._arn = options.consumer_arn
        """The consumer's ARN; None while no consumer is registered."""
        self.is_refused = False
        """True once registering was refused: shards are polled instead."""

    def prepare(self, wait: Callable[[float], bool]) -> None:
        """Register the consumer, and wait until it is active; see `FanOut.prepare`."""
        self._wait = wait
        try:
            self.arn()
        except _ShutDownError:
            _log.info("Stopped waiting for the consumer %s, as the worker shuts down.", self._name)

    def arn(self) -> str | None:
        """Return the consumer's ARN, registering the consumer if need be; None: poll instead."""
        with self._lock:
            if self._arn is None and not self.is_refused:
                try:
                    self._arn = register_consumer(self._client, self._name, self._retry, self._pace)
                except (ConsumerLimitError, AccessDeniedError) as error:
                    if not self._options.fall_back_to_polling:
                        raise
                    self.is_refused = True
                    stream = self._client.address
                    self._publish(PollingInstead(stream.name, str(stream), self._name, str(error)))
            return self._arn

    def forget(self, arn: str) -> None:
        """Have the consumer registered again, unless that has happened since."""
        with self._lock:
            if self._arn == arn != self._options.consumer_arn:
                self._arn = None

    def deregister(self, is_last: Callable[[], bool]) -> None:
        """Deregister the consumer if the options ask for it and no other worker is running."""
        arn = self._arn
        if not self._options.deregister or arn is None or not is_last():
            return
        failed = None
        try:
            deregister_consumer(self._client, arn, self._deregistration_retry)
        except SparkinesisError as error:
            failed = str(error)
        self._publish(ConsumerDeregistered(arn, failed))

    def _sleep(self, seconds: float) -> None:
        if self._wait(seconds):
            raise _ShutDownError


class FanOut(RetrievalMode):
    """Subscribes to each shard, as one consumer for all workers of the application."""

    def __init__(
        self,
        consumer: ConsumerRegistration,
        client: StreamClient,
        polling: Polling,
        *,
        limits: AheadLimits,
        timing: Timing,
        rng: random.Random,
        subscription_clock: Callable[[], float],
    ) -> None:
        """``polling``: the fallback, where the options allow one.

        subscription_clock: measures the age of subscriptions; must run as the service's clock does.
        """
        self._consumer = consumer
        self._client = client
        self._polling = polling
        self._limits = limits
        self._clock = timing.clock
        self._retry = replace(timing.of(SUBSCRIPTION_RETRY, rng), clock=subscription_clock)
        self._find_consumer = ConsumerFinder(client, timing.clock)

    def prepare(self, wait: Callable[[float], bool]) -> None:
        """Register the consumer, and wait until it is active.

        Raises `StreamNotFoundError` and `ServiceError`; also `ConsumerLimitError` and
        `AccessDeniedError`, unless ``fall_back_to_polling`` is set.
        """
        self._consumer.prepare(wait)

    def open(self, request: FetchRequest) -> FetchAhead:
        def open_source() -> PageSource:
            consumer_arn = self._consumer.arn()
            if consumer_arn is None:
                return self._polling.source(request)
            cursor = FanOutCursor(
                self._client,
                consumer_arn,
                request.shard_id,
                request.start,
                inclusive=request.inclusive,
                find_consumer=self._find_consumer,
                retry=self._retry,
            )
            return SubscribedShard(cursor, lambda: self._consumer.forget(consumer_arn))

        next_after = 0.0 if self._consumer.is_refused else BETWEEN_SUBSCRIPTIONS
        return FetchAhead(request, open_source, self._limits, self._clock, next_after).start()

    def finish(self, is_last: Callable[[], bool]) -> None:
        self._consumer.deregister(is_last)


_LARGEST_EVENT = response_memory(2_097_152, 10_000)
_SMALLEST_EVENT = 65_536
"""Bytes: the least memory that is reserved for the next event, which may have no records."""


class SubscribedShard:
    """The pages of a subscribed shard, each an event. For one thread at a time, except `stop`.

    The size of an event is estimated by that of the event before.
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
