"""The delivery of records to a record processor, several at a time, in order for each key."""

# Calls for records of different keys run at the same time, in threads or as tasks, and end in any
# order; those of one key run one after the other, in the order of the shard. Nothing else is in
# order, so nothing may be counted by the order of the calls:
#
# - A checkpoint covers the unbroken run of finished records from the start (`OpenRecords.finish`),
#   where finished means processed or given up. A record that fails again and again holds up the
#   records of its key and all checkpoints, but no other key.
# - How far the others may be ahead is bounded by the number of open records, and their batches
#   count as memory until all of their records can be checkpointed: one open record keeps its whole
#   page. When only the last batch counted, records of 320 others could be open.
# - Only the calls run elsewhere. A call that ends adds itself to `_ended` and wakes the consumer,
#   whose thread does all the rest in `settle`; so nothing else here needs a lock.
# - A reset, a stop by `on_error` and the end of the shard wait until no call runs: two owners would
#   process the same records at the same time, or a record from before the reset be checkpointed.

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from typing import ClassVar, NamedTuple

import msgspec

from sparkinesis.errors import ProcessorError
from sparkinesis.events import BatchAction
from sparkinesis.lease.held import HeldLease
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.delivery import Deliverer, span_of
from sparkinesis.worker.lifecycle.shard.lag import Front
from sparkinesis.worker.lifecycle.shard.reaction import Attempt, react
from sparkinesis.worker.processors.processor import RecordProcessor
from sparkinesis.worker.reporting.failures import of_another_loop

_OPEN = 10
"""Open records for each call that may run: so far may one key fall behind the others."""

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

    For the thread of the shard's consumer; only the calls run elsewhere.
    """

    takes_ahead: ClassVar[bool] = True

    def __init__(
        self,
        held: HeldLease,
        processor: RecordProcessor,
        checkpointer: Checkpointer,
        settings: ConsumerSettings,
        *,
        is_ending: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        """``wake``: has the shard's next step taken soon; for any thread."""
        super().__init__(held, processor, checkpointer, settings, is_ending=is_ending)
        self._wake = wake
        self._concurrency = settings.options.concurrency or 1
        self._open = OpenRecords(_OPEN * self._concurrency)
        self._running: dict[OpenRecord, _Start] = {}
        """The start of each call that runs."""
        self._ended: deque[_Ended] = deque()
        """Filled by the threads of the calls."""
        self._failed_ones = _FailedRecords()
        self._first: tuple[OpenRecord, float] | None = None
        """The first record that is not finished, and since when it is that; None: there is none."""
        self._arrivals: deque[float | None] = deque()
        """When the first record of each batch in use arrived, by the worker's clock."""
        self._stopping: BaseException | None = None
        """The error for which ``on_error`` stops the shard, once the other calls have ended."""

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def front(self) -> Front | None:
        if (known := self._first) is None:
            return None
        one, since = known
        return Front(since, one.alone(), one in self._failed_ones.attempts, "process_record")

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
        self._publish_calls()
        if not self._running:
            self.stopped_by = self._stopping
        return not self._running

    @property
    def is_stopping(self) -> bool:
        return self._stopping is not None

    def clear(self) -> None:
        super().clear()
        self._open = OpenRecords(self._open.most)
        self._failed_ones = _FailedRecords()

    @property
    def has_room(self) -> bool:
        return self._open.has_room

    @property
    def wants_empty(self) -> bool:
        return False

    @property
    def batches_in_use(self) -> int:
        return self._open.batches

    def add(self, batch: RecordBatch, arrived: float | None = None) -> None:
        self._open.add(batch)
        self._arrivals.append(arrived)

    def drop(self) -> bool:
        return False

    def deliver(self) -> float:
        """Begin as many calls as may run; return the seconds until another one is due.

        Infinite: calls that end have the next step taken.
        """
        self._begin_calls()
        if len(self._running) >= self._concurrency:
            return math.inf
        return max(0.0, self._failed_ones.next_at - self._settings.clock())

    def _begin_calls(self) -> None:
        now = self._settings.clock()
        while len(self._running) < self._concurrency:
            if (found := self._failed_ones.take_due(now)) is not None:
                one, attempt = found
                if attempt.given_up is not None:
                    self._give_up_record(one, attempt, attempt.given_up)
                    continue
            elif (startable := self._open.start()) is not None:
                one = startable
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
                self._try_again(one, self._attempt(one), _NO_THREAD)
                break
        self._publish_calls()

    def _publish_calls(self) -> None:
        """Publish for other threads since when calls run, and how old the oldest record is."""
        starts = (start.at for start in self._running.values())
        self.calls.processing_since = min(starts, default=None)
        first, known = self._open.first, self._first
        if first is None:
            self._first = None
        elif known is None or known[0] is not first:
            self._first = first, self._settings.clock()
        while len(self._arrivals) > self._open.batches:
            self._arrivals.popleft()
        self.calls.oldest_at = self._arrivals[0] if self._arrivals else None

    def _end_call(self, one: OpenRecord, error: BaseException | None) -> None:
        """Note that a call has ended; in its thread."""
        self._ended.append(_Ended(one, error))
        self._wake()

    def _succeeded(self, one: OpenRecord, start: _Start) -> None:
        self._failed_ones.attempts.pop(one, None)
        if not self._failed_ones.attempts:
            self._report.forget_failure()
        self.calls.records += 1
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
        attempt = self._attempt(one)
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

    def _attempt(self, one: OpenRecord) -> Attempt:
        return self._failed_ones.attempts.get(one) or Attempt(one.alone())

    def _try_again(self, one: OpenRecord, attempt: Attempt, pause: float) -> None:
        self._failed_ones.add(one, attempt, self._settings.clock() + pause)

    def _give_up_record(self, one: OpenRecord, attempt: Attempt, error: BaseException) -> None:
        refused = self._hand_over(attempt, error)
        if refused is None:
            self._failed_ones.attempts.pop(one, None)
            self._finish(one, self.automatic.now())
        else:
            self._try_again(one, *refused)


