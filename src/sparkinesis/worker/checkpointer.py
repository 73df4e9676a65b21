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
from sparkinesis.stream.position import AtTimestamp, Position, Sentinel
from sparkinesis.worker.batch import UserRecord
from sparkinesis.worker.sink import ShardSinks

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


class PreparedCheckpoint:
    """The first phase of a checkpoint in two; `checkpoint` is the second."""

    def __init__(self, checkpointer: Checkpointer, at: ExtendedSequenceNumber) -> None:
        self._checkpointer = checkpointer
        self.at = at

    def checkpoint(self) -> None:
        """Make it good. Raises what `Checkpointer.checkpoint` does."""
        self._checkpointer.commit(self.at)


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
    ) -> None:
        start = held.lease.checkpoint
        self.sinks = sinks or ShardSinks()
        self._held = held
        self._service_time_ms = service_time_ms
        self._lock = threading.RLock()
        self._reset_to: Position | None = None
        self._permitted = Permitted(start, start)

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
            self.commit(self._permitted.resolve(*_parts(at, sub_sequence_number)))

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
            return PreparedCheckpoint(self, wanted)

    def reset(self, to: str | datetime) -> None:
        """Move this shard: ``"LATEST"``, ``"TRIM_HORIZON"`` or an instant.

        The rest of what was fetched is dropped, and records are delivered from there on, to this
        same processor. Other shards are not moved: see ``sparkinesis reset`` for all of them.
        """
        if isinstance(to, datetime):
            if to.tzinfo is None:
                raise CheckpointError(f"{to.isoformat()} has no time zone; give one, such as UTC.")
        elif to not in {LATEST, TRIM_HORIZON}:
            raise CheckpointError(
                f"{to!r} is no place to reset to; it must be LATEST, TRIM_HORIZON or a datetime."
            )
        with self._lock:
            if self._permitted.end is not None:
                raise CheckpointError("The shard has ended; it cannot be reset from shard_ended().")
            if isinstance(to, datetime):
                position: Position = AtTimestamp.of(to)
                place = ExtendedSequenceNumber(AT_TIMESTAMP)
            else:
                latest = to == LATEST
                position = AtTimestamp(self._service_time_ms()) if latest else Sentinel.TRIM_HORIZON
                place = ExtendedSequenceNumber(to)
            self._flush("reset the checkpoint")
            self._held.checkpoint(place, position.ms if isinstance(position, AtTimestamp) else None)
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

    def commit(self, at: ExtendedSequenceNumber) -> None:
        """Write a checkpoint that was resolved; checked again, since others may lie in between."""
        with self._lock:
            permitted = self._permitted
            if at == permitted.last and at.is_sentinel:
                self._flush("checkpoint")
                return  # nothing was delivered yet, so there is no checkpoint to write
            at = permitted.resolve(at.sequence_number, at.sub_sequence_number)
            self._flush("checkpoint")
            if at == permitted.last:
                return
            self._held.checkpoint(at)
            self._permitted = replace(permitted, last=at)

    def _flush(self, doing: str) -> None:
        """Store what the sinks hold: no checkpoint may be ahead of it."""
        if self.sinks.has_rows:
            self._held.require_held(doing)  # or else rows that another worker writes come twice
            permitted = self._permitted
            self.sinks.flush(permitted.last, permitted.end or permitted.largest)

    def deliver(self, until: ExtendedSequenceNumber) -> None:
        """User records up to ``until`` are about to be delivered: permit checkpoints in them."""
        with self._lock:
            if self._reset_to is None and self._permitted.largest <= until:
                self._permitted = replace(self._permitted, largest=until)

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
