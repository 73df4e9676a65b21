"""A record processor's checkpoints: which are permitted, and what is written for them.

By the KCL's ``ShardRecordProcessorCheckpointer``, with its weak spots mended: a checkpoint of a
user record keeps the sub-sequence number, the end of the shard is recognised before anything is
compared, and what a failed ``process_records`` was given is not permitted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from sparkinesis.errors import CheckpointError
from sparkinesis.lease.extended_sequence_number import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from sparkinesis.lease.held import HeldLease
from sparkinesis.lease.lease import PendingCheckpoint
from sparkinesis.public import public
from sparkinesis.stream import position as pos
from sparkinesis.stream.position import (
    AfterRecord,
    AtTimestamp,
    Position,
    parse_initial_position,
)
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS
from sparkinesis.worker.batch import RecordBatch, UserRecord
from sparkinesis.worker.sink.sink import ShardSinks

_END = ExtendedSequenceNumber(SHARD_END)


@dataclass(frozen=True, slots=True)
class Permitted:
    """What may be checkpointed, as a value."""

    last: ExtendedSequenceNumber
    """The last checkpoint."""
    largest: ExtendedSequenceNumber
    """The last user record that was delivered and not failed."""
    end: ExtendedSequenceNumber | None = None
    """The shard's last user record that was delivered, once the shard has ended."""

    def resolve(
        self, sequence_number: str | None, sub_sequence_number: int | None
    ) -> ExtendedSequenceNumber:
        """What to write for a call of ``checkpoint``. Raises `CheckpointError`."""
        if sequence_number is None:
            if sub_sequence_number is not None:
                raise CheckpointError(
                    "A sub-sequence number needs the sequence number that it is part of: "
                    "checkpoint(sequence_number, sub_sequence_number)."
                )
            wanted = self.largest
        else:
            wanted = ExtendedSequenceNumber(sequence_number, sub_sequence_number or 0)
            _check(wanted)
        if self.end is not None and wanted in {self.end, _END}:
            return _END
        if not self.last <= wanted:
            raise CheckpointError(
                f"A checkpoint at {wanted} would go back behind the last one, at {self.last}. To "
                "process records again, use checkpointer.reset()."
            )
        if not wanted <= self.largest:
            raise CheckpointError(
                f"A checkpoint at {wanted} lies beyond what was delivered and processed, which "
                f"ends at {self.largest}. Records in between would be lost."
            )
        return wanted


def _check(wanted: ExtendedSequenceNumber) -> None:
    name = wanted.sequence_number
    if name in {LATEST, TRIM_HORIZON, AT_TIMESTAMP}:
        raise CheckpointError(
            f"{name} is no place that was delivered. To move the application there, use "
            f"checkpointer.reset({name!r})."
        )
    if name != SHARD_END and not (name.isascii() and name.isdecimal()):
        raise CheckpointError(f"{name[:80]!r} is not a sequence number: it has other than digits.")
    if wanted.sub_sequence_number < 0:
        raise CheckpointError(
            f"The sub-sequence number {wanted.sub_sequence_number} is negative; it counts from 0."
        )


