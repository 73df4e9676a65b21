"""The processing of a shard: a page becomes a batch, and a batch goes to the record processor."""

# A step is taken by one thread at a time, the shard's consumer. In a step the data goes one way:
#
#   fetcher --page--> Batcher --batch--> Deliverer --records--> process_records
#                                           |
#                                           +--> checkpoints: the processor's own, automatic ones
#
# The order of what a step does is a rule in itself:
#
# 1. A reset that the processor has asked for: what was fetched before it is dropped.
# 2. An automatic checkpoint that is due. While it fails, nothing is delivered: more records than
#    the option allows would come again after a crash.
# 3. The next batch, if there is room for one. Where records were left out (two events of a
#    subscription have changed places), the checkpoint is moved back before anything else is taken,
#    however often that fails: the fetcher would go on after the records that are missing.
# 4. The lease, as far as this worker knows: the next owner gets the batch if it is lost.
# 5. The call. It may take as long as it likes.
# 6. The end of the shard, once all of its batches are delivered, and none was reset.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from sparkinesis.errors import SparkinesisError
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.rules.lease_start import WantedRecords
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Sentinel
from sparkinesis.stream.reading.early_records import OutOfOrderError
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.lifecycle.settings import ConsumerSettings
from sparkinesis.worker.lifecycle.shard.batcher import Batcher
from sparkinesis.worker.lifecycle.shard.delivery import Deliverer
from sparkinesis.worker.lifecycle.shard.states import ShutdownReason

IDLE = 15.0
"""Seconds until the next step, if no page is announced: there may be pages of a silence, which say
until when no record has come."""
_WITH_SINKS = 3.0
"""The same of a shard with sinks, whose rows may be due."""


class Next(NamedTuple):
    """The time at which `Processing.step` is to be called again, or the end."""

    pause: float | None = None
    """The seconds until the next step; None: at once."""
    end: ShutdownReason | None = None
    """The reason why the shard's consumer is to end; None: there is none."""


class Processing:
    """Takes the steps of one shard. For the thread of the shard's consumer."""

    def __init__(
        self,
        held: HeldLease,
        batcher: Batcher,
        deliverer: Deliverer,
        settings: ConsumerSettings,
        on_page: Callable[[], None],
    ) -> None:
        """``on_page``: called when a page was taken, and what it brought is delivered or begun."""
        self._held = held
        self._batcher = batcher
        self._deliverer = deliverer
        self._checkpointer = deliverer.checkpointer
        self._automatic = deliverer.automatic
        self._on_page = on_page
        self._report = settings.reporter(held.shard_id)
        self._rewind_to: AfterRecord | AtTimestamp | Sentinel | None = None
        """The position to read again from, as records after it were left out; None: none were."""

    def step(self) -> Next:
        """Take the next batch if there is room, and deliver it.

        Raises the errors of `Batcher.take` and `Deliverer.deliver`, and `LeaseLostError`.
        """
        batcher, deliverer = self._batcher, self._deliverer
        if not self._begin_anew_after_reset():
            return Next(IDLE)
        if deliverer.is_stopping:
            return Next(IDLE if deliverer.stopped_by is None else None)
        pause = self._automatic.write_if_due()
        if pause is not None:
            return Next(pause)
        has_page = self._take_batches()
        if not (has_page or deliverer or batcher.end is not None):
            return Next(self._soonest(IDLE))
        if not self._held.is_held():
            return Next(end=ShutdownReason.LEASE_LOST)
        if not deliverer:
            self._note_silence()
        try:
            pause = deliverer.deliver()
        except ValueError as error:
            # A sequence number in the middle of the batch is none, which no check has seen.
            if not isinstance(error, SparkinesisError) and deliverer.drop():
                batcher.take_again()
            raise
        if has_page:
            self._on_page()
        end: ShutdownReason | None = None
        if batcher.end is not None and not deliverer and not self._checkpointer.is_reset:
            end = batcher.end.reason
        if pause <= 0:
            return Next(None, end)
        return Next(self._soonest(IDLE if pause == math.inf else pause), end)

    def hold(self) -> float:
        """Deliver nothing, but follow a reset, and write checkpoints that are due.

        Returns the seconds until the next step. Raises `LeaseLostError`.
        """
        if not self._begin_anew_after_reset() or self._deliverer.is_stopping:
            return IDLE
        self._batcher.give_back(self._deliverer.batches_in_use)
        return self.checkpoint_meanwhile()

    def checkpoint_meanwhile(self) -> float:
        """Checkpoint while the last calls run; return the seconds until the next step."""
        pause = self._automatic.write_if_due()
        return self._soonest(IDLE) if pause is None else pause

    def _begin_anew_after_reset(self) -> bool:
        """If the processor has reset its shard, read from the new position on.

        Returns False while calls for records of before run; each that ends has a step taken.
        """
        if not self._deliverer.settle() and self._checkpointer.is_reset:
            return False
        reset_to = self._checkpointer.take_reset()
        if reset_to is not None:
            self._deliverer.clear()
            unread = WantedRecords(reset_to) if isinstance(reset_to, AtTimestamp) else None
            self._batcher.begin(reset_to, unread=unread)
        return True

    def _take_batches(self) -> bool:
        """Hand pages on as batches while there is room; return True if there was a page."""
        has_page = False
        while self._deliverer.has_room and self._batcher.end is None:
            batch = self._take()
            if batch is None:
                break
            has_page = True
            if batch or self._deliverer.wants_empty:
                self._deliverer.add(batch, self._batcher.oldest_at)
            if not self._deliverer.takes_ahead:
                break
        return has_page

    def _take(self) -> RecordBatch | None:
        """Return the next batch; None if there is none, or earlier records are to be read first."""
        if self._rewind_to is None:
            try:
                return self._batcher.take(self._deliverer.batches_in_use)
            except OutOfOrderError as found:
                what = f"Fetching failed on {self._report.place}; it begins anew"
                self._report.task_failed(what, found)
                self._rewind_to = found.resume_at
        self._checkpointer.rewind(self._rewind_to)
        self._rewind_to = None
        return None

    def _soonest(self, pause: float) -> float:
        """Return the seconds to wait, until a checkpoint is due at most."""
        if self._checkpointer.sinks.are_in_use:
            pause = min(pause, _WITH_SINKS)
        due_in = self._automatic.due_in
        return pause if due_in is None else min(pause, due_in)

    def _note_silence(self) -> None:
        """Note in the lease up to when no record followed the checkpoint, if that is known.

        A later reader of a quiet shard then does not mistake the silence for lost records.
        """
        at, reached = self._checkpointer.settled, self._batcher.reached
        if at is None or self._batcher.end is not None:
            return
        if isinstance(reached, AfterRecord) and reached.sequence_number == at.sequence_number:
            self._held.known = at, replace(reached, sub_sequence_number=None)
        elif isinstance(reached, AtTimestamp) and at.is_sentinel:
            self._held.known = at, reached
