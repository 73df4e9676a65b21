"""The delivery of batches to a record processor, one after the other, and what failures lead to."""

# What may be checkpointed follows the calls: a call permits checkpoints of its records before it
# begins, because the processor may checkpoint within it, and a failure takes the permission back,
# with the rows that the call wrote to sinks. So no checkpoint covers a record whose last call has
# failed, and no row is stored of one.
#
# A failure is judged by what is at fault, before `on_error` is asked (`react`):
#
# - A lost lease, a lease table that does not answer or refuses, and a sink's storage that is away
#   are no fault of the records. When they counted as failures, `Stop` had every worker in turn
#   leave the shard alone for good, and `DeadLetter` was given good records.
# - A mistake in the processor's class (`ProcessorError`) would fail with each batch: it ends the
#   worker, and gives up no record.
# - Else a batch is halved until a record fails alone, and only that is given up. What is left of a
#   batch after a checkpoint within it is tried alone first, even if it is one record: it has only
#   failed together with others. Good records went to the dead letters with bad ones before.
#
# The waits for a dead-letter target follow its own refusals. When those of the processor counted,
# one for each halving, a target that had refused once was waited for half a minute.

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import ClassVar

from msgspec.structs import replace

from sparkinesis.errors import LeaseLostError, ProcessorError
from sparkinesis.events import BatchAction, Span
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.metrics.metrics import Extent
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.dead_letters.targets import FailedRecords, hand_over
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.automatic_checkpoints import AutomaticCheckpoints
from sparkinesis.worker.lifecycle.shard.lag import CallWatch, Front
from sparkinesis.worker.lifecycle.shard.reaction import Attempt, backoff, react
from sparkinesis.worker.on_error import DeadLetter, last_resort
from sparkinesis.worker.processors.processor import RecordProcessor