@public
class PreparedCheckpoint:
    """The first phase of a checkpoint in two; `checkpoint` is the second."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        at: ExtendedSequenceNumber,
        arrived_ms: int | None = None,
    ) -> None:
        """``arrived_ms``: when the record of ``at`` arrived (epoch ms); None if it is not known."""
        self._checkpointer = checkpointer
        self._arrived_ms = arrived_ms
        self.at = at

    def checkpoint(self) -> None:
        """Make it good. Raises what `Checkpointer.checkpoint` does."""
        self._checkpointer.commit(self.at, self._arrived_ms)


@public
class Checkpointer:
    """Stores how far a shard was processed. May be used from any thread, as long as it is held.

    All methods raise `CheckpointError` for what is not permitted (nothing is written),
    `LeaseLostError` once the lease is another worker's (stop processing),
    `LeaseTableUnavailableError` when DynamoDB does not answer, `AccessDeniedError` and
    `LeaseTableError` when it refuses, and `SinkUnavailableError` when the rows in the shard's sinks
    cannot be stored, which comes first (try again).
    """

    def __init__(
        self,
        held: HeldLease,
        service_time_ms: Callable[[], int],
        sinks: ShardSinks | None = None,
        place_at: Callable[[int], ExtendedSequenceNumber | None] = lambda _: None,
    ) -> None:
        """``place_at``: the checkpoint to write for an instant (epoch ms); None: the instant."""
        start = held.lease.checkpoint
        self.sinks = sinks or ShardSinks()
        self._held = held
        self._service_time_ms = service_time_ms
        self._place_at = place_at
        self._lock = threading.RLock()
        self._reset_to: Position | None = None
        self._permitted = Permitted(start, start)
        self._batch: RecordBatch | None = None
        """The one that is being delivered."""
        self._last_arrival: tuple[str, int | None] = ("", None)
        """Of the last record that was delivered: its sequence number, and when it arrived."""

    @property
    def last(self) -> ExtendedSequenceNumber:
        """The last checkpoint."""
        return self._permitted.last

    def checkpoint(
        self, at: UserRecord | str | None = None, sub_sequence_number: int | None = None
    ) -> None:
        """Everything up to ``at`` is done: a user record, or a sequence number and its sub.

        Without arguments: everything that was delivered, the batch at hand included. A sequence
        number alone means its first user record, as in the KCL.
        """
        with self._lock:
            wanted = self._permitted.resolve(*_parts(at, sub_sequence_number))
            self.commit(wanted, _arrival_of(at))

    def prepare(
        self,
        at: UserRecord | str | None = None,
        sub_sequence_number: int | None = None,
        *,
        state: bytes | None = None,
    ) -> PreparedCheckpoint:
        """The first of two phases: note where a checkpoint will be, with a state of your own.

        Whoever acquires the shard before the second phase finds both in
        ``shard.pending_checkpoint``, and may make it good: what sinks hold is stored before.
        """
        with self._lock:
            wanted = self._permitted.resolve(*_parts(at, sub_sequence_number))
            self._flush("prepare a checkpoint")
            if wanted != self._permitted.last:
                self._held.prepare(PendingCheckpoint(wanted, state))
            arrived_ms = _arrival_of(at)
            if arrived_ms is None:
                arrived_ms = self._arrived_ms(wanted.sequence_number)
            return PreparedCheckpoint(self, wanted, arrived_ms)

    def reset(self, to: str | datetime) -> None:
        """Move this shard to ``"LATEST"``, ``"TRIM_HORIZON"`` or an instant (an aware datetime).

        The rest of what was fetched is dropped, and records are delivered from there on, to this
        same processor. Other shards are not moved: see ``sparkinesis reset`` for all of them.

        Where a Java KCL may share the lease table, the last record before the instant is looked for
        and written, by a few calls that read the stream; raises service errors, too.
        """
        try:
            target = parse_initial_position(to)
        except ValueError as error:
            given = to.isoformat() if isinstance(to, datetime) else repr(to)
            raise CheckpointError(f"The position to reset to is {given}, {error}.") from None
        with self._lock:
            if self._permitted.end is not None:
                raise CheckpointError("The shard has ended; it cannot be reset from shard_ended().")
            now_ms = self._service_time_ms()
            position = AtTimestamp(now_ms) if target is pos.LATEST else target
            place = ExtendedSequenceNumber.of(target)
            self._flush("reset the checkpoint")
            instant_ms = position.ms if isinstance(position, AtTimestamp) else None
            found = None if instant_ms is None else self._place_at(instant_ms)
            if found is None:
                self._held.checkpoint(place, instant_ms, moved_ms=now_ms)
            else:
                place = found
                self._held.move(place, moved_ms=now_ms)
            self._permitted = Permitted(place, place)
            self._reset_to = position

    # --- for the shard consumer

    def take_reset(self) -> Position | None:
        """Where the processor wants to go on, once. Until then nothing delivered counts."""
        with self._lock:
            position, self._reset_to = self._reset_to, None
            return position

    @property
    def is_reset(self) -> bool:
        return self._reset_to is not None

    @property
    def settled(self) -> ExtendedSequenceNumber | None:
        """The last checkpoint, if all that was delivered is behind it; else None."""
        with self._lock:
            permitted = self._permitted
            is_moving = permitted.end is not None or self._reset_to is not None
            return None if is_moving or permitted.last != permitted.largest else permitted.last

    def commit(self, at: ExtendedSequenceNumber, arrived_ms: int | None = None) -> None:
        """Write a checkpoint that was resolved; checked again, since others may lie in between.

        ``arrived_ms``: when its record arrived (epoch ms); None: to be looked up.
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
                arrived_ms = self._arrived_ms(at.sequence_number)
            self._held.checkpoint(at, known=_known(at, arrived_ms))
            self._permitted = replace(permitted, last=at)

    def _arrived_ms(self, sequence_number: str) -> int | None:
        """When a record arrived (epoch ms), if that is still known."""
        if self._last_arrival[0] == sequence_number:
            return self._last_arrival[1]
        known = self._held.lease.known
        if isinstance(known, AfterRecord) and known.sequence_number == sequence_number:
            return known.arrived_ms
        return None if self._batch is None else self._batch.arrived_ms(sequence_number)

    def _flush(self, doing: str) -> None:
        """Store what the sinks hold: no checkpoint may be ahead of it."""
        if self.sinks.has_rows:
            self._held.require_held(doing)  # or else rows that another worker writes come twice
            permitted = self._permitted
            self.sinks.flush(permitted.last, permitted.end or permitted.largest)

    def deliver(self, until: ExtendedSequenceNumber, batch: RecordBatch | None = None) -> None:
        """User records up to ``until`` are about to be delivered: permit checkpoints in them.

        ``batch``: theirs, which tells when they arrived.
        """
        with self._lock:
            self._batch = batch
            number = until.sequence_number
            self._last_arrival = number, None if batch is None else batch.arrived_ms(number)
            if self._reset_to is None and self._permitted.largest <= until:
                self._permitted = replace(self._permitted, largest=until)

    def end_call(self) -> None:
        """The batch was delivered, or its delivery failed: let go of it."""
        with self._lock:
            self._batch = None

    def take_back(self, until: ExtendedSequenceNumber) -> None:
        """Processing failed: permit nothing behind ``until``, or behind the last checkpoint."""
        with self._lock:
            if self._reset_to is None:
                until = max(until, self._permitted.last)
                self._permitted = replace(self._permitted, largest=until)

    def end(self) -> None:
        """The shard has ended: a checkpoint at its last user record is one at SHARD_END now."""
        with self._lock:
            if self._permitted.end is None:
                largest = self._permitted.largest
                self._permitted = replace(self._permitted, largest=_END, end=largest)


def _known(at: ExtendedSequenceNumber, arrived_ms: int | None) -> AfterRecord | None:
    """What a checkpoint's row tells of arrival times."""
    if at.is_sentinel or arrived_ms is None:
        return None
    clear_until = arrived_ms - CLOCK_MARGIN_MS
    return AfterRecord(at.sequence_number, clear_until, arrived_ms=arrived_ms)


def _arrival_of(at: UserRecord | str | None) -> int | None:
    if not isinstance(at, UserRecord) or at.approximate_arrival_timestamp is None:
        return None
    return AtTimestamp.of(at.approximate_arrival_timestamp).ms


def _parts(
    at: UserRecord | str | None, sub_sequence_number: int | None
) -> tuple[str | None, int | None]:
    if isinstance(at, UserRecord):
        return at.sequence_number, at.sub_sequence_number
    if at is not None and not isinstance(at, str):
        raise CheckpointError(
            f"A checkpoint is a user record or a sequence number, not {type(at).__name__}."
        )
    return at, sub_sequence_number
