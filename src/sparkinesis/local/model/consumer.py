"""A registered consumer (enhanced fan-out), and its subscriptions."""

from __future__ import annotations

import dataclasses

from sparkinesis.local.model.limits import Limits
from sparkinesis.local.model.subscription import Failure, Subscription


@dataclasses.dataclass(eq=False)
class Consumer:
    """At most one subscription a shard: a new one takes over.

    active_ms: when it becomes ACTIVE. gone_ms: when it is deleted, once that was asked for.
    subscribed_ms: when each shard was subscribed to last.
    """

    name: str
    arn: str
    created_ms: int
    active_ms: int
    gone_ms: int | None = None
    subscribed_ms: dict[str, int] = dataclasses.field(default_factory=dict)
    subscriptions: dict[str, Subscription] = dataclasses.field(default_factory=dict)

    def status(self, now: int) -> str:
        if self.gone_ms is not None:
            return "DELETING"
        return "ACTIVE" if now >= self.active_ms else "CREATING"

    def may_subscribe(self, shard_id: str, now: int, limits: Limits | None) -> bool:
        """Whether the last successful call for this shard was long enough ago."""
        last = self.subscribed_ms.get(shard_id)
        return limits is None or last is None or now - last >= limits.subscribe_interval_ms

    def take_over(self, subscription: Subscription, now: int) -> None:
        shard_id = subscription.shard.id
        older = self.subscriptions.get(shard_id)
        if older is not None:
            older.fail(
                Failure(
                    "ResourceInUseException",
                    f"Another subscription of consumer {self.name} to {shard_id} took over.",
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
