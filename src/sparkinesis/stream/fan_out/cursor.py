"""A place in a shard from which enhanced fan-out goes on: a subscription that renews itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import (
    AccessDeniedError,
    ConsumerNotFoundError,
    CorruptEventStreamError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.stream.calls.client import Fetched, StreamClient
from sparkinesis.stream.calls.explain import explain, words
from sparkinesis.stream.calls.retry import Retry, error_code
from sparkinesis.stream.calls.subscription import OPERATION, ReceivedEvent, Subscription
from sparkinesis.stream.calls.transport import data_size
from sparkinesis.stream.fan_out.consumers import Consumer, ConsumerFinder
from sparkinesis.stream.fan_out.interruption import NO_FAILURES, Cause, cause_of, pause_after
from sparkinesis.stream.page import Event, Page, is_empty_at_tip
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Position, Sentinel
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL
from sparkinesis.stream.reading.early_records import EarlyRecordFilter

Failure: TypeAlias = ClientError | BotoCoreError | CorruptEventStreamError

_log = logging.getLogger(__name__)

RETRY = Retry(base=0.5, cap=30.0)
"""The pauses between subscriptions that fail."""

RENEWAL = (240.0, 290.0)
"""The age in seconds at which a subscription is renewed, drawn evenly for each: before the service
ends it at 300, and not those of all shards at once."""


def to_fetched(received: ReceivedEvent, begun_ms: int, age: float) -> Fetched:
    """An event as what GetRecords gives.

    begun_ms: the service's clock (epoch ms) when the subscription began, ``age`` seconds ago.
    """
    event = received.event
    page = Page(event.records, None, event.millis_behind_latest, event.child_shards)
    return Fetched(page, data_size(received.size, page), begun_ms + int(age * 1000))


def ends_shard(event: Event) -> bool:
    """Whether nothing follows this event in its shard, which is closed.

    The service names the shards that follow with the last event, which has no continuation number
    then. Some servers name them with every event of a closed shard: of those, the last one has no
    records.
    """
    is_last = event.continuation_sequence_number is None or is_empty_at_tip(event)
    return bool(event.child_shards) and is_last


def says_more_follows(event: Event) -> bool:
    """Whether an event that ends no shard says so; else it may be the last one of a closed shard.

    Of a server that does not name the shards that follow.
    """
    return event.continuation_sequence_number is not None or bool(event.millis_behind_latest)


class FanOutCursor:
    """Fetches a shard's events one after the other, each once, whatever happens to subscriptions.

    The counterpart of `ShardCursor`. `fetch` is for one thread at a time, `stop` for any. Between
    two calls of `fetch` nothing is read from the socket.

    ``position`` is TRIM_HORIZON, an `AtTimestamp`, or an `AfterRecord`, with ``inclusive`` as in
    `ShardCursor`. Not LATEST (ValueError): what arrives before the first event is lost when the
    subscription breaks before it; an `AtTimestamp` of the service's clock is the same without that.

    find_consumer: finds the consumer by its ARN; shared by all cursors of a stream
    (see `ConsumerFinder`).
    retry: the pauses between subscriptions that fail, with their clock and randomness.
    wait: waits so many seconds, or until the event is set; used in place of ``retry.sleep``.
    """

    def __init__(
        self,
        client: StreamClient,
        consumer_arn: str,
        shard_id: str,
        position: Position,
        *,
        inclusive: bool = False,
        find_consumer: Callable[[str], Consumer | None] | None = None,
        retry: Retry = RETRY,
        wait: Callable[[threading.Event, float], object] = lambda event, s: event.wait(s),
    ) -> None:
        if not isinstance(position, AfterRecord | AtTimestamp | Sentinel) or position in {
            Sentinel.LATEST,
            Sentinel.SHARD_END,
        }:
            raise ValueError(f"a subscription to shard {shard_id} cannot begin at {position}")
        self.shard_id = shard_id
        self.at_end = False
        """True once the shard is closed and every record of it was fetched."""
        self._client = client
        self._consumer_arn = consumer_arn
        self._position = position
        self._inclusive = inclusive
        self._early_filter = EarlyRecordFilter(
            client.address, shard_id, position, inclusive=inclusive
        )
        self._find_consumer = find_consumer or ConsumerFinder(client, retry.clock)
        self._clock = retry.clock
        self._wait = wait
        self._retry = retry
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._subscribed_at: float | None = None
        self._renew_at = 0.0
        self._failures = NO_FAILURES
        self._may_be_over = False
        """The shard may have ended with the last event, which did not say so."""

    def fetch(self, limit: int = MAX_RECORDS_PER_CALL) -> Fetched | None:  # noqa: ARG002
        """The next event, waiting for it; None once the cursor was stopped. Not when `at_end`.

        It may have no records: the service sends one every few seconds. ``limit`` is not used: an
        event holds what the service puts into it.

        Raises what will not pass (`AccessDeniedError`, `StreamNotFoundError`, `DataLossError`,
        `ConsumerNotFoundError`), and `ServiceError` when no event came for
        ``retry.give_up_after`` seconds of failures.
        """
        while not self._stopped.is_set():
            subscription = self._subscription
            try:
                if subscription is not None and self._clock() >= self._renew_at:
                    self._drop()
                    subscription = None
                subscription = subscription or self._subscribe()
                received = subscription.next_event()
            except (ClientError, BotoCoreError, CorruptEventStreamError) as error:
                self._wait_or_raise(error, had_begun=subscription is not None)
                continue
            if received is not None:
                fetched = self._accept(received, subscription.service_time_ms)
                self._may_be_over = not self.at_end and not says_more_follows(received.event)
                if fetched.page.records or not self._may_be_over:
                    return fetched
                return self._last_page() or fetched
            if self._may_be_over and (last := self._last_page()) is not None:
                return last
            self._wait_or_raise(None, had_begun=True)
        return None

    def stop(self) -> None:
        """End a `fetch` that waits, and the subscription. From any thread; returns at once.

        A SubscribeToShard call that is under way is not interrupted; its subscription is closed.
        """
        with self._lock:
            self._stopped.set()
            if self._subscription is not None:
                self._subscription.close()

    def _subscribe(self) -> Subscription:
        subscription = self._client.subscribe(
            self._consumer_arn, self.shard_id, self._position, inclusive=self._inclusive
        )
        self._subscribed_at = self._clock()
        self._renew_at = self._subscribed_at + self._retry.uniform(*RENEWAL)
        with self._lock:
            self._subscription = subscription
            if self._stopped.is_set():
                subscription.close()
        return subscription

    def _drop(self) -> None:
        with self._lock:
            if self._subscription is not None:
                self._subscription.close()
                self._subscription = None

    def _accept(self, received: ReceivedEvent, begun_ms: int) -> Fetched:
        event = received.event
        self._failures = NO_FAILURES
        self.at_end = ends_shard(event)
        number = event.continuation_sequence_number
        if number is None and event.records:
            number = event.records[-1].sequence_number
        if number is not None:
            self._position = AfterRecord(number)
            self._inclusive = False
        if self.at_end:
            self._drop()
        assert self._subscribed_at is not None
        fetched = to_fetched(received, begun_ms, self._clock() - self._subscribed_at)
        return self._early_filter.apply(fetched)

    def _last_page(self) -> Fetched | None:
        """What GetRecords gives from here on if the shard ends with that; else None.

        The answer of GetRecords is clear: a shard that goes on has a next iterator. Where the call
        is not permitted, the shard is taken to go on.
        """
        try:
            iterator = self._client.shard_iterator(
                self.shard_id, self._position, inclusive=self._inclusive
            )
            fetched = self._client.get_records(self.shard_id, iterator, MAX_RECORDS_PER_CALL)
        except AccessDeniedError as error:
            _log.info("Shard %s may have ended, which cannot be seen: %s", self.shard_id, error)
            return None
        if fetched.page.next_shard_iterator is not None:
            return None
        self._failures = NO_FAILURES
        self.at_end = True
        self._drop()
        return self._early_filter.apply(fetched)

    def _wait_or_raise(self, error: Failure | None, *, had_begun: bool) -> None:
        """Wait until it is time to subscribe again; raise what will not pass."""
        self._drop()
        if self._stopped.is_set():
            return
        now = self._clock()
        cause = cause_of(error, had_begun=had_begun)
        age = None if self._subscribed_at is None else now - self._subscribed_at
        pause = pause_after(cause, self._failures, age, self._retry)
        self._failures = self._failures.with_failure(cause, now)
        if cause is Cause.FINAL or self._failures.duration(now + pause) > self._retry.give_up_after:
            raise self._explained(error) from None
        if pause:
            _log.log(
                # Unless a lease has just moved, somebody else reads with the same consumer.
                logging.WARNING if cause is Cause.TAKEN_OVER else logging.INFO,
                "No subscription to shard %s of %s for %.1f seconds: %s%s",
                self.shard_id,
                self._client.address,
                pause,
                cause.value,
                "." if error is None else f" ({_words(error)}).",
            )
            self._wait(self._stopped, pause)

    def _explained(self, error: Failure | None) -> SparkinesisError:
        address, shard_id = self._client.address, self.shard_id
        if error is None or isinstance(error, CorruptEventStreamError):
            return ServiceError(
                f"No event came from shard {shard_id} of {address} at position {self._position} "
                f"for {self._retry.give_up_after:.0f} seconds, however often it was subscribed to: "
                f"{error or 'each subscription was over at once.'} If a proxy or an endpoint of "
                "your own stands between, check that it passes the service's answers on as they "
                "come, unchanged."
            )
        if error_code(error) == "ResourceNotFoundException":
            # Of the shard, the consumer or the stream? Raises if it is the stream.
            consumer = self._find_consumer(self._consumer_arn)
            if consumer is None or not consumer.is_active:
                return ConsumerNotFoundError(
                    f"The consumer {self._consumer_arn} of {address} "
                    f"{'is not registered' if consumer is None else f'is {consumer.status}'}, so "
                    f"that shard {shard_id} cannot be read with it at position {self._position}. "
                    "Did somebody deregister it? Nothing is lost: register it again, as a new "
                    f"start does, and go on from there. The service said: {words(error)}"
                )
        return explain(error, OPERATION, address, shard_id, self._position)


def _words(error: Failure) -> str:
    return str(error) if isinstance(error, CorruptEventStreamError) else words(error)
