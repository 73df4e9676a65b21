"""Why a subscription ended, or was refused, and when to subscribe again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sparkinesis.errors import CorruptEventStreamError
from sparkinesis.stream.calls.retry import Retry, error_code, is_retryable

BETWEEN_SUBSCRIPTIONS = 5.0
"""Seconds after a successful SubscribeToShard in which another one for the same consumer and shard
is refused (the service's API reference, SubscribeToShard)."""

PAUSE_AFTER_TAKEOVER = (10.0, 20.0)
"""Seconds to wait, at least and at most, after another subscription has taken over: its owner may
own the shard now, and whoever has lost it hears of that within about so long."""

PAUSE_WHILE_IN_USE = (1.0, 1.5)
"""Seconds to wait, at least and at most, while the consumer is in use: whoever subscribed did so
five seconds ago at most, and each second more is one in which nobody reads the shard. The service
takes one call a second for a consumer and shard (its API reference, SubscribeToShard)."""

QUICK_RETRIES = 10
"""Refusals in a row after which that is not the reason any more, so that one need not hurry."""


class Cause(Enum):
    """Why there is no subscription any more."""

    ENDED = "it was over"
    """The service ends a subscription after five minutes."""
    BROKEN = "it broke"
    """The connection, or the service for a moment."""
    IN_USE = "the consumer is in use"
    """Refused: someone subscribed less than five seconds ago, or the consumer is not ACTIVE."""
    TAKEN_OVER = "a newer subscription has taken over"
    FINAL = "it cannot go on"
    """Trying again would not help."""


def cause_of(error: BaseException | None, *, had_begun: bool) -> Cause:
    """``error``: None for an end without one. ``had_begun``: it came over the subscription."""
    if error is None:
        return Cause.ENDED
    if error_code(error) == "ResourceInUseException":
        return Cause.TAKEN_OVER if had_begun else Cause.IN_USE
    if is_retryable(error) or isinstance(error, CorruptEventStreamError):
        return Cause.BROKEN
    return Cause.FINAL


@dataclass(frozen=True, slots=True)
class FailureStreak:
    """What happened since the last event that came."""

    failures: int = 0
    """Without refusals, which belong to each change of a shard's reader."""
    refusals: int = 0
    """As the consumer was in use; since the last failure of another kind."""
    since: float | None = None
    """When the first of all was, in seconds of the cursor's clock; None: there was none."""

    def with_failure(self, cause: Cause, now: float) -> FailureStreak:
        """With one more, at ``now``."""
        since = now if self.since is None else self.since
        if cause is Cause.IN_USE:
            return FailureStreak(self.failures, self.refusals + 1, since)
        return FailureStreak(self.failures + 1, 0, since)

    def duration(self, now: float) -> float:
        """How long it does, in seconds."""
        return 0.0 if self.since is None else now - self.since


NO_FAILURES = FailureStreak()


def pause_after(cause: Cause, before: FailureStreak, age: float | None, retry: Retry) -> float:
    """Seconds to wait before the next SubscribeToShard.

    before: what happened since the last event, without this. age: seconds since the last
    successful SubscribeToShard; None if there was none. A subscription that gave events and was
    over when its time had come is followed by the next at once; nothing else is.
    """
    rule = 0.0 if age is None else max(0.0, BETWEEN_SUBSCRIPTIONS - age)
    if cause is Cause.ENDED and rule == 0.0 and before == NO_FAILURES:
        return 0.0
    if cause is Cause.IN_USE:
        is_soon = before.refusals < QUICK_RETRIES
        return rule + (
            retry.uniform(*PAUSE_WHILE_IN_USE) if is_soon else retry.pause(before.refusals)
        )
    if cause is Cause.TAKEN_OVER:
        rule = retry.uniform(*PAUSE_AFTER_TAKEOVER)
    return rule + retry.pause(before.failures)
