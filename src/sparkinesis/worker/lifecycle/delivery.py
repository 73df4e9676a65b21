"""The delivery of batches to a record processor, and of ``on_error``'s decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sparkinesis.errors import (
    AccessDeniedError,
    LeaseTableError,
    LeaseTableUnavailableError,
    ProcessorError,
    SinkUnavailableError,
)
from sparkinesis.events import BatchAction, Span
from sparkinesis.metrics.tracing import Extent
from sparkinesis.stream.backoff import exponential_backoff
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.dead_letters.targets import FailedRecords, hand_over
from sparkinesis.worker.lifecycle.automatic_checkpoints import AutomaticCheckpoints
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.on_error import DeadLetter, Stop, last_resort, wait_before_retry
from sparkinesis.worker.processor import RecordProcessor
from sparkinesis.worker.user_methods import call

LONGEST_BACKOFF = 30.0
"""The longest wait in seconds between two tries of a task that the shard depends on."""


def backoff(base: float, failures: int) -> float:
    """Return the seconds to wait after so many consecutive failures: doubled, up to a limit."""
    return exponential_backoff(base, LONGEST_BACKOFF, failures)


@dataclass(frozen=True, slots=True)
class _Attempt:
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


class Deliverer:
    """Delivers one shard's batches in order. For the thread of the shard's consumer.

    Delivery permits checkpoints of the batch's records; a failure takes the permission back.
    """

    def __init__(
        self,
        shard_id: str,
        processor: RecordProcessor,
        checkpointer: Checkpointer,
        settings: ConsumerSettings,
        is_ending: Callable[[], bool],
    ) -> None:
        self.processing_since: float | None = None
        """The start of the current call of ``process_records``, or None. For any thread."""
        self.records = 0
        """The number of user records in successful calls. For any thread."""
        self.stopped_by: BaseException | None = None
        """The error for which ``on_error`` stops the shard; None otherwise."""
        self.automatic = AutomaticCheckpoints(checkpointer, settings.options, settings.clock)
        self._shard_id = shard_id
        self._name = settings.describe_shard(shard_id)
        self._processor = processor
        self._checkpointer = checkpointer
        self._settings = settings
        self._is_ending = is_ending
        self._queue: deque[_Attempt] = deque()
        self._done = checkpointer.last
        self._report = settings.reporter(shard_id)
        self._measures = settings.measures(shard_id)

    def __bool__(self) -> bool:
        """True while a batch is left to deliver."""
        return bool(self._queue)

    def add(self, batch: RecordBatch) -> None:
        self._queue.append(_Attempt(batch))

    def clear(self) -> None:
        """Drop all batches: the processor has reset its shard."""
        self._queue.clear()
        self._done = self._checkpointer.last
        self.automatic.clear()

    def step(self) -> float:
        """Deliver the next batch, if one is due; return the seconds until the next try, or 0.

        Raises `ProcessorError` for a mistake in the processor's class; the batch is kept.
        """
        if not self._queue:
            return 0.0
        attempt = self._queue[0]
        wait = attempt.not_before - self._settings.clock()
        if wait > 0:
            return wait
        if attempt.given_up is not None:
            return self._give_up(attempt, attempt.given_up)
        batch = self._undone(attempt.batch)
        if batch is not attempt.batch:
            attempt = self._queue[0] = replace(attempt, batch=batch)
            if not batch:
                self._queue.popleft()
                return 0.0
        room = self.automatic.room
        if room is not None and len(batch) > room:
            self._queue.insert(1, _Attempt(batch.slice(room, len(batch))))
            batch = batch.slice(0, room)
            attempt = self._queue[0] = replace(attempt, batch=batch)
        if batch:
            self._checkpointer.deliver(batch.last, batch)
        self._checkpointer.sinks.begin_call()
        began = self.processing_since = self._settings.clock()
        try:
            with self._measures.processing(partial(_extent, batch)):
                call(self._processor.process_records, batch, self._checkpointer)
        except ProcessorError:
            # A mistake in the program, which every other batch would meet as well.
            self._measures.processing_failed(began)
            self._take_back()
            raise
        except BaseException as error:  # noqa: BLE001 - a user's code may call sys.exit() too
            self._measures.processing_failed(began)
            return self._failed(attempt, error)
        finally:
            self.processing_since = None
            self._checkpointer.end_call()
        self._report.forget_failure()
        self.records += len(batch)
        self._measures.processed(len(batch), batch.data_bytes, began)
        self._pass(batch, began)
        return 0.0

    def _undone(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch without what a pending checkpoint has covered since it was fetched."""
        last = self._checkpointer.last
        if not batch or last.is_sentinel or last <= self._done:
            return batch
        return batch.after(last)

    def _put_off(self, attempt: _Attempt, pause: float) -> float:
        """Schedule another try in ``pause`` seconds, and return ``pause``."""
        self._queue[0] = replace(attempt, not_before=self._settings.clock() + pause)
        return pause

    def _pass(self, batch: RecordBatch, since: float | None = None) -> None:
        """Remove the first batch, which is done; ``since``: the start of its call, or None."""
        self._queue.popleft()
        if batch:
            self._done = batch.last
            self.automatic.processed(batch, self._settings.clock() if since is None else since)

    def _take_back(self) -> None:
        """Forbid checkpoints of the current batch, and drop the rows that it wrote to sinks."""
        self._checkpointer.take_back(self._done)
        self._checkpointer.sinks.take_back()

    def _failed(self, attempt: _Attempt, error: BaseException) -> float:
        span = _span(attempt.batch)
        self._take_back()
        action, act = self._reaction(attempt, error)
        self._report.batch_failed(span, action, error)
        return act()

    def _reaction(
        self, attempt: _Attempt, error: BaseException
    ) -> tuple[BatchAction, Callable[[], float]]:
        """Return what becomes of records that failed, and the function that does it."""
        if self._is_ending():
            # The next owner of the shard will find out whether the records are at fault.
            return BatchAction.RELEASE, _go_on
        if self._checkpointer.is_reset:
            return BatchAction.NONE_LEFT, _go_on  # the reset dropped these records
        rest = attempt.batch
        if rest:
            rest = rest.after(self._checkpointer.last)
            if not rest:
                return BatchAction.NONE_LEFT, partial(self._pass_all, attempt.batch)
        if _is_outage(error):
            # The records are not at fault, and the policy would give up good ones.
            return BatchAction.WAIT, partial(self._wait_out, replace(attempt, batch=rest), error)
        policy = self._settings.on_error
        failures = attempt.failures + 1
        pause = wait_before_retry(policy, failures, self._settings.uniform)
        if pause is not None:
            return BatchAction.RETRY, partial(self._put_off, _Attempt(rest, failures), pause)
        resort = last_resort(policy)
        if isinstance(resort, Stop):
            return BatchAction.STOP, partial(self._stop, error)
        if len(rest) > 1:
            return BatchAction.SPLIT, partial(self._split, _Attempt(rest, failures))
        if len(rest) < len(attempt.batch):
            # The record failed in a batch with others, which are checkpointed now: retry it alone.
            return BatchAction.RETRY, partial(self._put_off, _Attempt(rest, failures), 0.0)
        is_letter = rest and isinstance(resort, DeadLetter)
        return (
            BatchAction.DEAD_LETTER if is_letter else BatchAction.SKIP,
            partial(self._give_up, _Attempt(rest, failures), error),
        )

    def _pass_all(self, batch: RecordBatch) -> float:
        self._pass(batch)
        return 0.0

    def _stop(self, error: BaseException) -> float:
        self.stopped_by = error
        return 0.0

    def _split(self, attempt: _Attempt) -> float:
        """Deliver halves, to find the records that fail: only these are given up."""
        self._queue.popleft()
        halves = reversed(attempt.batch.halves())
        self._queue.extendleft(_Attempt(half, attempt.failures) for half in halves)
        return 0.0

    def _wait_out(self, attempt: _Attempt, error: BaseException) -> float:
        """Schedule another try after an error that is not the records' fault.

        The retries of a call have waited for an outage already. A refusal comes at once, and may
        last for hours, so its waits grow.
        """
        denials = attempt.denials + 1 if _cause(error, _DENIALS) else 0
        pause = backoff(self._settings.options.task_backoff, max(1, denials))
        return self._put_off(replace(attempt, denials=denials), pause)

    def _give_up(self, attempt: _Attempt, error: BaseException) -> float:
        """Skip a record that cannot be processed; store it as a dead letter first, if asked."""
        batch = attempt.batch
        resort = last_resort(self._settings.on_error)
        if batch and isinstance(resort, DeadLetter):
            try:
                hand_over(resort.target, self._failed_records(batch, error))
            except BaseException as refusal:  # noqa: BLE001 - a user's function, or a service
                self._report.task_failed(
                    f"The dead-letter target failed on {_span(batch)} of {self._name}; it will be "
                    "retried",
                    refusal,
                )
                refusals = attempt.refusals + 1
                pause = backoff(self._settings.options.task_backoff, refusals)
                return self._put_off(replace(attempt, refusals=refusals, given_up=error), pause)
            self._report.stored(_span(batch))
        else:
            self._report.skipped(_span(batch))
        if batch:
            self._checkpointer.deliver(batch.last, batch)
            self._checkpointer.end_call()
        self._pass(batch)
        return 0.0

    def _failed_records(self, batch: RecordBatch, error: BaseException) -> FailedRecords:
        settings = self._settings
        return FailedRecords(
            batch,
            error,
            settings.application,
            settings.client.address.name,
            self._shard_id,
            None if settings.stream is None else str(settings.stream),
        )


_DENIALS = (AccessDeniedError, LeaseTableError)
_OUTAGES = (*_DENIALS, LeaseTableUnavailableError, SinkUnavailableError)


def _is_outage(error: BaseException) -> bool:
    """Return True if the lease table or a sink's storage did not answer, or refused."""
    return _cause(error, _OUTAGES)


def _cause(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Return True if the error, or one of its causes, is of one of these types."""
    cause: BaseException | None = error
    for _ in range(10):  # the chain may be circular
        if cause is None or isinstance(cause, kinds):
            break
        cause = cause.__cause__
    return isinstance(cause, kinds)


def _extent(batch: RecordBatch) -> Extent | None:
    if not batch:
        return None
    first, last = batch.slice(0, 1).last, batch.last
    return Extent(first.sequence_number, last.sequence_number, len(batch))


def _span(batch: RecordBatch) -> Span:
    if not batch:
        return Span(0, "", "")
    return Span(len(batch), str(batch.slice(0, 1).last), str(batch.last))


def _go_on() -> float:
    """Do nothing more, and go on at once."""
    return 0.0
