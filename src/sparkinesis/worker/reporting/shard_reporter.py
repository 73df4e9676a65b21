"""The events of one shard: makes them, and counts its failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparkinesis.errors import DataLossError, LeaseLostError
from sparkinesis.events import (
    BatchAction,
    BatchFailed,
    CheckpointRefused,
    DataLost,
    DeadLettersStored,
    OldRecordsSkipped,
    ProcessingTimeExceeded,
    ReaderDied,
    RecordsSkipped,
    ShardEnded,
    ShardStandsStill,
    ShardStarted,
    ShardStopped,
    ShardWentOn,
    Span,
    TaskFailed,
    batch_failed,
)
from sparkinesis.status import Failure
from sparkinesis.worker.reporting.failures import Failures, describe
from sparkinesis.worker.reporting.teller import Teller


class ShardPlace(NamedTuple):
    """The shard that events are about: the first fields of `ShardEvent`."""

    lease: str
    shard_id: str
    stream: str
    place: str


class ShardReporter:
    """Reports what happens to one shard. For the thread of the shard's consumer, but for `lost`."""

    def __init__(self, at: ShardPlace, failures: Failures, tell: Teller) -> None:
        self._at = at
        self._failures = failures
        self._tell = tell
        self._last_failure: str | None = None
        """The fingerprint of the last failure, until a success."""

    def started(self, position: object, checkpoint: object) -> None:
        self._tell(ShardStarted(*self._at, str(position), str(checkpoint)))

    def ended(self, children: Sequence[str], records: int, *, rest_is_lost: bool) -> None:
        self._tell(ShardEnded(*self._at, tuple(children), records, rest_is_lost))

    def stopped(self, error: BaseException) -> None:
        self._tell(ShardStopped(*self._at, describe(error)))

    def batch_failed(self, span: Span, action: BatchAction, error: BaseException) -> None:
        """Report a ``process_records`` that raised, and count the failure.

        A shard that is being released may have lost its lease, and then a checkpoint is refused:
        that is no failure.
        """
        failure, is_again = None, False
        if not (action is BatchAction.RELEASE and isinstance(error, LeaseLostError)):
            what = batch_failed(span, self._at.place, action)
            failure, is_again = self._note(what, error)
        self._tell(
            BatchFailed(*self._at, *span, action, describe(error), failure, is_again),
            _to_show(failure, error),
        )

    def task_failed(self, what: str, error: BaseException) -> None:
        """Report that ``what`` failed, and count the failure."""
        failure, is_again = self._note(what, error)
        self._tell(TaskFailed(*self._at, what, failure, is_again), _to_show(failure, error))

    def forget_failure(self) -> None:
        """Note a success: the next failure is not a repetition."""
        self._last_failure = None

    def skipped(self, span: Span) -> None:
        self._tell(RecordsSkipped(*self._at, *span))

    def stored(self, span: Span) -> None:
        self._tell(DeadLettersStored(*self._at, *span))

    def checkpoint_refused(self, error: BaseException) -> None:
        self._tell(CheckpointRefused(*self._at, str(error)))

    def lost(self, what: str) -> None:
        """Report that records have expired unread, and count that with the failures."""
        summary = f"Records expired before they were read, on {self._at.place}"
        self._failures.note(self._at.lease, summary, DataLossError(what))
        self._tell(DataLost(*self._at, what))

    def skipping(self, until_ms: int) -> None:
        self._tell(OldRecordsSkipped(*self._at, until_ms))

    def took_too_long(self, seconds: float, limit: float, *, gives_up: bool) -> None:
        self._tell(ProcessingTimeExceeded(*self._at, seconds, limit, gives_up))

    def stands_still(self, seconds: float, since_ms: int, why: str) -> None:
        self._tell(ShardStandsStill(*self._at, seconds, since_ms, why))

    def went_on(self, seconds: float) -> None:
        self._tell(ShardWentOn(*self._at, seconds))

    def died(self) -> None:
        self._tell(ReaderDied(*self._at))

    def _note(self, what: str, error: BaseException) -> tuple[Failure, bool]:
        """Count a failure; return it, and True if the one before was the same."""
        failure = self._failures.note(self._at.lease, what, error)
        is_again = failure.count > 1 and failure.fingerprint == self._last_failure
        self._last_failure = failure.fingerprint
        return failure, is_again


def _to_show(failure: Failure | None, error: BaseException) -> BaseException | None:
    """Return the error if the log is to show its traceback, which it does once for each failure."""
    return error if failure is not None and failure.count == 1 else None
