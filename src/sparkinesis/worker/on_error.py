"""The policies for a ``process_records`` that raises: retry, skip, dead-letter, stop the shard.

Policies are values that the shard consumer applies. Every record that a policy gives up is logged.
A policy is not applied when the lease is lost or a shutdown was requested, nor when a checkpoint
fails for a reason outside of the records: the lease table does not answer
(`LeaseTableUnavailableError`), is missing (`LeaseTableError`) or refuses writes
(`AccessDeniedError`), or a sink's storage does not answer (`SinkUnavailableError`). The records are
then delivered again, by this worker or another one.

A `ProcessorError` is not subject to a policy either: it is a mistake in the program, such as a call
that returns a coroutine instead of doing its work. An object of asyncio that is used outside of its
event loop becomes one after the attempts of a `Retry`. It ends the worker, and the records are
delivered again once the program is corrected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sparkinesis.errors import OptionError
from sparkinesis.public import public
from sparkinesis.stream.calls.retry import exponential_backoff
from sparkinesis.worker.dead_letters.targets import DeadLetterTarget, check_target


@public
@dataclass(frozen=True, slots=True)
class Skip:
    """Log the records that fail, and continue with the next ones."""


@public
@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Give the records that fail to ``target``, and continue with the next ones.

    target: a `DeadLetterStream`, a `DeadLetterDirectory`, or a function that takes a
    `FailedRecords`. A target that raises is retried until it succeeds; the shard waits for it.

    Raises `OptionError` for a target that cannot take records.
    """

    target: DeadLetterTarget

    def __post_init__(self) -> None:
        check_target(self.target)


@public
@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the shard: release its lease, and do not take the lease again until a restart.

    `Worker.restart` and ``sparkinesis restart`` restart the shard; so does a new process.
    Other workers take the shard. If none of them can process a record, the count
    ``ownerSwitchesSinceCheckpoint`` in the lease table's row rises.
    """


@public
@dataclass(frozen=True, slots=True)
class Retry:
    """Deliver the same records again, then apply ``then``.

    attempts: the number of calls in all, at most. Default: None, unlimited.
    base, cap: seconds; the n-th wait is drawn evenly from 0 to ``min(cap, base * 2**n)``. Defaults:
    0.5 and 30.
    then: `Skip`, `DeadLetter` or `Stop`. Default: `Stop`.
    """

    attempts: int | None = None
    base: float = 0.5
    cap: float = 30.0
    then: Skip | DeadLetter | Stop = Stop()

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise OptionError(f"attempts is {self.attempts}; it must be at least 1, or None.")
        if self.base < 0 or self.cap < 0:
            raise OptionError(
                f"base of Retry is {self.base} and cap is {self.cap} (seconds); neither may be "
                "negative."
            )
        if not isinstance(self.then, Skip | DeadLetter | Stop):
            raise OptionError(
                f"then of Retry is {self.then!r}; it must be Skip(), DeadLetter(target) or Stop()."
            )


RETRY = Retry()
"""The default: retry without end. Nothing is lost; a record that never succeeds blocks its shard,
and each failure is logged."""

OnError: TypeAlias = Retry | Skip | DeadLetter | Stop


def wait_before_retry(
    policy: OnError, failures: int, uniform: Callable[[float, float], float]
) -> float | None:
    """Return the seconds until the next try after ``failures`` failures; None: no more tries."""
    if not isinstance(policy, Retry):
        return None
    if policy.attempts is not None and failures >= policy.attempts:
        return None
    return uniform(0.0, exponential_backoff(policy.base, policy.cap, failures))


def last_resort(policy: OnError) -> Skip | DeadLetter | Stop:
    """Return what to do once there are no more tries."""
    return policy.then if isinstance(policy, Retry) else policy


def check_policy(policy: object) -> None:
    """Raise `OptionError` if ``policy`` is not a policy."""
    if not isinstance(policy, Retry | Skip | DeadLetter | Stop):
        raise OptionError(
            f"on_error is {policy!r}; it must be Retry(), Skip(), DeadLetter(target) or Stop()."
        )
