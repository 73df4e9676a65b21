"""The delivery of records to a record processor, several at a time, in order for each key."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import NamedTuple

from sparkinesis.errors import ProcessorError
from sparkinesis.events import BatchAction
from sparkinesis.lease.held import HeldLease
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.delivery import IDLE, Deliverer, Next, span_of
from sparkinesis.worker.lifecycle.shard.intake import Intake
from sparkinesis.worker.lifecycle.shard.open_records import OpenRecord, OpenRecords
from sparkinesis.worker.lifecycle.shard.reaction import Attempt, react
from sparkinesis.worker.lifecycle.shard.standing import Front
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason
from sparkinesis.worker.processors.processor import RecordProcessor
from sparkinesis.worker.reporting.failures import of_another_loop

_OPEN = 10
"""Open records for each call that may run: so far one key may be behind the others."""

_NO_THREAD = 1.0
"""Seconds until the next attempt, after the operating system has refused a thread."""


class _Start(NamedTuple):
    """The start of a call."""

    at: float
    """By the worker's clock."""
    since: float
    """By the clock of automatic checkpoints."""


class _Ended(NamedTuple):
    """A call that has ended; ``error``: what it raised."""

    one: OpenRecord
    error: BaseException | None


class ConcurrentDeliverer(Deliverer):
    """Delivers one shard's records, as many at a time as the option ``concurrency`` says.

    For the thread of the shard's consumer; only the calls run elsewhere. Checkpoints are permitted
    up to the end of the unbroken run of finished records.
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
        wake: Callable[[], None],
    ) -> None:
        """``wake``: has `process` called soon; for any thread."""
        super().__init__(held, intake, processor, checkpointer, settings, is_ending=is_ending)
        self._wake = wake
        self._concurrency = settings.options.concurrency or 1
        self._open = OpenRecords(_OPEN * self._concurrency)
        self._running: dict[OpenRecord, _Start] = {}
        """The start of each call that runs."""
        self._ended: deque[_Ended] = deque()
        """Filled by the threads of the calls."""
        self._attempts: dict[OpenRecord, Attempt] = {}
        """The records that have failed, until they are finished."""
        self._again: list[tuple[float, int, OpenRecord]] = []
        """A heap: the records that are delivered again, and when."""
        self._count = itertools.count()
        self._first: tuple[OpenRecord, float] | None = None
        """The first record that is not finished, and since when it is that; None: there is none."""
        self._arrivals: deque[float | None] = deque()
        """When the first record of each batch in use arrived, by the worker's clock."""
        self._stopping: BaseException | None = None
        """The error for which ``on_error`` stops the shard, once the other calls have ended."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def clear(self) -> None:
        super().clear()
        self._open = OpenRecords(self._open.most)
        self._attempts.clear()
        self._again.clear()

    def settle(self) -> bool:
        """Take the calls that have ended; return True once none runs."""
        while self._ended:
            one, error = self._ended.popleft()
            start = self._running.pop(one)
            if error is None:
                self._succeeded(one, start)
            else:
                self.measures.processing_failed(start.at)
                self._call_failed(one, error)
        self._note_oldest_call()
        if not self._running:
            self.stopped_by = self._stopping
        return not self._running

    def process(self) -> Next:
        """Take the calls that have ended, and begin others.

        Raises the errors of `Intake.take`, `ProcessorError` for a mistake in the processor's class,
        and `LeaseLostError`.
        """
        has_settled = self.settle()
        if self.checkpointer.is_reset and not has_settled:
            return Next(self._soonest_call())
        self._begin_anew_after_reset()
        if self._stopping is not None:
            return Next(None if has_settled else IDLE)
        pause = self._checkpoint_if_due()
        if pause is not None:
            return Next(pause)
        while self._open.has_room and not self._intake.at_end:
            batch = self._take()
            if batch is None:
                break
            if batch:
                self._open.add(batch)
                self._arrivals.append(self._intake.oldest_at)
        if not self._held.is_held():
            return Next(end=ShutdownReason.LEASE_LOST)
        if not self._open:
            self._note_silence()
        self._begin_calls()
        is_over = self._intake.at_end and not self._open and not self.checkpointer.is_reset
        return Next(
            self._soonest(self._soonest_call()), self._intake.why_at_end if is_over else None
        )

    def hold(self) -> float:
        """Take the calls that have ended, and begin no others; as `Deliverer.hold`."""
        has_settled = self.settle()
        if self._stopping is not None or (self.checkpointer.is_reset and not has_settled):
            return IDLE  # each call that ends has this called again
        return super().hold()

    @property
    def _batches_in_use(self) -> int:
        return self._open.batches

    def _soonest_call(self) -> float:
        """Return the seconds until a record is due again; calls that end wake the consumer."""
        if not self._again or len(self._running) >= self._concurrency:
            return IDLE
        return max(0.0, self._again[0][0] - self._settings.clock())

    def _begin_calls(self) -> None:
        now = self._settings.clock()
        while len(self._running) < self._concurrency:
            if self._again and self._again[0][0] <= now:
                one = heapq.heappop(self._again)[2]
                attempt = self._attempts[one]
                if attempt.given_up is not None:
                    self._give_up_record(one, attempt, attempt.given_up)
                    continue
            elif (found := self._open.start()) is not None:
                one = found
            else:
                break
            self._running[one] = _Start(now, self.automatic.now())
            method = self.processor.process_record
            try:
                self._settings.calls.begin(method, one.record, partial(self._end_call, one))
            except RuntimeError as error:  # the operating system permits no more threads
                if of_another_loop(error):  # the program has closed its event loop
                    self._end_call(one, error)
                    continue
                del self._running[one]
                self._try_again(one, self._attempts.get(one) or Attempt(one.alone()), _NO_THREAD)
                break
        self._note_oldest_call()

    def _note_oldest_call(self) -> None:
        self.processing_since = min((start.at for start in self._running.values()), default=None)
        first, known = self._open.first, self._first
        if first is None:
            self._first = None
        elif known is None or known[0] is not first:
            self._first = first, self._settings.clock()
        while len(self._arrivals) > self._open.batches:
            self._arrivals.popleft()
        self.oldest_at = self._arrivals[0] if self._arrivals else None

    @property
    def front(self) -> Front | None:
        if (known := self._first) is None:
            return None
        one, since = known
        return Front(since, one.alone(), one in self._attempts, "process_record")

    def _end_call(self, one: OpenRecord, error: BaseException | None) -> None:
        """Note that a call has ended; in its thread."""
        self._ended.append(_Ended(one, error))
        self._wake()

    def _succeeded(self, one: OpenRecord, start: _Start) -> None:
        self._attempts.pop(one, None)
        if not self._attempts:
            self._report.forget_failure()
        self.records += 1
        self.measures.processed(1, partial(len, one.record.data), start.at)
        self._finish(one, start.since)

    def _finish(self, one: OpenRecord, since: float) -> None:
        """Finish a record, processed or given up, whose call began at ``since``."""
        for run in self._open.finish(one):
            self.checkpointer.permit(run.last, run)
            self.checkpointer.end_call()
            self._done = run.last
            self.automatic.processed(run, since)

    def _call_failed(self, one: OpenRecord, error: BaseException) -> None:
        if isinstance(error, ProcessorError):
            raise error  # a mistake in the program, which every other record would meet as well
        if isinstance(error, CancelledError) and self._is_ending():
            return
        self._note_refusal(error)
        attempt = self._attempts.get(one) or Attempt(one.alone())
        reaction = react(
            attempt,
            error,
            self._settings,
            self.checkpointer.last,
            is_ending=self._is_ending(),
            is_reset=self.checkpointer.is_reset,
        )
        self._report.batch_failed(span_of(attempt.batch), reaction.action, error)
        match reaction.action:
            case BatchAction.WAIT | BatchAction.RETRY:
                self._try_again(one, reaction.rest, reaction.pause)
            case BatchAction.STOP:
                self._stopping = error
            case BatchAction.SKIP | BatchAction.DEAD_LETTER:
                self._give_up_record(one, reaction.rest, error)
            case _:
                pass  # the shard's next owner gets the record, or a reset has dropped it

    def _try_again(self, one: OpenRecord, attempt: Attempt, pause: float) -> None:
        self._attempts[one] = attempt
        heapq.heappush(self._again, (self._settings.clock() + pause, next(self._count), one))

    def _give_up_record(self, one: OpenRecord, attempt: Attempt, error: BaseException) -> None:
        refused = self._hand_over(attempt, error)
        if refused is None:
            self._attempts.pop(one, None)
            self._finish(one, self.automatic.now())
        else:
            self._try_again(one, *refused)