class Deliverer:
    """Delivers one shard's batches in order. For the thread of the shard's consumer."""

    takes_ahead: ClassVar[bool] = False
    """True if several batches may be added in one step."""

    def __init__(
        self,
        held: HeldLease,
        processor: RecordProcessor,
        checkpointer: Checkpointer,
        settings: ConsumerSettings,
        *,
        is_ending: Callable[[], bool],
    ) -> None:
        self.calls = CallWatch()
        self.stopped_by: BaseException | None = None
        """The error for which ``on_error`` stops the shard; None otherwise."""
        self.processor = processor
        self.checkpointer = checkpointer
        self.measures = settings.measures(held.shard_id)
        self._settings = settings
        self._is_ending = is_ending
        self._held = held
        self._report = settings.reporter(held.shard_id)
        self.automatic = AutomaticCheckpoints(checkpointer, settings, self._report)
        self._queue: deque[Attempt] = deque()
        self._done = checkpointer.last

    def __bool__(self) -> bool:
        """True while a batch is left to deliver."""
        return bool(self._queue)

    @property
    def front(self) -> Front | None:
        """The first records that were given to the processor and are not done. For any thread."""
        return self.calls.front

    # --- what a step of the shard does, in this order

    def settle(self) -> bool:
        """Take the calls that have ended; return True once none runs: here, at each step."""
        return True

    @property
    def is_stopping(self) -> bool:
        """True once ``on_error`` stops the shard, and no other call begins: here never."""
        return False

    def clear(self) -> None:
        """Drop all batches: the processor has reset its shard."""
        self._queue.clear()
        self.calls.leave(are_others_left=False)
        self._done = self.checkpointer.last
        self.automatic.clear()

    @property
    def has_room(self) -> bool:
        """True if another batch may be added."""
        return not self._queue

    @property
    def wants_empty(self) -> bool:
        """True if a batch without records may be added, so that the processor can act on time."""
        options = self._settings.options
        return options.call_even_for_empty_batches or self.checkpointer.sinks.is_due

    @property
    def batches_in_use(self) -> int:
        """The number of batches that were added and are not delivered yet."""
        return int(bool(self._queue))

    def add(self, batch: RecordBatch, arrived: float | None = None) -> None:
        """Add a batch; ``arrived``: when its first record did, by the worker's clock."""
        self._queue.append(Attempt(batch))
        self.calls.oldest_at = arrived

    def drop(self) -> bool:
        """Drop the batch, which is to be fetched again; return False if its calls have begun."""
        self._queue.clear()
        return True

    def deliver(self) -> float:
        """Deliver the next batch, if one is due; return the seconds until the next try; 0: at once.

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
                self.calls.leave(are_others_left=bool(self._queue))
                return 0.0
        room = self.automatic.room
        if room is not None and len(batch) > room:
            self._queue.insert(1, Attempt(batch.slice(room, len(batch))))
            batch = batch.slice(0, room)
            attempt = self._queue[0] = replace(attempt, batch=batch)
        last = batch.last if batch else None
        if last is not None:
            self.checkpointer.permit(last, batch)
        self.checkpointer.sinks.begin_call()
        began = self._settings.clock()
        self.calls.begin(attempt.batch, began, has_failed=attempt.failures + attempt.denials > 0)
        since = self.automatic.now()
        try:
            with self.measures.processing(partial(_extent, batch)):
                self._settings.calls.call(self.processor.process_records, batch, self.checkpointer)
        except ProcessorError:
            # A mistake in the program, which every other batch would meet as well.
            self.measures.processing_failed(began)
            self._take_back()
            raise
        except BaseException as error:  # noqa: BLE001 - a user's code may call sys.exit() too
            self.measures.processing_failed(began)
            if isinstance(error, CancelledError) and self._is_ending():
                self._take_back()  # the shard's next owner gets the records
                return 0.0
            return self._failed(attempt, error)
        finally:
            self.calls.end()
            self.checkpointer.end_call()
        self._report.forget_failure()
        count = len(batch)
        self.calls.records += count
        self.measures.processed(count, batch.data_bytes, began)
        self._pass(batch, last, since)
        return 0.0

    def _undone(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch without what a pending checkpoint has covered since it was fetched."""
        last = self.checkpointer.last
        return batch if last <= self._done else batch.after(last)

    def _put_off(self, attempt: Attempt, pause: float) -> float:
        """Schedule another try in ``pause`` seconds, and return ``pause``."""
        self._queue[0] = replace(attempt, not_before=self._settings.clock() + pause)
        return pause

    def _pass(
        self,
        batch: RecordBatch,
        last: ExtendedSequenceNumber | None,
        since: float | None = None,
    ) -> None:
        """Remove the first batch, which is done.

        last: the position of its last record; None: it has none. since: the start of its call.
        """
        self._queue.popleft()
        self.calls.leave(are_others_left=bool(self._queue))
        if last is not None:
            self._done = last
            self.automatic.processed(batch, self.automatic.now() if since is None else since)

    def _take_back(self) -> None:
        """Forbid checkpoints of the current batch, and drop the rows that it wrote to sinks."""
        self.checkpointer.take_back(self._done)
        self.checkpointer.sinks.take_back()

    def _failed(self, attempt: Attempt, error: BaseException) -> float:
        """React to a call that raised; return the seconds until the next try, or 0."""
        span = span_of(attempt.batch)
        self._note_refusal(error)
        self._take_back()
        reaction = react(
            attempt,
            error,
            self._settings,
            self.checkpointer.last,
            is_ending=self._is_ending(),
            is_reset=self.checkpointer.is_reset,
        )
        self._report.batch_failed(span, reaction.action, error)
        match reaction.action:
            case BatchAction.RELEASE:
                pass  # the consumer is ending, and the shard's next owner gets the records
            case BatchAction.NONE_LEFT:
                # After a reset the next step drops all batches, and reads from the new position.
                if not self.checkpointer.is_reset:
                    self._pass(attempt.batch, attempt.batch.last if attempt.batch else None)
            case BatchAction.WAIT | BatchAction.RETRY:
                return self._put_off(reaction.rest, reaction.pause)
            case BatchAction.STOP:
                self.stopped_by = error
            case BatchAction.SPLIT:
                self._split(reaction.rest)
            case BatchAction.SKIP | BatchAction.DEAD_LETTER:
                return self._give_up(reaction.rest, error)
        return 0.0

    def _note_refusal(self, error: BaseException) -> None:
        """Give the lease up if the call raised `LeaseLostError`.

        The lease table may not know yet: a store of the user's own has refused the fencing token.
        """
        if isinstance(error, LeaseLostError):
            self._held.lose(str(error))

    def _split(self, attempt: Attempt) -> None:
        """Deliver halves, to find the records that fail: only these are given up."""
        self._queue.popleft()
        halves = reversed(attempt.batch.halves())
        self._queue.extendleft(Attempt(half, attempt.failures) for half in halves)

    def _give_up(self, attempt: Attempt, error: BaseException) -> float:
        """Give up a record that cannot be processed; return the seconds until another try, or 0."""
        refused = self._hand_over(attempt, error)
        if refused is not None:
            return self._put_off(*refused)
        batch = attempt.batch
        last = batch.last if batch else None
        if last is not None:
            self.checkpointer.permit(last, batch)
            self.checkpointer.end_call()
        self._pass(batch, last)
        return 0.0

    def _hand_over(self, attempt: Attempt, error: BaseException) -> tuple[Attempt, float] | None:
        """Store a record as a dead letter, if asked; else it is skipped.

        Returns the next try, and the seconds until then, if the target failed.
        """
        batch = attempt.batch
        resort = last_resort(self._settings.on_error)
        if not batch or not isinstance(resort, DeadLetter):
            self._report.skipped(span_of(batch))
            return None
        try:
            hand_over(resort.target, self._failed_records(batch, error))
        except BaseException as refusal:  # noqa: BLE001 - a user's function, or a service
            self._report.task_failed(
                f"The dead-letter target failed on {span_of(batch)} of {self._report.place}; it "
                "will be retried",
                refusal,
            )
            refusals = attempt.refusals + 1
            pause = backoff(self._settings.options.task_backoff, refusals)
            return replace(attempt, refusals=refusals, given_up=error), pause
        self._report.stored(span_of(batch))
        return None

    def _failed_records(self, batch: RecordBatch, error: BaseException) -> FailedRecords:
        settings = self._settings
        return FailedRecords(
            batch,
            error,
            settings.application,
            settings.client.address.name,
            self._held.shard_id,
            None if settings.stream is None else str(settings.stream),
        )


def _extent(batch: RecordBatch) -> Extent | None:
    if not batch:
        return None
    first, last = batch.slice(0, 1).last, batch.last
    return Extent(first.sequence_number, last.sequence_number, len(batch))


def span_of(batch: RecordBatch) -> Span:
    if not batch:
        return Span(0, "", "")
    return Span(len(batch), str(batch.slice(0, 1).last), str(batch.last))
