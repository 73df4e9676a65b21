"""A cursor that reads a range by a subscription (enhanced fan-out), with GetRecords as fallback."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import AccessDeniedError, CorruptEventStreamError
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.explain import explain, words
from sparkinesis.stream.calls.retry import error_code
from sparkinesis.stream.calls.subscription import OPERATION, Subscription
from sparkinesis.stream.fan_out.cursor import to_fetched
from sparkinesis.stream.fan_out.interruption import BETWEEN_SUBSCRIPTIONS
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Fetched, Page, ends_shard
from sparkinesis.stream.position import AfterRecord, Position, Sentinel
from sparkinesis.stream.reading.budget import BudgetState
from sparkinesis.stream.reading.early_records import EarlyRecordFilter
from sparkinesis.stream.reading.range import cut_at_end
from sparkinesis.stream.reading.shard_cursor import ShardCursor

# Why a subscription ends with its range, and is not kept for the next one
#
# Spark gives a shard's next range to any Python worker of any executor. Of the ranges that followed
# another one of their shard, 42 % came to the process of the range before on local[2], and 23 % on
# two executors with two cores each: about as many as by chance (docs/consumer-mode.md). A
# subscription that stayed open would mostly be in the wrong process, and would go on receiving
# there, which is billed, and a subscription of another process would end it.
#
# The price is the service's rule that a consumer may subscribe to a shard only once in five
# seconds. So a task never waits for a subscription: a range that starts sooner, or whose
# subscription is refused or interrupted, is read by GetRecords from the exact position behind the
# last event. The rows are the same by either way, so a batch that is repeated may take the other
# one. What has to hold for that:
#
# - `SubscribedCursor.position` moves with each event, before the event is returned. If it stayed at
#   the start, GetRecords would read the range twice after an interruption. It is the place of the
#   last record, and not the event's continuation number: only subscriptions resume by that.
# - Whichever way begins reads AT the start, so that the caller sees whether the start's record is
#   still kept. After an event it is no longer inclusive.
# - An event at the tip without the end of the range is no answer: the end was seen by the plan, so
#   it exists or has expired. GetRecords finds out which.

_log = logging.getLogger(__name__)

AFTER_REFUSAL = 1.0
"""Seconds until the next call after a refusal: another machine's task has subscribed, at an unknown
time. One call a second is within the quota (API reference)."""

AFTER_LOSS = 60.0
"""Seconds until the next call if the consumer does not exist; only a new query registers it."""


class SubscribeLimiter:
    """Limits the SubscribeToShard calls of one machine for a shard and consumer.

    ``slot``: the state shared on the machine; None: no limit, for a Kinesis without limits.
    """

    def __init__(
        self, slot: BudgetState | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slot = slot
        self._clock = clock

    def try_acquire(self) -> bool:
        """Return True and count a call if one is allowed now. Never waits."""
        if self._slot is None:
            return True
        with self._slot:
            now = self._clock()
            # An instant too far ahead is from before a reboot, which resets the clock.
            if 0 < self._slot.free_at - now <= AFTER_LOSS:
                return False
            self._slot.free_at = now + BETWEEN_SUBSCRIPTIONS
            return True

    def delay_next(self, seconds: float) -> None:
        """Allow the next call only after ``seconds`` from now."""
        if self._slot is not None:
            with self._slot:
                self._slot.free_at = self._clock() + seconds


class RangeSubscription:
    """The subscription of one range, if the service grants one.

    `stop` is for any thread, all else for one thread at a time.
    """

    def __init__(
        self,
        client: StreamClient,
        limiter: SubscribeLimiter,
        consumer_arn: str,
        shard_id: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client = client
        self.shard_id = shard_id
        self._limiter = limiter
        self._consumer_arn = consumer_arn
        self._clock = clock
        self._lock = threading.Lock()
        self._is_stopped = False
        self._open: Subscription | None = None
        self._began = 0.0

    @property
    def is_open(self) -> bool:
        return self._open is not None

    @property
    def is_stopped(self) -> bool:
        return self._is_stopped

    def begin(self, position: Position) -> None:
        """Subscribe AT a position (inclusive), unless the limiter or the service refuses.

        Raises `AccessDeniedError` if the consumer may not be used.
        """
        if not self._limiter.try_acquire():
            return
        try:
            subscription = self.client.subscribe(
                self._consumer_arn, self.shard_id, position, inclusive=True
            )
        except (ClientError, BotoCoreError) as error:
            if error_code(error) == "ResourceInUseException":
                self._limiter.delay_next(AFTER_REFUSAL)
            self._raise_or_log(error, position)
            return
        self._limiter.delay_next(BETWEEN_SUBSCRIPTIONS)
        self._began = self._clock()
        with self._lock:
            self._open = subscription
            if self._is_stopped:
                subscription.close()

    def next_event(self, position: Position) -> tuple[Fetched, bool] | None:
        """Return the next event as a page, and True if the shard ends with it.

        None if the subscription, which is open, has ended. ``position``: the position behind the
        last event, for the text of an error.
        """
        assert self._open is not None
        try:
            received = self._open.next_event()
        except (ClientError, BotoCoreError, CorruptEventStreamError) as error:
            self._raise_or_log(error, position)
            return None
        if received is None:
            return None
        age = self._clock() - self._began
        return to_fetched(received, self._open.service_time_ms, age), ends_shard(received.event)

    def end(self) -> None:
        """End the subscription: all that the service sends after the range is billed, too."""
        with self._lock:
            if self._open is not None:
                self._open.close()
                self._open = None

    def stop(self) -> None:
        """End the subscription at once, and with it a `next_event` that waits."""
        with self._lock:
            self._is_stopped = True
            if self._open is not None:
                self._open.close()

    def _raise_or_log(
        self, error: ClientError | BotoCoreError | CorruptEventStreamError, position: Position
    ) -> None:
        """Raise `AccessDeniedError`, which GetRecords would not meet; log any other error."""
        where = f"shard {self.shard_id} of {self.client.address}"
        if isinstance(error, CorruptEventStreamError):
            _log.warning(
                "A subscription to %s failed: %s Continuing with GetRecords.", where, error
            )
            return
        explained = explain(error, OPERATION, self.client.address, self.shard_id, position)
        if isinstance(explained, AccessDeniedError):
            raise explained from None
        if error_code(error) == "ResourceNotFoundException":
            self._limiter.delay_next(AFTER_LOSS)
            _log.warning(
                "Cannot subscribe to %s as %s. If the consumer was deregistered, restart the query "
                "to register it again; until then the query reads by GetRecords. The service's "
                "answer: %s",
                where,
                self._consumer_arn,
                words(error),
            )
            return
        _log.info("Continuing with GetRecords in %s: %s", where, words(error))


class SubscribedCursor:
    """Fetches a shard's pages as `ShardCursor` does, but starts with a subscription.

    It begins AT ``position`` (inclusive). ``poll`` opens the GetRecords cursor that continues, at a
    position and inclusive or not. `fetch` is for one thread at a time, `stop` for any thread.
    """

    def __init__(
        self,
        subscription: RangeSubscription,
        position: Position,
        *,
        end: AfterRecord | Literal[Sentinel.SHARD_END],
        poll: Callable[[Position, bool], ShardCursor],
    ) -> None:
        self._subscription = subscription
        self.position = position
        """The position behind all that was fetched."""
        self._inclusive = True
        self._end = end
        self._poll = poll
        self._polling: ShardCursor | None = None
        self._early_filter = EarlyRecordFilter(
            subscription.client.address, subscription.shard_id, position, inclusive=True
        )
        self._has_begun = False
        self.at_end = False
        """True once the shard is closed and all of its records are fetched."""

    def fetch(self, limit: int = MAX_RECORDS_PER_CALL) -> Fetched:
        """Return the next event as a page, or the next page of at most ``limit`` records.

        Must not be called once `at_end` is True. Raises `AccessDeniedError` if the consumer may not
        be used, and the errors of GetRecords.
        """
        if not self._has_begun:
            self._has_begun = True
            self._subscription.begin(self.position)
        if self._subscription.is_open:
            fetched = self._next_event()
            if fetched is not None:
                return self._early_filter.apply(fetched)
            self._subscription.end()
        if self._subscription.is_stopped:
            return Fetched(Page([]), 0, 0)  # the caller has stopped and ignores the page
        if self._polling is None:
            self._polling = self._poll(self.position, self._inclusive)
        fetched = self._polling.fetch(limit)
        self.at_end = self._polling.at_end
        return self._early_filter.apply(fetched)

    def stop(self) -> None:
        """End the subscription at once, and with it a `fetch` that waits."""
        self._subscription.stop()

    def _next_event(self) -> Fetched | None:
        """Return the next event as a page; None if GetRecords has to read the rest."""
        received = self._subscription.next_event(self.position)
        if received is None:
            return None
        fetched, self.at_end = received
        page = fetched.page
        if not page.records and not page.millis_behind_latest and not self.at_end:
            # At the tip without the end of the range, which exists: GetRecords finds the reason.
            return None
        if page.records:
            self.position = AfterRecord(page.records[-1].sequence_number)
            self._inclusive = False
        _, is_over, _ = cut_at_end(page.records, self._end)
        if is_over or self.at_end:
            self._subscription.end()
        return fetched
