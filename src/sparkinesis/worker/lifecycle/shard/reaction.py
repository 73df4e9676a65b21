"""The reaction to a ``process_records`` that raised, by the policy of ``on_error``. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from sparkinesis.errors import (
    AccessDeniedError,
    LeaseTableError,
    LeaseTableUnavailableError,
    ProcessorError,
    SinkUnavailableError,
)
from sparkinesis.events import BatchAction
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.stream.calls.retry import exponential_backoff
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.on_error import DeadLetter, Stop, last_resort, wait_before_retry
from sparkinesis.worker.reporting.failures import describe, of_another_loop

LONGEST_BACKOFF = 30.0
"""The longest wait in seconds between two tries of a task that the shard depends on."""

_DENIALS = (AccessDeniedError, LeaseTableError)
_OUTAGES = (*_DENIALS, LeaseTableUnavailableError, SinkUnavailableError)
"""Errors of a lease table or of a sink's storage that did not answer, or refused."""


def backoff(base: float, failures: int) -> float:
    """Return the seconds to wait after a number of failures in a row: doubled, up to a limit."""
    return exponential_backoff(base, LONGEST_BACKOFF, failures)


class Attempt(msgspec.Struct, frozen=True):
    """Records to deliver, and the failures of earlier tries."""

    batch: RecordBatch
    failures: int = 0
    not_before: float = float("-inf")
    given_up: BaseException | None = None
    """The error for which the records are given up; None: they are delivered again."""
    refusals: int = 0
    """Consecutive failures of the dead-letter target."""
    denials: int = 0
    """Consecutive checkpoints that the lease table refused."""


class Reaction(NamedTuple):
    """What becomes of the records of a call that raised."""

    action: BatchAction
    rest: Attempt
    """The records that no checkpoint covers, with their failures."""
    pause: float = 0.0
    """The seconds until they are delivered again."""


def react(
    attempt: Attempt,
    error: BaseException,
    settings: ConsumerSettings,
    last: ExtendedSequenceNumber,
    *,
    is_ending: bool,
    is_reset: bool,
) -> Reaction:
    """Return the reaction to an error of ``process_records``.

    last: the last checkpoint. is_ending: the shard is being left, or its lease is lost. is_reset:
    the processor has moved the shard elsewhere.

    Raises `ProcessorError` where records would be given up that are not at fault: the program uses
    an object of asyncio outside of its event loop.
    """
    if is_ending:
        # The next owner of the shard will find out whether the records are at fault.
        return Reaction(BatchAction.RELEASE, attempt)
    if is_reset:
        return Reaction(BatchAction.NONE_LEFT, attempt)  # the reset dropped these records
    rest = attempt.batch
    if rest:
        rest = rest.after(last)
        if not rest:
            return Reaction(BatchAction.NONE_LEFT, attempt)
    if _cause(error, _OUTAGES):
        # The records are not at fault, and the policy would give up good ones. The retries of a
        # call have waited for an outage already. A refusal comes at once, and may last for hours,
        # so its waits grow.
        denials = attempt.denials + 1 if _cause(error, _DENIALS) else 0
        pause = backoff(settings.options.task_backoff, max(1, denials))
        return Reaction(BatchAction.WAIT, replace(attempt, batch=rest, denials=denials), pause)
    again = Attempt(rest, attempt.failures + 1)
    wait = wait_before_retry(settings.on_error, again.failures, settings.uniform)
    if wait is not None:
        return Reaction(BatchAction.RETRY, again, wait)
    if cause := of_another_loop(error):
        raise ProcessorError(
            f"The record processor of application {settings.application!r} failed for a reason "
            f"that all records share: {describe(cause)}. No record is given up: all come again "
            "once the program is corrected."
        ) from error
    resort = last_resort(settings.on_error)
    if isinstance(resort, Stop):
        return Reaction(BatchAction.STOP, again)
    if len(rest) > 1:
        return Reaction(BatchAction.SPLIT, again)
    if len(rest) < len(attempt.batch):
        # The record failed in a batch with others, which are checkpointed now: retry it alone.
        return Reaction(BatchAction.RETRY, again)
    is_letter = rest and isinstance(resort, DeadLetter)
    return Reaction(BatchAction.DEAD_LETTER if is_letter else BatchAction.SKIP, again)


def _cause(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Return True if the error, or one of its causes, is of one of these types."""
    cause: BaseException | None = error
    for _ in range(10):  # the chain may be circular
        if cause is None or isinstance(cause, kinds):
            break
        cause = cause.__cause__
    return isinstance(cause, kinds)
