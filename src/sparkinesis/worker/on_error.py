"""What happens when ``process_records`` raises: retry, skip, dead-letter, or stop the shard.

Policies are values; the shard consumer asks them. None of them loses a record without a word.
They are not asked when the lease is lost, when a shutdown was requested, nor while a checkpoint
cannot be made for no fault of the records: the lease table does not answer
(`LeaseTableUnavailableError`), is missing (`LeaseTableError`) or may not be written to
(`AccessDeniedError`), or a sink's storage does not answer (`SinkUnavailableError`). The records are
delivered again, here or by another worker.

Nor are they asked for a `ProcessorError`, such as for a call that returned a coroutine instead of
doing its work: a mistake in the program, and no fault of any record. The worker ends with it, and
the records come again once the mistake is mended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sparkinesis.errors import OptionError
from sparkinesis.public import public
from sparkinesis.stream.backoff import exponential_backoff
from sparkinesis.worker.dead_letters.targets import DeadLetterTarget, check_target


@public
@dataclass(frozen=True, slots=True)
class Skip:
    """Log the records that fail, and go on behind them."""


@public
@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Give the records that fail to ``target``, and go on behind them.

    ``target``: a function of a `FailedRecords`, a `DeadLetterStream` or a `DeadLetterDirectory`. If
    it raises, it is tried again like ``process_records``; the shard does not go on without it.

    Raises `OptionError` for a target that could not take them.
    """

    target: DeadLetterTarget

    def __post_init__(self) -> None:
        check_target(self.target)


@public
@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the shard: release its lease, and leave it alone for as long as this worker lives.

    Other workers take it; the row's ``ownerSwitchesSinceCheckpoint`` tells of a record that none
    of them can process.
    """


@public
@dataclass(frozen=True, slots=True)
class Retry:
    """Deliver the same records again, ``attempts`` times at most, then do as ``then`` says.

    attempts: calls in all; None, the default, is without end.
    base, cap: seconds; the n-th wait is drawn evenly from 0 to ``min(cap, base * 2**n)``.
    """

    attempts: int | None = None
    base: float = 0.5
    cap: float = 30.0
    then: Skip | DeadLetter | Stop = Stop()

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise OptionError(f"attempts is {self.attempts}; it must be at least 1, or None.")
        if self.base < 0 or self.cap < 0:
            raise OptionError("base and cap of Retry are seconds, and cannot be negative.")
        if not isinstance(self.then, Skip | DeadLetter | Stop):
            raise OptionError(
                f"then of Retry is {self.then!r}; it must be Skip(), DeadLetter(target) or Stop()."
            )


RETRY = Retry()
"""Again and again: nothing is lost, and a record that never succeeds holds up its shard, loudly."""

OnError: TypeAlias = Retry | Skip | DeadLetter | Stop


def wait_before_retry(
    policy: OnError, failures: int, uniform: Callable[[float, float], float]
) -> float | None:
    """Seconds until the next try after so many ``failures``; None: no more tries."""
    if not isinstance(policy, Retry):
        return None
    if policy.attempts is not None and failures >= policy.attempts:
        return None
    return uniform(0.0, exponential_backoff(policy.base, policy.cap, failures))


def last_resort(policy: OnError) -> Skip | DeadLetter | Stop:
    """What to do once there are no more tries."""
    return policy.then if isinstance(policy, Retry) else policy


def check_policy(policy: object) -> None:
    """Raise `OptionError` for what is not a policy."""
    if not isinstance(policy, Retry | Skip | DeadLetter | Stop):
        raise OptionError(
            f"on_error is {policy!r}; it must be Retry(), Skip(), DeadLetter(target) or Stop()."
        )
