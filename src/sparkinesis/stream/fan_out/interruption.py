"""The reasons why a subscription ends or is refused, and the pause before the next one. Pure."""

from __future__ import annotations

from enum import Enum

import msgspec

from sparkinesis.errors import CorruptEventStreamError
from sparkinesis.stream.calls.retry import ASKED_AGAIN_AFTER, Backoff, error_code, is_retryable

BETWEEN_SUBSCRIPTIONS = 5.0
"""Seconds after a successful SubscribeToShard during which the service refuses another one for the
same consumer and shard (API reference, SubscribeToShard)."""

PAUSE_AFTER_TAKEOVER = (10.0, 20.0)
"""The shortest and longest pause in seconds after another subscription has taken over. The other
worker may own the shard now, and the worker that lost the shard learns of it in about this time."""

PAUSE_WHILE_IN_USE = (1.0, 1.5)
"""The shortest and longest pause in seconds while the consumer is in use. The other subscription is
at most five seconds old, and the shard is not read during a longer pause. The service accepts one
call a second for a consumer and shard (API reference, SubscribeToShard)."""

QUICK_RETRIES = 10
"""Consecutive refusals that are retried quickly; later ones must have another reason."""


class Cause(Enum):
    """The reason why a subscription ended or was refused."""

    ENDED = "the subscription ended"
    """The service ends a subscription after five minutes."""
    BROKEN = "the subscription broke"
    """The connection broke, or the service failed for a moment."""
    IN_USE = "the consumer is in use"
    """The last subscription is less than five seconds old, or the consumer is not ACTIVE."""
    TAKEN_OVER = "a newer subscription has taken over"
    DOUBTED = "the service may not know the position"
    """An error that is permanent if it comes a second time."""
    FINAL = "the error is permanent"
    """A retry does not help."""


def cause_of(error: BaseException | None, *, had_begun: bool) -> Cause:
    """Return the reason of an interruption.

    error: None for an end without an error. had_begun: the error came over the subscription.
    """
    if error is None:
        return Cause.ENDED
    if error_code(error) == "ResourceInUseException":
        return Cause.TAKEN_OVER if had_begun else Cause.IN_USE
    if is_retryable(error) or isinstance(error, CorruptEventStreamError):
        return Cause.BROKEN
    return Cause.FINAL


RENEWED = "expired"
SHARD_ENDED = "shard ended"
CLOSED = "closed"
_ENDINGS = {
    Cause.ENDED: RENEWED,
    Cause.BROKEN: "broken",
    Cause.TAKEN_OVER: "taken over",
    Cause.DOUBTED: "failed",
    Cause.FINAL: "failed",
}


def ending_of(cause: Cause, *, had_begun: bool) -> str:
    """Return the reason for which a subscription ended, or never began, as metrics name it."""
    return _ENDINGS[cause] if had_begun else "refused"


class FailureStreak(msgspec.Struct, frozen=True):
    """The failures since the last event."""

    failures: int = 0
    """Failures except refusals, which are part of each change of a shard's reader."""
    refusals: int = 0
    """Refusals because the consumer is in use, since the last failure of another kind."""
    since: float | None = None
    """The time of the first failure, by the cursor's clock in seconds; None without a failure."""

    def with_failure(self, cause: Cause, now: float) -> FailureStreak:
        """Return the streak with one more failure, at ``now``."""
        since = now if self.since is None else self.since
        if cause is Cause.IN_USE:
            return FailureStreak(self.failures, self.refusals + 1, since)
        return FailureStreak(self.failures + 1, 0, since)

    def duration(self, now: float) -> float:
        """Return the seconds since the first failure."""
        return 0.0 if self.since is None else now - self.since


NO_FAILURES = FailureStreak()


# The pause must be as short as the service permits, because nobody reads the shard in it, and it
# must not turn a failure into a flood of calls.
#
# - The service refuses a second subscription within five seconds of the last one. A shard's new
#   owner always comes within them. With pauses that double, it went on 11.7 seconds after the last
#   subscription of the owner before; asking each second, which is what the service accepts, after
#   5.1. Hence `PAUSE_WHILE_IN_USE` has no backoff.
# - These refusals belong to each change of a reader. When they counted as failures, one lost
#   connection behind them was followed by a pause of up to thirty seconds. They are counted for
#   themselves (`refusals`), and the count begins anew with each failure of another kind.
# - After ten of them the five seconds cannot be the reason: the consumer is not ACTIVE, or another
#   application reads with it. It was asked each second for five minutes; now it is backed off.
# - A subscription that ends regularly without a failure is followed at once. One that ends within
#   five seconds is not, or a server that ends each at once would be asked without a pause.
# - A reader that was taken over waits for longer: the other reader may own the lease, and this
#   worker learns of that meanwhile. Two that follow at once would take over from each other.
def pause_after(cause: Cause, before: FailureStreak, age: float | None, retry: Backoff) -> float:
    """Return the seconds to wait before the next SubscribeToShard.

    before: the failures since the last event, without this one. age: seconds since the last
    successful SubscribeToShard; None if there was none. Only a subscription that gave events and
    ended at its regular time is followed by the next one at once.
    """
    rule = 0.0 if age is None else max(0.0, BETWEEN_SUBSCRIPTIONS - age)
    if cause is Cause.ENDED and rule == 0.0 and before == NO_FAILURES:
        return 0.0
    if cause is Cause.IN_USE:
        is_soon = before.refusals < QUICK_RETRIES
        return rule + (
            retry.uniform(*PAUSE_WHILE_IN_USE) if is_soon else retry.pause(before.refusals)
        )
    if cause is Cause.DOUBTED:
        return rule + ASKED_AGAIN_AFTER
    if cause is Cause.TAKEN_OVER:
        rule = retry.uniform(*PAUSE_AFTER_TAKEOVER)
    return rule + retry.pause(before.failures)


class Recovery:
    """When the next subscription of a shard is made after an interruption, if one is.

    For one thread. retry: the backoff, with its clock and randomness.
    """

    def __init__(self, retry: Backoff) -> None:
        self._retry = retry
        self._failures = NO_FAILURES
        self._has_doubted = False
        """The service has once refused the position, since the last event."""
        self.resume_at = float("-inf")
        """The earliest time of the next subscription."""

    def event_came(self) -> None:
        """Forget the failures so far."""
        self._failures = NO_FAILURES
        self._has_doubted = False

    def doubt(self) -> Cause:
        """Return the cause of a position that the service does not know: final the second time."""
        cause = Cause.FINAL if self._has_doubted else Cause.DOUBTED
        self._has_doubted = True
        return cause

    def pause_after(self, cause: Cause, age: float | None) -> float | None:
        """Count an interruption; return the seconds to wait, or None if no retry helps any more.

        age: that of the last subscription, as for the function `pause_after`.
        """
        now = self._retry.clock()
        pause = pause_after(cause, self._failures, age, self._retry)
        self._failures = self._failures.with_failure(cause, now)
        if cause is Cause.FINAL or self._failures.duration(now + pause) > self._retry.give_up_after:
            return None
        if pause:
            self.resume_at = now + pause
        return pause
