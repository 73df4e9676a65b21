"""The checkpoints of a record processor: each is checked, by `Permitted`, and written."""

# Follows the KCL's ``ShardRecordProcessorCheckpointer``, but for what `checkpoint_rules` explains.
#
# Each method that writes checks, stores the rows in sinks, writes, and notes, in this order. The
# rows go first, also before a checkpoint that is only prepared: whoever finds it may commit it, and
# skip the records whose rows would be missing. And only while the lease is held, or the next owner
# stores them again. A prepared checkpoint is checked anew when it is committed: others may have
# been written since. All of this is one section of the lock, for any thread may checkpoint.
#
# After a move (`reset`, `rewind`) nothing is permitted until the shard's consumer has followed it:
# a record from before, whose call still runs, would be checkpointed after the move.

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from sparkinesis.errors import CheckpointError
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import PendingCheckpoint
from sparkinesis.public import public
from sparkinesis.stream.position import LATEST, AfterRecord, AtTimestamp, Position, Sentinel
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.batches.user_record import UserRecord
from sparkinesis.worker.checkpoint_rules import (
    Delivered,
    Permitted,
    arrival_of,
    check_reset,
    check_state,
    known_after,
    parts_of,
    reset_target,
)
from sparkinesis.worker.reporting.shard_reporter import ShardMeasures, unmeasured
from sparkinesis.worker.sink.sink import ShardSinks


