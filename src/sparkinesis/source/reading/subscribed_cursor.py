"""A cursor that reads a range by a subscription (enhanced fan-out), with GetRecords as fallback.

Spark gives a shard's next range to any Python worker of any executor. So a subscription ends with
its range: an open one would mostly be in the wrong process, and would keep receiving there. But a
consumer may subscribe to a shard only once in five seconds. A range that starts sooner, or whose
subscription is interrupted, is read by GetRecords from the exact position: the task does not wait,
and the rows are the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import AccessDeniedError, CorruptEventStreamError
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.explain import explain, words
from sparkinesis.stream.calls.retry import error_code
from sparkinesis.stream.calls.subscription import OPERATION, Subscription
from sparkinesis.stream.fan_out.cursor import to_fetched
from sparkinesis.stream.fan_out.interruption import BETWEEN_SUBSCRIPTIONS
from sparkinesis.stream.page import Fetched, Page, ends_shard
from sparkinesis.stream.position import AfterRecord, Position, Sentinel
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL, BudgetState
from sparkinesis.stream.reading.early_records import EarlyRecordFilter
from sparkinesis.stream.reading.range import cut_at_end
from sparkinesis.stream.reading.shard_cursor import ShardCursor

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


@dataclass(eq=False)
class SubscribedCursor:
    """Fetches a shard's pages as `ShardCursor` does, but starts with a subscription.

    It begins AT ``position`` (inclusive). ``poll`` opens the GetRecords cursor that continues, at a
    position and inclusive or not. The subscription ends as soon as ``end`` is received, because all
    that the service sends afterwards is billed. `fetch` is for one thread at a time, `stop` for any
    thread.
    """

    client: StreamClient
    limiter: SubscribeLimiter
    consumer_arn: str
    shard_id: str
    position: Position
    """The position behind all that was fetched."""
    _: KW_ONLY
    end: AfterRecord | Literal[Sentinel.SHARD_END]
    poll: Callable[[Position, bool], ShardCursor]
    clock: Callable[[], float] = time.monotonic
    at_end: bool = False
    """True once the shard is closed and all of its records are fetched."""

    def __post_init__(self) -> None:
        self._inclusive = True
        self._early_filter = EarlyRecordFilter(
            self.client.address, self.shard_id, self.position, inclusive=True
        )
        self._lock = threading.Lock()
        self._is_stopped = False
        self._subscription: Subscription | None = None
        self._subscribed_at = 0.0
        self._polling: ShardCursor | None = None
        self._has_begun = False

    def fetch(self, limit: int = MAX_RECORDS_PER_CALL) -> Fetched:
        """Return the next event as a page, or the next page of at most ``limit`` records.

        Must not be called once `at_end` is True. Raises `AccessDeniedError` if the consumer may not
        be used, and the errors of GetRecords.
        """
        if not self._has_begun:
            self._has_begun = True
            self._subscribe()
        if self._subscription is not None:
            fetched = self._next_event(self._subscription)
            if fetched is not None:
                return self._early_filter.apply(fetched)
            self._end_subscription()
        if self._is_stopped:
            return Fetched(Page([]), 0, 0)  # the caller has stopped and ignores the page
        if self._polling is None:
            self._polling = self.poll(self.position, self._inclusive)
        fetched = self._polling.fetch(limit)
        self.at_end = self._polling.at_end
        return self._early_filter.apply(fetched)

    def stop(self) -> None:
        """End the subscription at once, and with it a `fetch` that waits."""
        with self._lock:
            self._is_stopped = True
            if self._subscription is not None:
                self._subscription.close()

    def _subscribe(self) -> None:
        if not self.limiter.try_acquire():
            return
        try:
            subscription = self.client.subscribe(
                self.consumer_arn, self.shard_id, self.position, inclusive=self._inclusive
            )
        except (ClientError, BotoCoreError) as error:
            if error_code(error) == "ResourceInUseException":
                self.limiter.delay_next(AFTER_REFUSAL)
            self._raise_or_log(error)
            return
        self.limiter.delay_next(BETWEEN_SUBSCRIPTIONS)
        self._subscribed_at = self.clock()
        with self._lock:
            self._subscription = subscription
            if self._is_stopped:
                subscription.close()

    def _next_event(self, subscription: Subscription) -> Fetched | None:
        """Return the next event; None if GetRecords has to read the rest."""
        try:
            received = subscription.next_event()
        except (ClientError, BotoCoreError, CorruptEventStreamError) as error:
            self._raise_or_log(error)
            return None
        if received is None:
            return None
        event = received.event
        self.at_end = ends_shard(event)
        if not event.records and not event.millis_behind_latest and not self.at_end:
            # At the tip without the end of the range, which exists: GetRecords finds the reason.
            return None
        if event.records:
            self.position = AfterRecord(event.records[-1].sequence_number)
            self._inclusive = False
        _, is_over, _ = cut_at_end(event.records, self.end)
        if is_over or self.at_end:
            self._end_subscription()
        age = self.clock() - self._subscribed_at
        return to_fetched(received, subscription.service_time_ms, age)

    def _end_subscription(self) -> None:
        with self._lock:
            if self._subscription is not None:
                self._subscription.close()
                self._subscription = None

    def _raise_or_log(self, error: ClientError | BotoCoreError | CorruptEventStreamError) -> None:
        """Raise `AccessDeniedError`, which GetRecords would not meet; log any other error."""
        where = f"shard {self.shard_id} of {self.client.address}"
        if isinstance(error, CorruptEventStreamError):
            _log.warning(
                "A subscription to %s failed: %s Continuing with GetRecords.", where, error
            )
            return
        explained = explain(error, OPERATION, self.client.address, self.shard_id, self.position)
        if isinstance(explained, AccessDeniedError):
            raise explained from None
        if error_code(error) == "ResourceNotFoundException":
            self.limiter.delay_next(AFTER_LOSS)
            _log.warning(
                "Cannot subscribe to %s as %s. If the consumer was deregistered, restart the query "
                "to register it again; until then the query reads by GetRecords. The service's "
                "answer: %s",
                where,
                self.consumer_arn,
                words(error),
            )
            return
        _log.info("Continuing with GetRecords in %s: %s", where, words(error))
