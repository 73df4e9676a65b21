"""The delivery of batches to a record processor, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from sparkinesis.errors import LeaseLostError, ProcessorError, SparkinesisError
from sparkinesis.events import BatchAction, Span
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.rules.lease_start import WantedRecords
from sparkinesis.metrics.tracing import Extent
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Sentinel
from sparkinesis.stream.reading.early_records import OutOfOrderError
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.dead_letters.targets import FailedRecords, hand_over
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.automatic_checkpoints import AutomaticCheckpoints
from sparkinesis.worker.lifecycle.shard.intake import Intake
from sparkinesis.worker.lifecycle.shard.reaction import Attempt, backoff, react
from sparkinesis.worker.lifecycle.shard.standing import Front
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason
from sparkinesis.worker.on_error import DeadLetter, last_resort
from sparkinesis.worker.processors.processor import RecordProcessor

IDLE = 15.0
"""Seconds until the next step, if no page is announced: there may be pages of a silence, which tell
until when no record has come."""
_WITH_SINKS = 3.0
"""The same of a shard with sinks, whose rows may be due."""


class Next(NamedTuple):
    """The time at which `Deliverer.process` is to be called again, or the end."""

    pause: float | None = None
    """The seconds until the next step; None: at once."""
    end: ShutdownReason | None = None
    """The reason why the shard's consumer is to end; None: there is none."""


