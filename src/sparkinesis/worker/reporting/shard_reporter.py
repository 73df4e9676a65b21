"""The reports of one shard: its events, its failures, and what is measured of its processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

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
from sparkinesis.metrics import metrics as measuring
from sparkinesis.metrics.catalogue import (
    BYTES_PROCESSED,
    CHECKPOINT_DURATION,
    PROCESS_DURATION,
    RECORDS_FILTERED,
    RECORDS_PROCESSED,
)
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import OFF, Extent, Metrics, tracing_of
from sparkinesis.status import Failure
from sparkinesis.worker.reporting.event_log import EventPublisher
from sparkinesis.worker.reporting.failures import Failures, describe


class ShardPlace(NamedTuple):
    """The shard that events are about: the first fields of `ShardEvent`."""

    lease: str
    shard_id: str
    stream: str
    place: str


class ShardReporter:
    """Reports what happens to one shard. For the thread of the shard's consumer, but for `lost`."""

    def __init__(self, at: ShardPlace, failures: Failures, publish: EventPublisher) -> None:
        self.place = at.place
        """The shard, for people."""
        self._at = at
        self._failures = failures
        self._publish = publish
        self._last_failure: str | None = None
        """The fingerprint of the last failure, until a success."""

    def started(self, position: object, checkpoint: object) -> None:
        self._publish(ShardStarted(*self._at, str(position), str(checkpoint)))

    def ended(self, children: Sequence[str], records: int, *, rest_is_lost: bool) -> None:
        self._publish(ShardEnded(*self._at, tuple(children), records, rest_is_lost))

    def stopped(self, error: BaseException) -> None:
        self._publish(ShardStopped(*self._at, describe(error)))

    def batch_failed(self, span: Span, action: BatchAction, error: BaseException) -> None:
        """Report a ``process_records`` that raised, and count the failure.

        A shard that is being released may have lost its lease, and then a checkpoint is refused:
        that is no failure.
        """
        failure, is_again = None, False
        if not (action is BatchAction.RELEASE and isinstance(error, LeaseLostError)):
            what = batch_failed(span, self.place, action)
            failure, is_again = self._note(what, error)
        self._publish(
            BatchFailed(*self._at, *span, action, describe(error), failure, is_again),
            _to_show(failure, error),
        )

    def task_failed(self, what: str, error: BaseException) -> None:
        """Report that ``what`` failed, and count the failure."""
        failure, is_again = self._note(what, error)
        self._publish(TaskFailed(*self._at, what, failure, is_again), _to_show(failure, error))

    def forget_failure(self) -> None:
        """Note a success: the next failure is not a repetition."""
        self._last_failure = None

    def skipped(self, span: Span) -> None:
        self._publish(RecordsSkipped(*self._at, *span))

    def stored(self, span: Span) -> None:
        self._publish(DeadLettersStored(*self._at, *span))

    def checkpoint_refused(self, error: BaseException) -> None:
        self._publish(CheckpointRefused(*self._at, str(error)))

    def lost(self, what: str) -> None:
        """Report that records have expired unread, and count that with the failures."""
        summary = f"Records expired before they were read, on {self.place}"
        self._failures.note(self._at.lease, summary, DataLossError(what))
        self._publish(DataLost(*self._at, what))

    def skipping(self, until_ms: int) -> None:
        self._publish(OldRecordsSkipped(*self._at, until_ms))

    def took_too_long(self, seconds: float, limit: float, *, gives_up: bool) -> None:
        self._publish(ProcessingTimeExceeded(*self._at, seconds, limit, gives_up))

    def stands_still(self, seconds: float, since_ms: int, why: str) -> None:
        self._publish(ShardStandsStill(*self._at, seconds, since_ms, why))

    def went_on(self, seconds: float) -> None:
        self._publish(ShardWentOn(*self._at, seconds))

    def died(self) -> None:
        self._publish(ReaderDied(*self._at))

    def _note(self, what: str, error: BaseException) -> tuple[Failure, bool]:
        """Count a failure; return it, and True if the one before was the same."""
        failure = self._failures.note(self._at.lease, what, error)
        is_again = failure.count > 1 and failure.fingerprint == self._last_failure
        self._last_failure = failure.fingerprint
        return failure, is_again


def _to_show(failure: Failure | None, error: BaseException) -> BaseException | None:
    """Return the error if the log is to show its traceback, which it does once for each failure."""
    return error if failure is not None and failure.count == 1 else None


_T = TypeVar("_T")


class ShardMeasures:
    """Takes the measurements of one shard, and opens its spans. For any thread.

    With metrics off, no clock is read, and no bytes are counted.
    """

    def __init__(
        self, metrics: Metrics, stream: str, shard_id: str, clock: Callable[[], float]
    ) -> None:
        self._metrics = metrics
        self._is_on = metrics is not OFF
        self._labels = (stream, shard_id)
        self._tracing = tracing_of(metrics)
        self._clock = clock

    def processing(self, extent: Callable[[], Extent | None]) -> measuring.Span:
        """Open the span of a ``process_records`` for the records of ``extent``."""
        return self._tracing.process(*self._labels, extent)

    def processed(self, records: int, data_bytes: Callable[[], int], began: float) -> None:
        """Count a call of ``process_records`` that returned; ``began``: the time of the call."""
        self._took(PROCESS_DURATION, "ok", began)
        if self._is_on and records:
            self._metrics.add(RECORDS_PROCESSED, self._labels, records)
            self._metrics.add(BYTES_PROCESSED, self._labels, data_bytes())

    def processing_failed(self, began: float) -> None:
        """Count a call of ``process_records`` that raised; ``began``: the time of the call."""
        self._took(PROCESS_DURATION, "failed", began)

    def filtered(self, records: int) -> None:
        """Count user records that ``hash_range_filter`` dropped."""
        self._metrics.add(RECORDS_FILTERED, self._labels, records)

    def call(
        self,
        histogram: Metric,
        act: Callable[[], _T],
        refused: tuple[type[BaseException], ...] = (),
    ) -> _T:
        """Call ``act``, and measure it: ok, refused if it raises ``refused``, or failed."""
        began, result = self._clock() if self._is_on else 0.0, "ok"
        try:
            return act()
        except BaseException as error:
            result = "refused" if isinstance(error, refused) else "failed"
            raise
        finally:
            self._took(histogram, result, began)

    def checkpoint(self, at: str, write: Callable[[], None]) -> None:
        """Write a checkpoint by ``write``, and measure it; ``at``: its sequence number."""
        with self._tracing.checkpoint(*self._labels, at):
            self.call(CHECKPOINT_DURATION, write, refused=(LeaseLostError,))

    def _took(self, histogram: Metric, result: str, began: float) -> None:
        if self._is_on:
            self._metrics.observe(histogram, (*self._labels, result), self._clock() - began)


def unmeasured(clock: Callable[[], float]) -> ShardMeasures:
    """Return the measurements of a shard without metrics."""
    return ShardMeasures(OFF, "", "", clock)
