"""The loop over an application's batches, in place of a record processor."""

# The record processors of a worker hand their batches over (`_Handover`), and each waits in its
# ``process_records``. One batch after the other goes to the loop, which says that a batch is
# processed only by asking for the next one: so ``process_records`` returns then, and not before,
# and all that follows from its return (automatic checkpoints, `on_error`, shutdowns) holds for
# loops as well. What must hold beyond that:
#
# - A batch at which the loop is left, in whatever way, is not processed: `_end` settles it so.
# - A batch that waits behind those of other shards may lose its lease meanwhile, and the next owner
#   has its records: it was given to the loop all the same once. `_serve` drops it.
# - A worker never outlives its block. A coroutine that was cancelled while the block began left one
#   behind that read for nobody: the thread that starts the worker cannot be cancelled.
# - A loop that gives up waiting (``timeout``) may have got a batch in the same moment. Either the
#   question is cancelled, or its answer is taken; `_asked` keeps it until then.

from __future__ import annotations

import contextlib
import signal
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from sparkinesis.errors import LeaseLostError, ProcessorError
from sparkinesis.public import public
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.signals import handling
from sparkinesis.worker.lifecycle.worker import Worker
from sparkinesis.worker.processors.processor import (
    ProcessorFactory,
    ProcessorShard,
    RecordProcessor,
)

if TYPE_CHECKING:
    from typing_extensions import Self

NewWorker: TypeAlias = Callable[[ProcessorFactory], Worker]
"""Makes a worker with these record processors."""

Item = TypeVar("Item")


@public
class LoopBatch(RecordBatch):
    """A batch of a loop, with the checkpoints of its shard."""

    shard: ProcessorShard
    checkpointer: Checkpointer

    @classmethod
    def of(cls, batch: RecordBatch, shard: ProcessorShard, checkpointer: Checkpointer) -> LoopBatch:
        made = cls.__new__(cls)
        made._begin(
            batch._rows, batch.millis_behind_latest, batch.fetched_at, batch._start, batch._stop
        )
        made.shard = shard
        made.checkpointer = checkpointer
        return made

    def checkpoint(self, at: UserRecord | None = None) -> bool:
        """Store that everything up to ``at`` is processed; None: the whole batch.

        Returns False if another worker has the shard's lease: it gets the records again, and the
        loop goes on with other shards. Raises the other errors of `Checkpointer.checkpoint`.
        """
        try:
            if at is not None or not self:
                self.checkpointer.checkpoint(at)
            else:
                last = self.last
                self.checkpointer.checkpoint(last.sequence_number, last.sub_sequence_number)
        except LeaseLostError:
            return False
        return True


class _Offer:
    """A batch that a record processor hands over, and waits for."""

    def __init__(self, batch: LoopBatch) -> None:
        self.batch = batch
        self.is_processed: Future[bool] = Future()


