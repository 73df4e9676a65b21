"""A cursor that reads a shard by enhanced fan-out, over subscriptions that it renews itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import (
    ConsumerNotFoundError,
    CorruptEventStreamError,
    ServiceError,
    SparkinesisError,
)
from sparkinesis.stream.calls.answers.decoding import data_size
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.explain import explain, is_unknown_position, words
from sparkinesis.stream.calls.retry import Backoff, error_code
from sparkinesis.stream.calls.subscription import OPERATION, ReceivedEvent
from sparkinesis.stream.fan_out.current_subscription import CurrentSubscription
from sparkinesis.stream.fan_out.interruption import (
    RENEWED,
    SHARD_ENDED,
    Cause,
    Recovery,
    cause_of,
    ending_of,
)
from sparkinesis.stream.fan_out.registered_consumers import ConsumerFinder, RegisteredConsumer
from sparkinesis.stream.page import Fetched, Page, ends_shard, says_more_follows
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Position, Sentinel
from sparkinesis.stream.reading.early_records import EarlyRecordFilter
from sparkinesis.stream.reading.shard_end import RestOfShard

Failure: TypeAlias = ClientError | BotoCoreError | CorruptEventStreamError

_log = logging.getLogger(__name__)

RETRY = Backoff(base=0.5, cap=30.0)
"""The backoff after subscriptions that fail."""


def to_fetched(received: ReceivedEvent, begun_ms: int, age: float) -> Fetched:
    """Convert an event to the form of a GetRecords answer.

    begun_ms: the service's clock (epoch ms) at the start of the subscription, ``age`` seconds ago.
    """
    event = received.event
    page = Page(event.records, None, event.millis_behind_latest, event.child_shards)
    return Fetched(page, data_size(received.size, page), begun_ms + int(age * 1000))


# Kinesis ends every subscription after five minutes, and may end it at any event. Across all of
# them each record must come once, and the shard's end must be seen:
#
# - The next subscription starts AFTER the continuation number of the last event, not after its last
#   record: an event without records moves it, too, so that a shard in which nothing arrives is not
#   read again from where it last had a record.
# - Some servers begin earlier than asked, and repeated the shard at each renewal. The filter of
#   early records lasts as long as the cursor and knows what was returned, so that repeats are
#   dropped, and records that changed places are not.
# - Some servers end a closed shard without naming its children. Its last event then looks like any
#   other, and each new subscription ended at once, for ever. So a subscription that ends, or has
#   nothing left to say, where its last event may have been the shard's last is asked about by
#   GetRecords (`RestOfShard`), behind empty pages and early records, too.
# - One refusal of the position made a worker resume at the oldest record. It is believed only if it
#   comes a second time without an event in between (`Recovery.doubt`).
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
        self._find_consumer = find_consumer or ConsumerFinder(client, retry.clock)
        self._retry = retry
        self._current = CurrentSubscription(client, shard_id, retry)
        self._recovery = Recovery(retry)
        self._rest = RestOfShard(client, shard_id, retry.sleep)

    def due_in(self, wake: Callable[[], None]) -> float:
        """Return the seconds until `step` has something to do; 0: now.

        wake: is called, once, if an event arrives before.
        """
        subscription = self._current.subscription
        if subscription is None:
            return max(0.0, self._recovery.resume_at - self._retry.clock())
        return self._current.due_in(subscription, wake)

    def step(self) -> Fetched | None:
        """Subscribe, or else wait for the next event and return it.

        Returns None if there is none yet, as after an error: `due_in` says when to go on. An event
        may have no records: the service sends one every few seconds. Do not call this once
        `at_end` is true.

        Raises permanent errors (`AccessDeniedError`, `StreamNotFoundError`, `DataLossError`,
        `ConsumerNotFoundError`), and `ServiceError` after ``retry.give_up_after`` seconds of
        failures without an event.
        """
        current = self._current
        subscription = current.subscription
        try:
            if subscription is None or current.is_to_be_renewed:
                current.drop(RENEWED)
                subscription = None
                current.begin(
                    self._client.subscribe(
                        self._consumer_arn,
                        self.shard_id,
                        self._position,
                        inclusive=self._inclusive,
                    )
                )
                return None
            received = current.next_event(subscription)
        except (ClientError, BotoCoreError, CorruptEventStreamError) as error:
            self._pause_or_raise(error, had_begun=subscription is not None)
            return None
        if received is not None:
            fetched = self._accept(received, subscription.service_time_ms)
            self._rest.may_be_nothing = not self.at_end and not says_more_follows(received.event)
            if fetched.page.records or not self._rest.may_be_nothing:
                return fetched
            return self._last_page() or fetched
        if self._rest.may_be_nothing and (last := self._last_page()) is not None:
            return last
        self._pause_or_raise(None, had_begun=True)
        return None

    def stop(self) -> None:
        """End the subscription and a waiting `step`. For any thread; returns at once.

        A SubscribeToShard call in progress is not interrupted; its subscription is closed then.
        """
        self._current.stop()

    def _accept(self, received: ReceivedEvent, begun_ms: int) -> Fetched:
        event = received.event
        self._recovery.event_came()
        self.at_end = ends_shard(event)
        number = event.continuation_sequence_number
        if number is None and event.records:
            number = event.records[-1].sequence_number
        if number is not None:
            self._position = AfterRecord(number)
            self._inclusive = False
        if self.at_end:
            self._current.drop(SHARD_ENDED)
        fetched = to_fetched(received, begun_ms, self._current.age or 0.0)
        self._client.count_fetched(self.shard_id, fetched)
        return self._early_filter.apply(fetched)

    def _last_page(self) -> Fetched | None:
        """Return the rest of the shard if the shard ends there; else None."""
        fetched = self._rest.last_page(
            self._position,
            self._early_filter,
            self._current.stopped.is_set,
            inclusive=self._inclusive,
        )
        if fetched is not None:
            self.at_end = True
            self._current.drop(SHARD_ENDED)
        return fetched

    def _pause_or_raise(self, error: Failure | None, *, had_begun: bool) -> None:
        """Set the time of the next SubscribeToShard; raise permanent errors."""
        cause = cause_of(error, had_begun=had_begun)
        if error is not None and is_unknown_position(error, self._position):
            cause = self._recovery.doubt()
        ending = ending_of(cause, had_begun=had_begun)
        self._current.drop(ending)
        if not had_begun:
            self._current.count_end(ending)
        if self._current.stopped.is_set():
            return
        pause = self._recovery.pause_after(cause, self._current.age)
        if pause is None:
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
