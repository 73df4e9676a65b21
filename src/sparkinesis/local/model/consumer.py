"""Registered consumers (enhanced fan-out), and their subscriptions to shards.

A subscription is a pull-based state machine of its events. No I/O. The sender calls `next` after
each event, whenever `wake` is called, and when the time of a `Wait` has come. Records stay in the
shard until then, so a client that does not read costs no memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from sparkinesis.local.faults import Fault
from sparkinesis.local.model import limits
from sparkinesis.local.model.limits import Bucket, Limits
from sparkinesis.local.model.records import RecordPage, Records
from sparkinesis.local.model.shard import Shard


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
    subscriptions: dict[str, Subscription] = dataclasses.field(default_factory=dict)

    def status(self, now: int) -> str:
        if self.gone_ms is not None:
            return "DELETING"
        return "ACTIVE" if now >= self.active_ms else "CREATING"

    def may_subscribe(self, shard_id: str, now: int, limits: Limits | None) -> bool:
        """True unless the last subscription to this shard is more recent than the limit allows."""
        last = self.subscribed_ms.get(shard_id)
        return limits is None or last is None or now - last >= limits.subscribe_interval_ms

    def take_over(self, subscription: Subscription, now: int) -> None:
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

    def forget(self, subscription: Subscription) -> None:
        if self.subscriptions.get(subscription.shard.id) is subscription:
            del self.subscriptions[subscription.shard.id]

    def fail_subscriptions(self, failure: ExceptionEvent) -> None:
        for subscription in self.subscriptions.values():
            subscription.fail(failure)
        self.subscriptions.clear()


EVENT = "SubscribeToShardEvent"

_HEARTBEAT_MS = 5000


@dataclasses.dataclass(frozen=True)
class Event:
    """A SubscribeToShardEvent."""

    page: RecordPage


@dataclasses.dataclass(frozen=True)
class ExceptionEvent:
    """The exception that ends the stream."""

    code: str
    message: str


@dataclasses.dataclass(frozen=True)
class Wait:
    """No event until `wake` is called or the clock reaches `until_ms`."""

    until_ms: int


@dataclasses.dataclass(frozen=True)
class End:
    """The regular end: the subscription has expired, or the shard's end has been sent."""


Step = Event | ExceptionEvent | Wait | End


class ShardOwner(Protocol):
    """The members of `Stream` that its subscriptions use."""

    name: str

    @property
    def due_ms(self) -> int | None: ...

    def settle(self, now: int) -> None: ...

    def trim(self, shard: Shard, now: int) -> None: ...


class Subscription:
    """The events of one successful SubscribeToShard call.

    stream: the stream of `shard`.
    position: the first record to send.
    on_close: called once the client has gone or has received the last event.
    fault: may end the event stream early.
    wake: called, from any thread, when `next` has a new step to return.
    """

    def __init__(
        self,
        region: str,
        stream: ShardOwner,
        shard: Shard,
        position: int,
        *,
        on_close: Callable[[Subscription], None],
        now: int,
        fault: Fault,
    ) -> None:
        self.region = region
        self.stream = stream
        self.shard = shard
        self.wake: Callable[[], None] = _ignore
        self._on_close = on_close
        self._position = max(position, shard.first_position)
        self._ends_ms = now + limits.SUBSCRIPTION_LIFE_MS
        self._heartbeat_ms = now
        self._look_again_ms: int | None = None
        self._use = Bucket()
        self._fault = fault
        self._events = 0
        self._failure: ExceptionEvent | None = None
        self._ended = False

    def next(self, now: int, quota: Limits | None) -> Step:
        self._look_again_ms = None
        if self._fault.stream_code is not None and self._events >= self._fault.stream_after:
            self._failure = ExceptionEvent(self._fault.stream_code, self._fault.message)
        if self._ended or (self._failure is None and now >= self._ends_ms):
            return End()
        if self._failure is not None:
            self._ended = True
            return self._failure
        self.stream.settle(now)
        self.stream.trim(self.shard, now)
        records = self.shard.read(
            self._position, limits.MAX_RECORDS_PER_GET, limits.MAX_EVENT_BYTES
        )
        if records.count:
            return self._paced(records, now, quota)
        if now >= self._heartbeat_ms or self._at_end(records):
            return self._event(records, now)
        self.shard.watch(self._woken)
        due = (self._heartbeat_ms, self._ends_ms, self.stream.due_ms)
        return self._wait(min(ms for ms in due if ms is not None))

    def fail(self, failure: ExceptionEvent) -> None:
        self._failure = self._failure or failure
        self._woken()

    def tick(self, now: int) -> None:
        """Wake the sender if the clock has reached the time of its `Wait`."""
        if self._look_again_ms is not None and now >= self._look_again_ms:
            self._woken()

    def close(self) -> None:
        """End the subscription; no event follows."""
        self._ended = True
        self.wake = _ignore
        self.shard.unwatch(self._woken)
        self._on_close(self)

    def _woken(self) -> None:
        self.wake()

    def _paced(self, records: Records, now: int, quota: Limits | None) -> Step:
        if quota is not None:
            # A record larger than one second's quota is sent, and delays the events after it.
            amount = min(records.bytes, quota.subscription_bytes)
            if not self._use.fits(now, amount, quota.subscription_bytes):
                wait_ms = self._use.wait_ms(amount, quota.subscription_bytes)
                return self._wait(min(now + wait_ms, self._ends_ms))
            self._use.use(records.bytes)
        return self._event(records, now)

    def _wait(self, until_ms: int) -> Wait:
        self._look_again_ms = until_ms
        return Wait(until_ms)

    def _event(self, records: Records, now: int) -> Event:
        self._position = records.next_position
        self._heartbeat_ms = now + _HEARTBEAT_MS
        self._events += 1
        rest: dict[str, Any] = {"MillisBehindLatest": self.shard.millis_behind(self._position, now)}
        if self._at_end(records):
            # The missing continuation number means to the KCL that the shard has ended.
            self._ended = True
            rest["ChildShards"] = self.shard.child_shards
        else:
            rest["ContinuationSequenceNumber"] = self.shard.number_before(
                self._position, now // 1000
            )
        for name in self._fault.omit:
            rest.pop(name, None)
        return Event(RecordPage(records, rest))

    def _at_end(self, records: Records) -> bool:
        return not self.shard.is_open and records.next_position >= self.shard.end_position


def _ignore() -> None:
    pass
