"""A cursor that reads a shard by enhanced fan-out, over subscriptions that it renews itself."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from typing import TypeAlias

from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from sparkinesis.errors import (
    AccessDeniedError,
    ConsumerNotFoundError,
    CorruptEventStreamError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.metrics.catalogue import SUBSCRIPTIONS_ENDED
from sparkinesis.metrics.metrics import OFF
from sparkinesis.stream.calls.answers.decoding import data_size
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.direct.http_answer import is_readable
from sparkinesis.stream.calls.explain import explain, is_unknown_position, words
from sparkinesis.stream.calls.retry import Backoff, error_code
from sparkinesis.stream.calls.subscription import OPERATION, ReceivedEvent, Subscription
from sparkinesis.stream.fan_out.consumers import ConsumerFinder, RegisteredConsumer
from sparkinesis.stream.fan_out.interruption import (
    CLOSED,
    NO_FAILURES,
    RENEWED,
    SHARD_ENDED,
    Cause,
    cause_of,
    ending_of,
    pause_after,
)
from sparkinesis.stream.fan_out.socket_watch import socket_watch
from sparkinesis.stream.page import Fetched, Page, ends_shard, is_empty_at_tip, says_more_follows
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Position, Sentinel
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL
from sparkinesis.stream.reading.early_records import EarlyRecordFilter
from sparkinesis.stream.reading.shard_end import EndCheck

Failure: TypeAlias = ClientError | BotoCoreError | CorruptEventStreamError

_log = logging.getLogger(__name__)

RETRY = Backoff(base=0.5, cap=30.0)
"""The backoff after subscriptions that fail."""

RENEWAL = (240.0, 290.0)
"""The age in seconds at which a subscription is renewed, drawn evenly for each subscription. The
service ends them at 300; the draw spreads the renewals of many shards."""

SILENCE = 30.0
"""Seconds without bytes after which a connection counts as broken, as a read's time-out says. The
service sends events without records every few seconds."""


def to_fetched(received: ReceivedEvent, begun_ms: int, age: float) -> Fetched:
    """Convert an event to the form of a GetRecords answer.

    begun_ms: the service's clock (epoch ms) at the start of the subscription, ``age`` seconds ago.
    """
    event = received.event
    page = Page(event.records, None, event.millis_behind_latest, event.child_shards)
    return Fetched(page, data_size(received.size, page), begun_ms + int(age * 1000))


_MOST_EMPTY_PAGES = 10
"""The most empty pages to read past when GetRecords is asked whether a shard has ended."""
_BETWEEN_PAGES = 0.5
"""Seconds between two of these calls: a shard accepts five a second, retries included."""


class FanOutCursor:
    """Fetches a shard's events in order, each once, across subscriptions that break.

    The counterpart of `ShardCursor`. One thread at a time calls `due_in` and `step`, which hold no
    thread while nothing arrives; any thread may call `stop`. Nothing is read from the socket
    between two calls.

    position: TRIM_HORIZON, an `AtTimestamp`, or an `AfterRecord`, with ``inclusive`` as in
    `ShardCursor`. LATEST raises ValueError: if the subscription broke before its first event, the
    records in between would be lost. Use an `AtTimestamp` of the service's clock instead.
    find_consumer: finds the consumer by its ARN; cursors of a stream share one `ConsumerFinder`.
    retry: the backoff after subscriptions that fail, with its clock and randomness.
    """

    def __init__(
        self,
        client: StreamClient,
        consumer_arn: str,
        shard_id: str,
        position: Position,
        *,
        inclusive: bool = False,
        find_consumer: Callable[[str], RegisteredConsumer | None] | None = None,
        retry: Backoff = RETRY,
    ) -> None:
        if not isinstance(position, AfterRecord | AtTimestamp | Sentinel) or position in {
            Sentinel.LATEST,
            Sentinel.SHARD_END,
        }:
            raise ValueError(f"a subscription to shard {shard_id} cannot start at {position}")
        self.shard_id = shard_id
        self.at_end = False
        """True once the shard is closed and all its records have been fetched."""
        self._client = client
        self._consumer_arn = consumer_arn
        self._position = position
        self._inclusive = inclusive
        self._early_filter = EarlyRecordFilter(
            client.address, shard_id, position, inclusive=inclusive
        )
        self._ends = EndCheck(client, shard_id)
        self._find_consumer = find_consumer or ConsumerFinder(client, retry.clock)
        self._clock = retry.clock
        self._retry = retry
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._subscription: Subscription | None = None
        self._subscribed_at: float | None = None
        self._renew_at: float
        """The time at which the subscription is renewed."""
        self._resume_at = float("-inf")
        """The time from which on the next subscription may be made."""
        self._watched: int | None = None
        """The descriptor of the subscription's socket, if it is watched."""
        self._quiet_since: float | None = None
        """The time since which `due_in` has found no bytes; None: there were some."""
        self._failures = NO_FAILURES
        self._has_doubted = False
        """The service has once refused the position, since the last event."""
        self._may_be_over = False
        """The last event may have been the shard's last one, without saying so."""

    def due_in(self, wake: Callable[[], None]) -> float:
        """Return the seconds until `step` has something to do; 0: now.

        wake: is called, once, if an event arrives before.
        """
        now = self._clock()
        subscription = self._subscription
        if subscription is None:
            return max(0.0, self._resume_at - now)
        if _has_data(subscription):
            return 0.0
        if self._quiet_since is None:
            self._quiet_since = now
        left = min(self._renew_at, self._quiet_since + SILENCE) - now
        if left > 0:
            with self._lock:
                if not self._stopped.is_set():
                    self._watched = subscription.fileno()
                    socket_watch().when_readable(self._watched, wake)
        return left

    def step(self) -> Fetched | None:
        """Subscribe, or else wait for the next event and return it.

        Returns None if there is none yet, as after an error: `due_in` says when to go on. An event
        may have no records: the service sends one every few seconds. Do not call this once
        `at_end` is true.

        Raises permanent errors (`AccessDeniedError`, `StreamNotFoundError`, `DataLossError`,
        `ConsumerNotFoundError`), and `ServiceError` after ``retry.give_up_after`` seconds of
        failures without an event.
        """
        subscription = self._subscription
        try:
            if subscription is None or self._clock() >= self._renew_at:
                self._drop(RENEWED)
                subscription = None
                self._subscribe()
                return None
            if self._is_silent(subscription):
                raise ReadTimeoutError(endpoint_url=str(self._client.address))
            received = subscription.next_event()
        except (ClientError, BotoCoreError, CorruptEventStreamError) as error:
            self._pause_or_raise(error, had_begun=subscription is not None)
            return None
        self._quiet_since = None
        if received is not None:
            fetched = self._accept(received, subscription.service_time_ms)
            self._may_be_over = not self.at_end and not says_more_follows(received.event)
            if fetched.page.records or not self._may_be_over:
                return fetched
            return self._last_page() or fetched
        if self._may_be_over and (last := self._last_page()) is not None:
            return last
        self._pause_or_raise(None, had_begun=True)
        return None

    def _is_silent(self, subscription: Subscription) -> bool:
        """Return True if no bytes have arrived for so long that the connection must be broken."""
        since = self._quiet_since
        return since is not None and (
            self._clock() >= since + SILENCE and not _has_data(subscription)
        )

    def stop(self) -> None:
        """End the subscription and a waiting `step`. For any thread; returns at once.

        A SubscribeToShard call in progress is not interrupted; its subscription is closed then.
        """
        with self._lock:
            is_open = self._subscription is not None and not self._stopped.is_set()
            self._stopped.set()
            self._watch_no_longer()
            if self._subscription is not None:
                self._subscription.close()
        if is_open:
            self._count_end(CLOSED)

    def _subscribe(self) -> None:
        subscription = self._client.subscribe(
            self._consumer_arn, self.shard_id, self._position, inclusive=self._inclusive
        )
        self._subscribed_at = self._clock()
        self._quiet_since = None
        self._renew_at = self._subscribed_at + self._retry.uniform(*RENEWAL)
        with self._lock:
            self._subscription = subscription
            is_late = self._stopped.is_set()
            if is_late:
                subscription.close()
        if is_late:
            self._count_end(CLOSED)

    def _drop(self, ending: str) -> None:
        with self._lock:
            self._watch_no_longer()
            # A subscription that `stop` has closed is counted there.
            is_open = self._subscription is not None and not self._stopped.is_set()
            if self._subscription is not None:
                self._subscription.close()
                self._subscription = None
        if is_open:
            self._count_end(ending)

    def _count_end(self, ending: str) -> None:
        if self._client.metrics is not OFF:
            labels = (self._client.address.name, self.shard_id, ending)
            self._client.metrics.add(SUBSCRIPTIONS_ENDED, labels)

    def _watch_no_longer(self) -> None:
        if self._watched is not None:
            socket_watch().forget(self._watched)
            self._watched = None

    def _accept(self, received: ReceivedEvent, begun_ms: int) -> Fetched:
        event = received.event
        self._failures = NO_FAILURES
        self._has_doubted = False
        self.at_end = ends_shard(event)
        number = event.continuation_sequence_number
        if number is None and event.records:
            number = event.records[-1].sequence_number
        if number is not None:
            self._position = AfterRecord(number)
            self._inclusive = False
        if self.at_end:
            self._drop(SHARD_ENDED)
        assert self._subscribed_at is not None
        fetched = to_fetched(received, begun_ms, self._clock() - self._subscribed_at)
        self._client.count_fetched(self.shard_id, fetched)
        return self._early_filter.apply(fetched)

    def _last_page(self) -> Fetched | None:
        """Return the rest of the shard (GetRecords) if the shard ends there; else None.

        GetRecords returns a next iterator if the shard continues, or if the end comes on a later
        page: after empty ones, or after records from before the position, which other servers
        return. An answer without one is checked (`EndCheck`). If the call is not permitted, the
        shard is assumed to continue.
        """
        early_filter = copy.copy(self._early_filter)  # a page that is not the last is not returned
        try:
            iterator: str | None = self._client.shard_iterator(
                self.shard_id, self._position, inclusive=self._inclusive
            )
            for _ in range(_MOST_EMPTY_PAGES):
                assert iterator is not None
                found = self._client.get_records(self.shard_id, iterator, MAX_RECORDS_PER_CALL)
                iterator = found.page.next_shard_iterator
                fetched = early_filter.apply(found)
                is_over = iterator is None or fetched.page.records or is_empty_at_tip(found.page)
                if is_over or self._stopped.is_set():
                    break
                self._retry.sleep(_BETWEEN_PAGES)
        except AccessDeniedError as error:
            _log.info(
                "Cannot check whether shard %s of %s has ended: %s",
                self.shard_id,
                self._client.address,
                error,
            )
            return None
        if not self._ends.is_end(found, self._position):
            return None
        self.at_end = True
        self._drop(SHARD_ENDED)
        return fetched

    def _pause_or_raise(self, error: Failure | None, *, had_begun: bool) -> None:
        """Note when the next SubscribeToShard is due; raise permanent errors."""
        cause = cause_of(error, had_begun=had_begun)
        if error is not None and is_unknown_position(error, self._position):
            cause = Cause.FINAL if self._has_doubted else Cause.DOUBTED
            self._has_doubted = True
        ending = ending_of(cause, had_begun=had_begun)
        self._drop(ending)
        if not had_begun:
            self._count_end(ending)
        if self._stopped.is_set():
            return
        now = self._clock()
        age = None if self._subscribed_at is None else now - self._subscribed_at
        pause = pause_after(cause, self._failures, age, self._retry)
        self._failures = self._failures.with_failure(cause, now)
        if cause is Cause.FINAL or self._failures.duration(now + pause) > self._retry.give_up_after:
            raise self._explained(error) from None
        if not had_begun and isinstance(error, ClientError | BotoCoreError):
            self._client.count_retry(OPERATION, error)
        if pause:
            _log.log(
                # Unless a lease has just moved, another application uses the same consumer.
                logging.WARNING if cause is Cause.TAKEN_OVER else logging.INFO,
                "Subscribing to shard %s of %s again in %.1f seconds: %s%s",
                self.shard_id,
                self._client.address,
                pause,
                cause.value,
                "." if error is None else f" ({words(error)}).",
            )
            self._resume_at = now + pause

    def _explained(self, error: Failure | None) -> SparkinesisError:
        address, shard_id = self._client.address, self.shard_id
        if error is None or isinstance(error, CorruptEventStreamError):
            return ServiceError(
                f"No event arrived from shard {shard_id} of {address} at position {self._position} "
                f"for {self._retry.give_up_after:.0f} seconds of repeated subscriptions: "
                f"{error or 'each subscription ended at once.'} If you use a proxy or your own "
                "endpoint, check that it passes the service's answers on at once and unchanged."
            )
        if error_code(error) == "ResourceNotFoundException":
            # The shard, the consumer or the stream may be missing; this raises if the stream is.
            consumer = self._find_consumer(self._consumer_arn)
            if consumer is None or not consumer.is_active:
                return ConsumerNotFoundError(
                    f"Cannot read shard {shard_id} of {address} at position {self._position}: the "
                    f"consumer {self._consumer_arn} "
                    f"{'is not registered' if consumer is None else f'is {consumer.status}'}. "
                    "Most likely it was deregistered. No record is lost: a restart registers the "
                    f"consumer again and resumes there. The service said: {words(error)}"
                )
        return explain(error, OPERATION, address, shard_id, self._position)


def _has_data(subscription: Subscription) -> bool:
    """Return True if a part of the next event, or the end, can be read at once."""
    return subscription.has_data or is_readable(subscription.fileno())