class _FailedRecords:
    """The records whose last call has failed, until they are finished: each is due again."""

    def __init__(self) -> None:
        self.attempts: dict[OpenRecord, Attempt] = {}
        self._due: list[tuple[float, int, OpenRecord]] = []
        """A heap, without the records whose calls run."""
        self._count = itertools.count()

    @property
    def next_at(self) -> float:
        """The time at which the first of them is due; infinite if none is."""
        return self._due[0][0] if self._due else math.inf

    def add(self, one: OpenRecord, attempt: Attempt, due: float) -> None:
        self.attempts[one] = attempt
        heapq.heappush(self._due, (due, next(self._count), one))

    def take_due(self, now: float) -> tuple[OpenRecord, Attempt] | None:
        """Return a record that is due, whose call is to begin; None if none is."""
        if not self._due or self._due[0][0] > now:
            return None
        one = heapq.heappop(self._due)[2]
        return one, self.attempts[one]


class OpenRecord(msgspec.Struct, eq=False):
    """A record that is not finished, or that one before it keeps from being checkpointed."""

    record: UserRecord
    batch: RecordBatch
    row: int
    is_finished: bool = False

    def alone(self) -> RecordBatch:
        """Return a batch of this record only."""
        return self.batch.slice(self.row, self.row + 1)


class OpenRecords(msgspec.Struct):
    """The open records of one shard, ``most`` at a time. For one thread.

    Records of one key begin one after the other, in the order of the shard; records without a key
    have no order. A record is finished when it was processed or given up.
    """

    most: int
    _rest: RecordBatch | None = None
    """What is left of the last batch, which is not open yet."""
    _in_order: deque[OpenRecord] = msgspec.field(default_factory=deque)
    """From the first record that is not finished."""
    _left: deque[int] = msgspec.field(default_factory=deque)
    """The records of each batch that are not checkpointable yet, in the same order."""
    _startable: deque[OpenRecord] = msgspec.field(default_factory=deque)
    _behind: dict[str, deque[OpenRecord]] = msgspec.field(default_factory=dict)
    """The records that wait for one of their key, which is started or startable."""

    def __bool__(self) -> bool:
        """True while a record is open; others wait only for one of them."""
        return bool(self._in_order)

    @property
    def first(self) -> OpenRecord | None:
        """The first record that is not finished; it may have begun, or not."""
        return self._in_order[0] if self._in_order else None

    @property
    def has_room(self) -> bool:
        """True if another batch may be added."""
        return len(self._in_order) < self.most

    @property
    def batches(self) -> int:
        """The number of batches in use, which are the last ones that were added."""
        return len(self._left)

    def add(self, batch: RecordBatch) -> None:
        """Add a batch with records, and open as many of them as there is room for."""
        self._left.append(len(batch))
        self._rest = batch
        self._open()

    def start(self) -> OpenRecord | None:
        """Return the next record that may begin; None if all others wait."""
        return self._startable.popleft() if self._startable else None

    def finish(self, one: OpenRecord) -> list[RecordBatch]:
        """Note that a record is finished; return the records that end the unbroken run anew.

        They are finished, like all before them, and in the order of the shard.
        """
        one.is_finished = True
        key = one.record.partition_key
        if key is not None:
            behind = self._behind[key]
            if behind:
                self._startable.append(behind.popleft())
            else:
                del self._behind[key]
        run: list[RecordBatch] = []
        first: OpenRecord | None = None
        while self._in_order and self._in_order[0].is_finished:
            last = self._in_order.popleft()
            self._left[0] -= 1
            if not self._left[0]:
                self._left.popleft()
            if first is None or first.batch is not last.batch:
                first = last
                run.append(last.alone())
            else:
                run[-1] = first.batch.slice(first.row, last.row + 1)
        self._open()
        return run

    def _open(self) -> None:
        batch = self._rest
        room = self.most - len(self._in_order)
        if batch is None or room <= 0:
            return
        part = batch.slice(0, room)
        self._rest = batch.slice(room, len(batch)) if room < len(batch) else None
        for row, record in enumerate(part.records):
            one = OpenRecord(record, part, row)
            self._in_order.append(one)
            key = record.partition_key
            if key is None:
                self._startable.append(one)
            elif (behind := self._behind.get(key)) is not None:
                behind.append(one)
            else:
                self._behind[key] = deque()
                self._startable.append(one)
