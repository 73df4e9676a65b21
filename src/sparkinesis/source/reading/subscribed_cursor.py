"""Reading a range by a subscription (enhanced fan-out), and by GetRecords where there can be none.

Spark gives a shard's next range to any Python worker of any executor, so no subscription outlives
its range: kept, it would mostly be in the wrong process, and go on receiving there. But a consumer
may subscribe to a shard only once in five seconds. A range that comes sooner, or whose subscription
is interrupted, is read by GetRecords from the exact position: nobody waits, and the rows are the
same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

from botocore.exceptions import BotoCoreError, ClientError

from sparkinesis.errors import AccessDeniedError, CorruptEventStreamError
from sparkinesis.stream.calls.client import Fetched, StreamClient
from sparkinesis.stream.calls.explain import explain, words
from sparkinesis.stream.calls.retry import error_code
from sparkinesis.stream.calls.subscription import OPERATION, Subscription
from sparkinesis.stream.fan_out.cursor import ends_shard, to_fetched
from sparkinesis.stream.fan_out.interruption import BETWEEN_SUBSCRIPTIONS
from sparkinesis.stream.page import Page
from sparkinesis.stream.position import AfterRecord, Position, Sentinel
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL, BudgetState
from sparkinesis.stream.reading.cursor import ShardCursor
from sparkinesis.stream.reading.early_records import EarlyRecordFilter
from sparkinesis.stream.reading.range import cut_at_end

_log = logging.getLogger(__name__)

AFTER_REFUSAL = 1.0
"""Seconds to the next call when another machine's task has subscribed: one call a second is free
(API reference), and how long ago that was is not known."""

AFTER_LOSS = 60.0
"""Seconds to the next call when there is no such consumer, which a new query only registers."""


class SubscribeLimiter:
    """Says whether a subscription to a shard may be asked for now, by what its machine knows.

    ``slot``: the shard's and consumer's; None: ask always, for a Kinesis without limits.
    """

    def __init__(
        self, slot: BudgetState | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._slot = slot
        self._clock = clock

    def try_acquire(self) -> bool:
        """Whether to ask, which counts as asked. Never waits."""
        if self._slot is None:
            return True
        with self._slot:
            now = self._clock()
            # Before a reboot the clock was ahead: such an instant says nothing.
            if 0 < self._slot.free_at - now <= AFTER_LOSS:
                return False
            self._slot.free_at = now + BETWEEN_SUBSCRIPTIONS
            return True

    def delay_next(self, seconds: float) -> None:
        """The answer that has just come allows the next call that much later."""
        if self._slot is not None:
            with self._slot:
                self._slot.free_at = self._clock() + seconds


class SubscribedCursor:
    """Fetches a shard's pages as `ShardCursor` does, the first of them from a subscription.

    It begins AT ``position`` (inclusive). ``poll`` gives the cursor that goes on, at a position and
    whether inclusive. The subscription is ended once ``end`` has come: what the service sends while
    the caller works on the last rows is paid for. `fetch` is for one thread at a time, `stop` for
    any.
    """

    def __init__(
        self,
        client: StreamClient,
        limiter: SubscribeLimiter,
        consumer_arn: str,
        shard_id: str,
        position: Position,
        *,
        end: AfterRecord | Literal[Sentinel.SHARD_END],
        poll: Callable[[Position, bool], ShardCursor],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.at_end = False
        """True once the shard is closed and every record of it was fetched."""
        self._client = client
        self._limiter = limiter
        self._consumer_arn = consumer_arn
        self._shard_id = shard_id
        self._position = position
        self._end = end
        self._inclusive = True
        self._early_filter = EarlyRecordFilter(client.address, shard_id, position, inclusive=True)
        self._poll = poll
        self._clock = clock
        self._lock = threading.Lock()
        self._is_stopped = False
        self._subscription: Subscription | None = None
        self._subscribed_at = 0.0
        self._polling: ShardCursor | None = None
        self._has_begun = False

    def fetch(self, limit: int = MAX_RECORDS_PER_CALL) -> Fetched:
        """The next event as a page, or the next page (``limit``). Not to be called `at_end`.

        Raises `AccessDeniedError` when the consumer may not be used, and what GetRecords raises.
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
            return Fetched(Page([]), 0, 0)  # nobody waits for it any more
        if self._polling is None:
            self._polling = self._poll(self._position, self._inclusive)
        fetched = self._polling.fetch(limit)
        self.at_end = self._polling.at_end
        return self._early_filter.apply(fetched)

    def stop(self) -> None:
        """End the subscription at once, and a `fetch` that waits for it."""
        with self._lock:
            self._is_stopped = True
            if self._subscription is not None:
                self._subscription.close()

    def _subscribe(self) -> None:
        if not self._limiter.try_acquire():
            return
        try:
            subscription = self._client.subscribe(
                self._consumer_arn, self._shard_id, self._position, inclusive=self._inclusive
            )
        except (ClientError, BotoCoreError) as error:
            if error_code(error) == "ResourceInUseException":
                self._limiter.delay_next(AFTER_REFUSAL)
            self._raise_or_log(error)
            return
        self._limiter.delay_next(BETWEEN_SUBSCRIPTIONS)
        self._subscribed_at = self._clock()
        with self._lock:
            self._subscription = subscription
            if self._is_stopped:
                subscription.close()

    def _next_event(self, subscription: Subscription) -> Fetched | None:
        """None: the rest is to be had by GetRecords."""
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
            # The end of the range is known to exist, and is not there: GetRecords tells why.
            return None
        if event.records:
            self._position = AfterRecord(event.records[-1].sequence_number)
            self._inclusive = False
        _, is_over, _ = cut_at_end(event.records, self._end)
        if is_over or self.at_end:
            self._end_subscription()
        age = self._clock() - self._subscribed_at
        return to_fetched(received, subscription.service_time_ms, age)

    def _end_subscription(self) -> None:
        with self._lock:
            if self._subscription is not None:
                self._subscription.close()
                self._subscription = None

    def _raise_or_log(self, error: ClientError | BotoCoreError | CorruptEventStreamError) -> None:
        """Raise what GetRecords would not tell; anything else is told by GetRecords, or passes."""
        where = f"shard {self._shard_id} of {self._client.address}"
        if isinstance(error, CorruptEventStreamError):
            _log.warning("A subscription to %s broke: %s Going on by GetRecords.", where, error)
            return
        explained = explain(error, OPERATION, self._client.address, self._shard_id, self._position)
        if isinstance(explained, AccessDeniedError):
            raise explained from None
        if error_code(error) == "ResourceNotFoundException":
            self._limiter.delay_next(AFTER_LOSS)
            _log.warning(
                "There is no subscription to %s for %s. If the consumer was deregistered, restart "
                "the query to register it again; until then it reads by GetRecords. The service "
                "said: %s",
                where,
                self._consumer_arn,
                words(error),
            )
            return
        _log.info("Going on by GetRecords in %s: %s", where, words(error))