class Deliverer:
    """Delivers one shard's batches in order. For the thread of the shard's consumer.

    Delivery permits checkpoints of the batch's records; a failure takes the permission back.
    """

    def __init__(
        self,
        held: HeldLease,
        intake: Intake,
        processor: RecordProcessor,
        checkpointer: Checkpointer,
        settings: ConsumerSettings,
        *,
        is_ending: Callable[[], bool],
    ) -> None:
        self.processing_since: float | None = None
        """The start of the current call of ``process_records``, or None. For any thread."""
        self.records = 0
        """The number of user records in successful calls. For any thread."""
        self.oldest_at: float | None = None
        """The arrival of the oldest record that is not done, by the worker's clock; None: there is
        none. For any thread."""
        self._front: Front | None = None
        self.refused_since: float | None = None
        """Since when automatic checkpoints fail; None: the last one did not. For any thread."""
        self.stopped_by: BaseException | None = None
        """The error for which ``on_error`` stops the shard; None otherwise."""
        self.automatic = AutomaticCheckpoints(
            checkpointer, settings.options, settings.checkpoint_clock
        )
        self.name = settings.describe_shard(held.shard_id)
        self.measures = settings.measures(held.shard_id)
        self.processor = processor
        self.checkpointer = checkpointer
        self._settings = settings
        self._is_ending = is_ending
        self._intake = intake
        self._held = held
        self._queue: deque[Attempt] = deque()
        self._done = checkpointer.last
        self._refused_checkpoints = 0
        """Automatic checkpoints that have failed since the last success."""
        self._rewind_to: AfterRecord | AtTimestamp | Sentinel | None = None
        """The position to read again from, as records behind it were left out; None: none were."""
        self._report = settings.reporter(held.shard_id)

    def __bool__(self) -> bool:
        """True while a batch is left to deliver."""
        return bool(self._queue)

    @property
    def front(self) -> Front | None:
        """The first records that were given to the processor and are not done. For any thread."""
        return self._front

    def add(self, batch: RecordBatch, arrived: float | None = None) -> None:
        """Add a batch; ``arrived``: when its first record did, by the worker's clock."""
        self._queue.append(Attempt(batch))
        self.oldest_at = arrived

    def clear(self) -> None:
        """Drop all batches: the processor has reset its shard."""
        self._queue.clear()
        self._leave_front()
        self._done = self.checkpointer.last
        self.automatic.clear()

    def settle(self) -> bool:
        """Return True once no call runs: here, whenever a step is taken."""
        return True

    def process(self) -> Next:
        """Take the next batch if none is left, and deliver it.

        Raises the errors of `Intake.take` and `deliver_next`, and `LeaseLostError`.
        """
        checkpointer, intake, options = self.checkpointer, self._intake, self._settings.options
        self._begin_anew_after_reset()
        pause = self._checkpoint_if_due()
        if pause is not None:
            return Next(pause)
        if not self._queue:
            batch = self._take()
            if batch is None and not intake.at_end:
                return Next(self._soonest(IDLE))
            if batch is not None and (
                batch or options.call_even_for_empty_batches or checkpointer.sinks.is_due
            ):
                self.add(batch, intake.oldest_at)
        if not self._held.is_held():
            return Next(end=ShutdownReason.LEASE_LOST)
        if not self._queue:
            self._note_silence()
        try:
            pause = self.deliver_next()
        except ValueError as error:
            if not isinstance(error, SparkinesisError):
                # A sequence number in the middle of the batch is none, which no check has seen.
                self._queue.clear()
                intake.take_again()
            raise
        is_over = intake.at_end and not self._queue and not checkpointer.is_reset
        return Next(
            self._soonest(pause) if pause > 0 else None,
            intake.why_at_end if is_over else None,
        )

    def _take(self) -> RecordBatch | None:
        """Return the intake's next batch; None also if earlier records are to be read first."""
        if self._rewind_to is None:
            try:
                return self._intake.take(self._batches_in_use)
            except OutOfOrderError as found:
                self._report.task_failed(f"Fetching failed on {self.name}; it begins anew", found)
                self._rewind_to = found.resume_at
        # If this fails, it is tried again before anything else is taken: the intake would go on
        # behind the records that were left out.
        self.checkpointer.rewind(self._rewind_to)
        self._rewind_to = None
        return None

    def hold(self) -> float:
        """Deliver nothing, but follow a reset, and write checkpoints that are due.

        Returns the seconds until the next step. Raises `LeaseLostError`.
        """
        self._begin_anew_after_reset()
        self._intake.rest(self._batches_in_use)
        return self.checkpoint_meanwhile()

    @property
    def _batches_in_use(self) -> int:
        """The number of batches of the intake that are still to be delivered."""
        return int(bool(self._queue))

    def checkpoint_meanwhile(self) -> float:
        """Checkpoint while the last calls run; return the seconds until the next step."""
        pause = self._checkpoint_if_due()
        return self._soonest(IDLE) if pause is None else pause

    def _begin_anew_after_reset(self) -> None:
        """If the processor has reset its shard, read from the new position on."""
        reset_to = self.checkpointer.take_reset()
        if reset_to is not None:
            self.clear()
            unread = WantedRecords(reset_to) if isinstance(reset_to, AtTimestamp) else None
            self._intake.begin(reset_to, unread=unread)

    def _soonest(self, pause: float) -> float:
        """Return the seconds to wait, until a checkpoint is due at most."""
        if self.checkpointer.sinks.are_in_use:
            pause = min(pause, _WITH_SINKS)
        due_in = self.automatic.due_in
        return pause if due_in is None else min(pause, due_in)

    def _checkpoint_if_due(self) -> float | None:
        """Write an automatic checkpoint if one is due; return the seconds to wait if that failed.

        More records than the options allow would otherwise have to be processed again.
        """
        try:
            self.automatic.write_if_due()
        except LeaseLostError:
            raise
        except SparkinesisError as error:
            self._report.task_failed(
                f"An automatic checkpoint failed on {self.name}; no more records are processed "
                "until it succeeds",
                error,
            )
            if not self._refused_checkpoints:
                self.refused_since = self._settings.clock()
            self._refused_checkpoints += 1
            return backoff(self._settings.options.task_backoff, self._refused_checkpoints)
        self._refused_checkpoints, self.refused_since = 0, None
        return None

    def _note_silence(self) -> None:
        """Note in the lease up to when no record followed the checkpoint, if that is known.

        A later reader of a quiet shard then does not mistake the silence for lost records.
        """
        at, reached = self.checkpointer.settled, self._intake.reached
        if at is None or self._intake.at_end:
            return
        if isinstance(reached, AfterRecord) and reached.sequence_number == at.sequence_number:
            self._held.known = at, replace(reached, sub_sequence_number=None)
        elif isinstance(reached, AtTimestamp) and at.is_sentinel:
            self._held.known = at, reached

    def deliver_next(self) -> float:
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
                self._leave_front()
                return 0.0
        room = self.automatic.room
        if room is not None and len(batch) > room:
            self._queue.insert(1, Attempt(batch.slice(room, len(batch))))
            batch = batch.slice(0, room)
            attempt = self._queue[0] = replace(attempt, batch=batch)
        if batch:
            self.checkpointer.permit(batch.last, batch)
        self.checkpointer.sinks.begin_call()
        began = self.processing_since = self._settings.clock()
        self._note_front(attempt, began)
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
            self.processing_since = None
            self.checkpointer.end_call()
        self._report.forget_failure()
        self.records += len(batch)
        self.measures.processed(len(batch), batch.data_bytes, began)
        self._pass(batch, since)
        return 0.0

    def _undone(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch without what a pending checkpoint has covered since it was fetched."""
        last = self.checkpointer.last
        return batch if last <= self._done else batch.after(last)

    def _put_off(self, attempt: Attempt, pause: float) -> float:
        """Schedule another try in ``pause`` seconds, and return ``pause``."""
        self._queue[0] = replace(attempt, not_before=self._settings.clock() + pause)
        return pause

    def _pass(self, batch: RecordBatch, since: float | None = None) -> None:
        """Remove the first batch, which is done; ``since``: the start of its call, or None."""
        self._queue.popleft()
        self._leave_front()
        if batch:
            self._done = batch.last
            self.automatic.processed(batch, self.automatic.now() if since is None else since)

    def _note_front(self, attempt: Attempt, now: float) -> None:
        """Note the records that are given to the processor now, for the first time or again."""
        before = self._front
        since = now if before is None else before.since
        self._front = Front(since, attempt.batch, attempt.failures + attempt.denials > 0)

    def _leave_front(self) -> None:
        """Note that the first records are done, or dropped."""
        self._front = None
        if not self._queue:
            self.oldest_at = None

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
                    self._pass(attempt.batch)
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
        if batch:
            self.checkpointer.permit(batch.last, batch)
            self.checkpointer.end_call()
        self._pass(batch)
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
                f"The dead-letter target failed on {span_of(batch)} of {self.name}; it will be "
                "retried",
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
