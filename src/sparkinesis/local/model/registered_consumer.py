"""Registered consumers (enhanced fan-out), and their subscriptions to shards.

A subscription is a pull-based state machine of its events. No I/O. The sender calls `next` after
each event, whenever `wake` is called, and when the time of an `IdleUntil` has come. Records stay in
the shard until then, so a client that does not read costs no memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from sparkinesis.local.clock import Alarm, IdleUntil
from sparkinesis.local.faults import Fault
from sparkinesis.local.model import limits
from sparkinesis.local.model.limits import Bucket, Limits
from sparkinesis.local.model.records import ReadRecords, RecordPage
from sparkinesis.local.model.shard_log import Shard


@dataclasses.dataclass(eq=False)
class Consumer:
    """A consumer. It has at most one subscription per shard: a new one replaces the old one.

    active_ms: when the consumer becomes ACTIVE.
    gone_ms: when the consumer is deleted; None before DeregisterStreamConsumer.
    subscribed_ms: the time of the last subscription, by shard.
    policy: the resource policy as JSON; None for none.
    """

    name: str
    arn: str
    created_ms: int
    active_ms: int
    gone_ms: int | None = None
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    policy: str | None = None
    subscribed_ms: dict[str, int] = dataclasses.field(default_factory=dict)
    subscriptions: dict[str, ServedSubscription] = dataclasses.field(default_factory=dict)

    def status(self, now: int) -> str:
        if self.gone_ms is not None:
            return "DELETING"
        return "ACTIVE" if now >= self.active_ms else "CREATING"

    def may_subscribe(self, shard_id: str, now: int, limits: Limits | None) -> bool:
        """True unless the last subscription to this shard is more recent than the limit allows."""
        last = self.subscribed_ms.get(shard_id)
        return limits is None or last is None or now - last >= limits.subscribe_interval_ms

    def take_over(self, subscription: ServedSubscription, now: int) -> None:
        shard_id = subscription.shard.id
        older = self.subscriptions.get(shard_id)
        if older is not None:
            older.fail(
                ExceptionEvent(
                    "ResourceInUseException",
                    f"Consumer {self.name} has a newer subscription to {shard_id}.",
                )
            )
        self.subscriptions[shard_id] = subscription
        self.subscribed_ms[shard_id] = now

    def forget(self, subscription: ServedSubscription) -> None:
        if self.subscriptions.get(subscription.shard.id) is subscription:
            del self.subscriptions[subscription.shard.id]

    def fail_subscriptions(self, failure: ExceptionEvent) -> None:
        for subscription in self.subscriptions.values():
            subscription.fail(failure)
        self.subscriptions.clear()


EVENT = "SubscribeToShardEvent"

_HEARTBEAT_MS = 5000


@dataclasses.dataclass(frozen=True)
class PushedEvent:
    """A SubscribeToShardEvent."""

    page: RecordPage


@dataclasses.dataclass(frozen=True)
class ExceptionEvent:
    """The exception that ends the stream."""

    code: str
    message: str


@dataclasses.dataclass(frozen=True)
class End:
    """The regular end: the subscription has expired, or the shard's end has been sent."""


Step = PushedEvent | ExceptionEvent | IdleUntil | End


class ShardOwner(Protocol):
    """The members of `Stream` that its subscriptions use."""

    name: str

    @property
    def due_ms(self) -> int | None: ...

    def settle(self, now: int) -> None: ...

    def trim(self, shard: Shard, now: int) -> None: ...


class ServedSubscription:
    """The events of one successful SubscribeToShard call.

    stream: the stream of `shard`.
    position: the first record to send.
    on_close: called once the client has gone or has received the last event.
    fault: may end the event stream early.
    alarm: wakes the sender when `next` has a new step to return.
    """

    def __init__(
        self,
        region: str,
        stream: ShardOwner,
        shard: Shard,
        position: int,
        *,
        on_close: Callable[[ServedSubscription], None],
        now: int,
        fault: Fault,
    ) -> None:
        self.region = region
        self.stream = stream
        self.shard = shard
        self.alarm = Alarm()
        self._on_close = on_close
        self._position = max(position, shard.log.first_position)
        self._ends_ms = now + limits.SUBSCRIPTION_LIFE_MS
        self._heartbeat_ms = now
        self._use = Bucket()
        self._fault = fault
        self._events = 0
        self._last: ExceptionEvent | End | None = None
        """The step that ends the subscription, once that is known."""

    def next(self, now: int, quota: Limits | None) -> Step:
        self.alarm.stop()
        if self._fault.stream_code is not None and self._events >= self._fault.stream_after:
            self._last = self._last or ExceptionEvent(self._fault.stream_code, self._fault.message)
        if self._last is not None or now >= self._ends_ms:
            step, self._last = self._last or End(), End()
            return step
        self.stream.settle(now)
        self.stream.trim(self.shard, now)
        records = self.shard.log.read(
            self._position, limits.MAX_RECORDS_PER_GET, limits.MAX_EVENT_BYTES
        )
        if records.count:
            return self._paced(records, now, quota)
        if now >= self._heartbeat_ms or self._at_end(records):
            return self._event(records, now)
        self.shard.watch(self.alarm.ring)
        due = (self._heartbeat_ms, self._ends_ms, self.stream.due_ms)
        return self.alarm.set(min(ms for ms in due if ms is not None))

    def fail(self, failure: ExceptionEvent) -> None:
        self._last = self._last or failure
        self.alarm.ring()

    def close(self) -> None:
        """End the subscription; no event follows."""
        self._last = End()
        self.alarm.silence()
        self.shard.unwatch(self.alarm.ring)
        self._on_close(self)

    def _paced(self, records: ReadRecords, now: int, quota: Limits | None) -> Step:
        if quota is not None:
            # A record larger than one second's quota is sent, and delays the events after it.
            amount = min(records.bytes, quota.subscription_bytes)
            if not self._use.fits(now, amount, quota.subscription_bytes):
                wait_ms = self._use.wait_ms(amount, quota.subscription_bytes)
                return self.alarm.set(min(now + wait_ms, self._ends_ms))
            self._use.use(records.bytes)
        return self._event(records, now)

    def _event(self, records: ReadRecords, now: int) -> PushedEvent:
        self._position = records.next_position
        self._heartbeat_ms = now + _HEARTBEAT_MS
        self._events += 1
        rest: dict[str, Any] = {"MillisBehindLatest": self.shard.millis_behind(self._position, now)}
        if self._at_end(records):
            # The missing continuation number means to the KCL that the shard has ended.
            self._last = End()
            rest["ChildShards"] = self.shard.child_shards
        else:
            rest["ContinuationSequenceNumber"] = self.shard.number_before(
                self._position, now // 1000
            )
        for name in self._fault.omit:
            rest.pop(name, None)
        return PushedEvent(RecordPage(records, rest))

    def _at_end(self, records: ReadRecords) -> bool:
        return not self.shard.is_open and records.next_position >= self.shard.log.end_position