class _Handover:
    """Hands the batches of all shards to one loop, in the order of their offers. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._offers: deque[_Offer] = deque()
        self._waiting: Future[_Offer | None] | None = None
        self._is_over = False

    def offer(self, batch: LoopBatch) -> bool:
        """Hand a batch over; return True once the loop has processed it, False if it does not."""
        offer = _Offer(batch)
        with self._lock:
            if self._is_over:
                return False
            self._offers.append(offer)
            self._serve()
        return offer.is_processed.result()

    def ask(self) -> Future[_Offer | None]:
        """Ask for the next offer, which is None after `close`. For one thread at a time."""
        with self._lock:
            asked = self._waiting = Future()
            self._serve()
        return asked

    def close(self) -> None:
        """Decline the offers that the loop has not taken, and all later ones."""
        with self._lock:
            self._is_over = True
            declined = list(self._offers)
            self._offers.clear()
            self._serve()
        for offer in declined:
            offer.is_processed.set_result(False)

    def _serve(self) -> None:
        while self._offers and not self._offers[0].batch.checkpointer.is_held:
            self._offers.popleft().is_processed.cancel()  # another worker has the records
        asked = self._waiting
        if asked is None or not (self._offers or self._is_over):
            return
        self._waiting = None
        if asked.set_running_or_notify_cancel():
            asked.set_result(self._offers.popleft() if self._offers else None)


class _Offering(RecordProcessor):
    """Hands its batches to the loop."""

    def __init__(self, handover: _Handover) -> None:
        self._handover = handover

    def initialize(self, shard: ProcessorShard) -> None:
        self._shard = shard

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        if not self._handover.offer(LoopBatch.of(batch, self._shard, checkpointer)):
            self._shard.request_shutdown()  # or the batch would be delivered again at once
            raise CancelledError


class ApplicationLoop(Generic[Item]):
    """Iterates over an application's records, in a ``with`` or ``async with`` block."""

    def __init__(self, name: str, new_worker: NewWorker, timeout: float | None) -> None:
        self._name = name
        self._new_worker = new_worker
        self._timeout = timeout
        self._handover = _Handover()
        self._asked: Future[_Offer | None] | None = None
        """The question for the next batch, until its answer is used."""
        self._taken: _Offer | None = None
        """The offer of the batch that the loop is at."""
        self._items: Iterator[Item] = iter(())
        """What is left of this batch."""
        self._worker: Worker | None = None
        self._changing = threading.Lock()
        """Held while the worker begins or ends."""
        self._signals = ExitStack()
        self._is_iterated = False

    @property
    def worker(self) -> Worker:
        """The worker that reads for the loop. Raises `ProcessorError` outside of the block."""
        if self._worker is None:
            raise ProcessorError(
                "The loop has not begun: it needs a block, which shuts its worker down. Write "
                "`with application.batches() as batches:`, and `for batch in batches:` in the "
                "block."
            )
        return self._worker

    def __enter__(self) -> Self:
        self._begin()
        self._signals.enter_context(handling([signal.SIGTERM], self._stop))
        return self

    def __exit__(self, *_: object) -> None:
        with self._signals:
            self._end()

    def __iter__(self) -> Iterator[Item]:
        self._iterate_once()
        return self

    def __next__(self) -> Item:
        while (item := next(self._items, None)) is None:
            asked = self._ask()
            try:
                offer = asked.result(self._timeout)
            except futures.TimeoutError:
                if asked.cancel():
                    raise StopIteration from None
                offer = asked.result()
            if not self._take(offer):
                raise StopIteration
        return item

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 - a plain loop does without it

        try:
            await _in_a_thread(self._begin)
        except asyncio.CancelledError:
            # The thread goes on with its worker.
            if self._worker is not None:
                self._worker.request_shutdown()
            await _in_a_thread(self._end)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await _in_a_thread(self._end)

    def __aiter__(self) -> AsyncIterator[Item]:
        self._iterate_once()
        return self

    async def __anext__(self) -> Item:
        import asyncio  # noqa: PLC0415 - a plain loop does without it

        while (item := next(self._items, None)) is None:
            try:
                offer = await asyncio.wait_for(asyncio.wrap_future(self._ask()), self._timeout)
            except asyncio.TimeoutError:
                raise StopAsyncIteration from None
            if not self._take(offer):
                raise StopAsyncIteration
        return item

    def _items_of(self, batch: LoopBatch) -> Iterator[Item]:
        raise NotImplementedError

    def _iterate_once(self) -> None:
        if self.worker and self._is_iterated:
            raise ProcessorError(
                f"Another loop iterates the batches of {self._name} already, and the two would "
                "divide them at random. Call batches() again for a worker with shards of its own."
            )
        self._is_iterated = True

    def _ask(self) -> Future[_Offer | None]:
        """Say that the batch is processed, and ask for the next one."""
        self._settle(is_processed=True)
        if self._asked is None or self._asked.cancelled():
            self._asked = self._handover.ask()
        return self._asked

    def _take(self, offer: _Offer | None) -> bool:
        """Begin with the batch of an offer; return False after the last one.

        Raises the error that ended the worker.
        """
        if offer is None:
            self.worker.wait()
            return False
        self._asked, self._taken = None, offer
        self._items = self._items_of(offer.batch)
        return True

    def _settle(self, *, is_processed: bool) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            taken.is_processed.set_result(is_processed)

    def _begin(self) -> None:
        with self._changing:
            if self._worker is not None:
                raise ProcessorError(
                    f"The loop over {self._name} has begun already. Make another one."
                )
            self._worker = worker = self._new_worker(lambda: _Offering(self._handover))
            worker.start()
            threading.Thread(target=self._watch, name=f"{self._name}-loop", daemon=True).start()

    def _watch(self) -> None:
        """End the loop when the worker has ended."""
        with contextlib.suppress(BaseException):  # `_take` raises it
            self.worker.wait()
        self._handover.close()

    def _stop(self, *_: object) -> None:
        # A handler interrupts the main thread at any point, so it must not wait or take a lock.
        threading.Thread(target=self._request_shutdown, name="shutdown", daemon=True).start()

    def _request_shutdown(self) -> None:
        self.worker.request_shutdown()
        self._handover.close()

    def _end(self) -> None:
        with self._changing:
            if self._worker is None:
                return  # it could not be made
            self._request_shutdown()
            self._settle(is_processed=False)
            asked, self._asked = self._asked, None
            if asked is not None and not asked.cancel() and (offer := asked.result()) is not None:
                offer.is_processed.set_result(False)  # the loop was left while it waited
            self._worker.shutdown()


@public
class BatchLoop(ApplicationLoop[LoopBatch]):
    """The batches of an application's shards, one after the other; `Application.batches` makes it.

    Use it in a ``with`` block, which begins a worker and shuts it down gracefully, and iterate
    once. Shards interleave; the batches of a shard come in order. The next one comes after the loop
    has asked again, which also says that the batch before is processed. A batch at which the loop
    is left, by ``break``, an exception or Ctrl-C, counts as not processed: records of it that were
    not checkpointed come again.

    The loop ends when the worker does, as after SIGTERM, and raises the error that ended the
    worker. ``async with`` and ``async for`` do the same; they take over no signal.
    """

    def _items_of(self, batch: LoopBatch) -> Iterator[LoopBatch]:
        return iter([batch])


@public
class RecordLoop(ApplicationLoop[UserRecord]):
    """The user records of an application's shards; `Application.records` makes it.

    As `BatchLoop`, with a record at a time.
    """

    def checkpoint(self) -> bool:
        """Store that everything in its shard up to the present record is processed.

        As `LoopBatch.checkpoint`. Raises `ProcessorError` before the first record.
        """
        if self._taken is None:
            raise ProcessorError("There is no record to checkpoint: the loop is at none.")
        return self._taken.batch.checkpoint(self._record)

    _record: UserRecord

    def _items_of(self, batch: LoopBatch) -> Iterator[UserRecord]:
        for self._record in batch.records:
            yield self._record


async def _in_a_thread(function: Callable[[], None]) -> None:
    import asyncio  # noqa: PLC0415 - a plain loop does without it

    await asyncio.shield(asyncio.to_thread(function))
