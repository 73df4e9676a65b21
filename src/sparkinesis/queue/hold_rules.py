"""The rules of holds: when one is extended, what becomes of a record, how many to ask for. Pure.

A *hold* is the time for which a received record is ours. It begins when the service processes the
receive, and ends with the visibility timeout. The service's clock cannot be read, so a hold is
counted from before its request was sent, by a monotonic clock: it never ends later here than there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeAlias

from sparkinesis.events import BatchAction
from sparkinesis.queue.address import LONGEST_VISIBILITY
from sparkinesis.queue.client import MOST_ENTRIES
from sparkinesis.stream.calls.retry import exponential_backoff
from sparkinesis.worker.on_error import DeadLetter, OnError, Retry, Skip, Stop, last_resort

Uniform: TypeAlias = Callable[[float, float], float]
"""Draws a number evenly between two."""

QUEUE_RETRY = Retry(base=10.0, cap=3_600.0)
"""The default policy. With the queue's default of 6 receives a record that always fails is tried
for 155 to 310 seconds, so a short outage of a database makes no dead letters."""

_EXTEND_FROM, _EXTEND_TO = 0.5, 0.75
"""The part of a hold after which it is extended: early enough for some failed attempts, and at a
random moment, so that the holds of one receive do not stay together for ever."""
_QUICK = 1.0
"""Seconds that a record may wait in hand for a handler."""
_PART_OF_VISIBILITY = 10
"""A record waits for at most this part (1/n) of its visibility timeout."""


def poll_seconds(wait_time: int, visibility: int) -> int:
    """Return how long a receive waits: at most half of a hold, which begins before the wait."""
    return max(1, min(wait_time, visibility // 2))


def extension_due(sent_at: float, visibility: float, uniform: Uniform) -> float:
    """Return the time at which a hold is extended that a request sent at ``sent_at`` began."""
    return sent_at + visibility * uniform(_EXTEND_FROM, _EXTEND_TO)


def spare_places(concurrency: int, mean_seconds: float | None, visibility: float) -> int:
    """Return how many records may wait in hand beside those that handlers have.

    mean_seconds: of a handler's call; None: not known yet. A record in hand that expires before its
    handler begins is delivered twice, and each delivery is one of the queue's MaxReceiveCount. So
    records wait only where handlers are quick.
    """
    if mean_seconds is None:
        return 0
    longest = MOST_ENTRIES * mean_seconds / concurrency
    return MOST_ENTRIES if longest <= min(_QUICK, visibility / _PART_OF_VISIBILITY) else 0


class Settlement(NamedTuple):
    """What the service is told of a record whose handler has ended."""

    visible_after: int | None
    """Seconds until the record is visible again; None: it is acknowledged."""


ACKNOWLEDGE = Settlement(None)
RELEASE = Settlement(0)


class Verdict(NamedTuple):
    """What becomes of a record whose handler raised."""

    settlement: Settlement
    action: BatchAction = BatchAction.RETRY
    hand_to: DeadLetter | None = None
    """Takes the record before it is acknowledged."""


def verdict(policy: OnError, receive_count: int, uniform: Uniform) -> Verdict:
    """Return what becomes of a record whose handler raised in its n-th delivery.

    The queue's own MaxReceiveCount goes on: it may make a dead letter of the record sooner.
    """
    if isinstance(policy, Retry) and (policy.attempts is None or receive_count < policy.attempts):
        return Verdict(Settlement(retry_seconds(policy, receive_count, uniform)))
    resort = last_resort(policy)
    if isinstance(resort, Stop):
        return Verdict(RELEASE, BatchAction.STOP)
    if isinstance(resort, Skip):
        return Verdict(ACKNOWLEDGE, BatchAction.SKIP)
    return Verdict(ACKNOWLEDGE, BatchAction.DEAD_LETTER, resort)


def retry_seconds(policy: Retry, receive_count: int, uniform: Uniform) -> int:
    """Return the whole seconds until the next delivery, which grow with the deliveries so far.

    Drawn from the upper half of the back-off: a wait near 0 would spend a delivery for nothing.
    """
    most = exponential_backoff(policy.base, policy.cap, max(1, receive_count))
    return min(LONGEST_VISIBILITY, math.ceil(uniform(most / 2, most)))


class Meaning(Enum):
    """What an answer about one receipt handle means."""

    DONE = "done"
    AGAIN = "again"
    """It may succeed if it is asked again."""
    LOST = "lost"
    """The handle is void: the hold has ended, or the record was acknowledged before."""


_VOID = frozenset({"ResourceNotFoundException", "InvalidArgumentException"})
"""The codes after which no other attempt helps (API reference, the Failed entries)."""


def meaning(code: str | None) -> Meaning:
    """Return what the code of a Failed entry means; None: the entry succeeded."""
    if code is None:
        return Meaning.DONE
    return Meaning.LOST if code in _VOID else Meaning.AGAIN
