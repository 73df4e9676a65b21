"""Registered consumers (enhanced fan-out) and their subscriptions."""

from __future__ import annotations

import dataclasses

from sparkinesis.local.model.limits import Limits
from sparkinesis.local.model.subscription import Failure, Subscription


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
                Failure(
                    "ResourceInUseException",
                    f"Consumer {self.name} has a newer subscription to {shard_id}.",
                )
            )
        self.subscriptions[shard_id] = subscription
        self.subscribed_ms[shard_id] = now

    def forget(self, subscription: Subscription) -> None:
        if self.subscriptions.get(subscription.shard.id) is subscription:
            del self.subscriptions[subscription.shard.id]

    def fail_subscriptions(self, failure: Failure) -> None:
        for subscription in self.subscriptions.values():
            subscription.fail(failure)
        self.subscriptions.clear()