@public
class PreparedCheckpoint:
    """A checkpoint after its first phase; `checkpoint` runs the second."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        at: ExtendedSequenceNumber,
        arrived_ms: int | None = None,
    ) -> None:
        """``arrived_ms``: the arrival time of the record at ``at`` (epoch ms); None if unknown."""
        self._checkpointer = checkpointer
        self._arrived_ms = arrived_ms
        self.at = at

    def checkpoint(self) -> None:
        """Commit the checkpoint. Raises the errors of `Checkpointer.checkpoint`."""
        self._checkpointer.commit(self.at, self._arrived_ms)


@public
class Checkpointer:
    """Stores how far a shard was processed. For any thread, while the worker holds the lease.

    All methods raise:
    `CheckpointError` for a checkpoint that is not permitted; nothing is written.
    `LeaseLostError` if another worker has the lease; stop processing.
    `LeaseTableUnavailableError` if DynamoDB does not answer; retry.
    `AccessDeniedError` or `LeaseTableError` if DynamoDB refuses.
    `SinkUnavailableError` if the shard's sinks cannot store their rows, so that no checkpoint is
    written; retry.
    """

    def __init__(
        self,
        held: HeldLease,
        service_time_ms: Callable[[], int],
        sinks: ShardSinks | None = None,
        place_at: Callable[[int], ExtendedSequenceNumber | None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        measures: ShardMeasures | None = None,
        on_reset: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a checkpointer.

        place_at: returns the checkpoint that stands for an instant (epoch ms), or None to store the
        instant itself. measures: takes the durations of checkpoints, and opens their spans.
        on_reset: called after a reset, by any thread.
        """
        self._on_reset = on_reset
        self._measures = measures or unmeasured(clock)
        start = held.lease.checkpoint
        self.sinks: ShardSinks = sinks or ShardSinks()
        self._held = held
        self._service_time_ms = service_time_ms
        self._place_at = place_at
        self._lock = threading.RLock()
        self._reset_to: Position | None = None
        pending = held.lease.pending
        self._permitted = Permitted(
            start,
            start,
            pending=None if pending is None or pending.at.is_sentinel else pending.at,
        )
        self.is_prepared: bool = False
        """True while the processor has a checkpoint prepared, which any other would remove."""
        self._delivered = Delivered(clock)

    @property
    def fencing_token(self) -> int:
        """The token of the lease, which grows with each acquisition; see `ProcessorShard`."""
        return self._held.fencing_token

    @property
    def last(self) -> ExtendedSequenceNumber:
        """The last checkpoint."""
        return self._permitted.last

    def checkpoint(
        self, at: UserRecord | str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """Store that everything up to ``at`` is processed.

        at: a user record, or a sequence number, with the sub-sequence number as second argument.
        None: all that was delivered, the current batch included. A sequence number alone means its
        first user record, as in the KCL.
        """
        with self._lock:
            wanted = self._permitted.resolve(*parts_of(at, sub_sequence_number))
            self.commit(wanted, arrival_of(at))

    async def checkpoint_async(
        self, at: UserRecord | str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """As `checkpoint`, in a thread, so that the event loop goes on meanwhile.

        If the caller is cancelled, the checkpoint may be written all the same.
        """
        import asyncio  # noqa: PLC0415 - most processors do without it

        await asyncio.to_thread(self.checkpoint, at, sub_sequence_number)

    def prepare(
        self,
        at: UserRecord | str | None = None,
        sub_sequence_number: int | None = None,
        *,
        state: bytes | None = None,
    ) -> PreparedCheckpoint:
        """Prepare a checkpoint, the first of two phases, with a state of the user's own.

        A worker that acquires the shard before the second phase finds both in
        ``shard.pending_checkpoint``, and may commit it (`commit_pending`) or drop it
        (`drop_pending`). The rows in the shard's sinks are stored before the checkpoint is
        prepared. Another prepared checkpoint, or any checkpoint that is committed, replaces it.

        state: bytes, 400,000 at most: DynamoDB stores 400 KB in a row. Each renewal of the lease is
        billed by the size of the row, so a large state belongs elsewhere, and its place here. A
        state that is no bytes, or too large, raises `CheckpointError`.
        """
        check_state(state)
        with self._lock:
            wanted = self._permitted.resolve(*parts_of(at, sub_sequence_number))
            self._flush("prepare a checkpoint")
            if wanted != self._permitted.last:
                self._held.prepare(PendingCheckpoint(wanted, state))
                self.is_prepared = True
                if wanted != self._permitted.pending:
                    self._permitted = replace(self._permitted, pending=None)
            arrived_ms = arrival_of(at)
            if arrived_ms is None:
                arrived_ms = self._delivered.arrived_ms(wanted, self._held.lease)
            return PreparedCheckpoint(self, wanted, arrived_ms)

    def commit_pending(self) -> None:
        """Commit the checkpoint that is prepared, as `PreparedCheckpoint.checkpoint` would.

        One that an earlier owner of the lease prepared is committed at once: the records up to it
        are not delivered again, but for those of the batch that is being delivered. Call
        ``shard.commit_pending()`` in ``initialize``, so that delivery begins after it.

        A prepared end of the shard is committed in ``shard_ended`` only, like any other.

        Also raises `CheckpointError` if no checkpoint is prepared.
        """
        with self._lock:
            pending = self._held.lease.pending
            if pending is None:
                raise CheckpointError(
                    f"No checkpoint of {self._held.lease.shard_name} is prepared: none was, or it "
                    "was committed, dropped, or replaced by another checkpoint."
                )
            self.checkpoint(pending.at.sequence_number, pending.at.sub_sequence_number)

    def drop_pending(self) -> None:
        """Drop the checkpoint that is prepared, with its state; write nothing if there is none.

        The next owner of the lease then finds none. The last checkpoint stays as it is.
        """
        with self._lock:
            self._held.drop_pending()
            self.is_prepared = False
            self._permitted = replace(self._permitted, pending=None)

    def reset(self, to: str | datetime) -> None:
        """Move this shard to ``"LATEST"``, ``"TRIM_HORIZON"`` or an instant (an aware datetime).

        Delivery continues at the new position, to the same processor; records that were fetched
        before are dropped. Other shards are not moved: `sparkinesis reset` moves all shards.

        If a Java KCL may share the lease table, the last record before the instant is stored
        instead. Finding it reads the stream, and may raise service errors.
        """
        target = reset_target(to)
        with self._lock:
            if self._permitted.end is not None:
                raise CheckpointError("The shard has ended; it cannot be reset from shard_ended().")
            now_ms = self._service_time_ms()
            check_reset(target, now_ms)
            position = AtTimestamp(now_ms) if target is LATEST else target
            place = ExtendedSequenceNumber.of(target)
            self._flush("reset the checkpoint")
            instant_ms = position.ms if isinstance(position, AtTimestamp) else None
            found = None if instant_ms is None else self._place_at(instant_ms)
            if found is None:
                write = partial(self._held.checkpoint, place, instant_ms, moved_ms=now_ms)
            else:
                place = found
                write = partial(self._held.move, place, moved_ms=now_ms)
            self._measures.checkpoint(place.sequence_number, write)
            self._moved(place, position)
        self._on_reset()

    def _moved(self, place: ExtendedSequenceNumber, to: Position) -> None:
        """Note that the shard was moved, and that its consumer is to read from ``to`` on."""
        self._permitted = Permitted(place, place)
        self._delivered.cover(is_whole=True)
        self.is_prepared = False
        self._reset_to = to

    # --- for the shard consumer

    @property
    def is_held(self) -> bool:
        """True while the worker holds the lease, as far as it knows."""
        return self._held.is_held()

    @property
    def age(self) -> float:
        """Seconds since the first delivery that no checkpoint covers, or since a later checkpoint.

        0 while the last checkpoint covers all that was delivered. Records that fail count as
        delivered: a shard that a record blocks has an old checkpoint.
        """
        return self._delivered.age

    def begin_at(self, place: ExtendedSequenceNumber) -> None:
        """Move the shard before its first record, to the start that ``initialize`` has returned."""
        with self._lock:
            now_ms = self._service_time_ms()
            move = partial(self._held.move, place, moved_ms=now_ms)
            self._measures.checkpoint(place.sequence_number, move)
            self._permitted = Permitted(place, place)

    def take_reset(self) -> Position | None:
        """Return the position of a `reset`, once; None without a reset.

        Nothing that is delivered between the reset and this call can be checkpointed.
        """
        with self._lock:
            position, self._reset_to = self._reset_to, None
            return position

    def rewind(self, to: AfterRecord | AtTimestamp | Sentinel) -> None:
        """Have the shard read again from a position on, after which records were left out.

        A checkpoint after these records is moved back, or they would be lost.
        """
        with self._lock:
            self._flush("read records again")
            place = last = self._permitted.last
            wanted = ExtendedSequenceNumber.of(to)
            if not last.is_sentinel and wanted < last:
                place, now_ms = wanted, self._service_time_ms()
                instant_ms = to.ms if isinstance(to, AtTimestamp) else None
                write = partial(self._held.move, place, moved_ms=now_ms)
                if place.is_sentinel:
                    write = partial(self._held.checkpoint, place, instant_ms, moved_ms=now_ms)
                self._measures.checkpoint(place.sequence_number, write)
            self._moved(place, to)
        self._on_reset()

    @property
    def is_reset(self) -> bool:
        return self._reset_to is not None

    @property
    def settled(self) -> ExtendedSequenceNumber | None:
        """The last checkpoint, if it covers all that was delivered; otherwise None."""
        with self._lock:
            permitted = self._permitted
            is_moving = permitted.end is not None or self._reset_to is not None
            return None if is_moving or permitted.last != permitted.largest else permitted.last

    def commit(self, at: ExtendedSequenceNumber, arrived_ms: int | None = None) -> None:
        """Write a checkpoint that was resolved.

        It is checked again, because other checkpoints may have been written since.

        arrived_ms: the arrival time of its record (epoch ms); None: looked up.
        """
        with self._lock:
            permitted = self._permitted
            if at == permitted.last and at.is_sentinel:
                self._flush("checkpoint")
                return  # nothing was delivered yet, so there is no checkpoint to write
            at = permitted.resolve(at.sequence_number, at.sub_sequence_number)
            self._flush("checkpoint")
            if at == permitted.last:
                return
            if arrived_ms is None:
                arrived_ms = self._delivered.arrived_ms(at, self._held.lease)
            known = known_after(at, arrived_ms)
            self._measures.checkpoint(
                at.sequence_number, partial(self._held.checkpoint, at, known=known)
            )
            self._permitted = permitted.committed(at)
            self._delivered.cover(is_whole=at == self._permitted.largest)
            self.is_prepared = False

    def _flush(self, doing: str) -> None:
        """Store the rows in the sinks: no checkpoint may be ahead of them."""
        if self.sinks.has_rows:
            # Without the lease, this would store rows that the next owner stores again.
            self._held.require_held(doing)
            permitted = self._permitted
            self.sinks.flush(permitted.last, permitted.end or permitted.largest)

    def permit(self, until: ExtendedSequenceNumber, batch: RecordBatch | None = None) -> None:
        """Permit checkpoints up to ``until``: up to there, user records are delivered or given up.

        batch: the batch of these records, for their arrival times.
        """
        with self._lock:
            self._delivered.begin(until, batch)
            if self._reset_to is None:
                largest = max(self._permitted.largest, until)
                self._permitted = replace(self._permitted, largest=largest)
                if self._delivered.uncovered_since is None and largest != self._permitted.last:
                    self._delivered.uncover()

    def end_call(self) -> None:
        """Drop the batch, whose delivery has ended or failed."""
        with self._lock:
            self._delivered.batch = None

    def take_back(self, until: ExtendedSequenceNumber) -> None:
        """Permit checkpoints up to ``until`` only, because processing the rest failed."""
        with self._lock:
            if self._reset_to is None:
                self._permitted = self._permitted.taken_back(until)

    def end(self) -> None:
        """Note the end of the shard: a checkpoint at its last user record becomes SHARD_END."""
        with self._lock:
            self._permitted = self._permitted.ended()
