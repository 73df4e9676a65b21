"""The rules of checkpoints: which are permitted, and what is stored with them. Pure."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from sparkinesis.errors import CheckpointError
from sparkinesis.lease.extended_sequence_number import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from sparkinesis.stream.position import AfterRecord
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS

_END = ExtendedSequenceNumber(SHARD_END)

MAX_STATE_BYTES = 400_000
"""The most bytes of a prepared checkpoint's state. DynamoDB stores 400 KB (409,600 bytes) in a row;
the rest is left for the lease, and for what others note in its row."""


class Permitted(msgspec.Struct, frozen=True):
    """The range of positions that may be checkpointed."""

    last: ExtendedSequenceNumber
    """The last checkpoint."""
    largest: ExtendedSequenceNumber
    """The last user record that was handed to ``process_records`` and has not failed so far, or was
    given up."""
    end: ExtendedSequenceNumber | None = None
    """The shard's last user record, once the shard has ended; None before."""
    pending: ExtendedSequenceNumber | None = None
    """A checkpoint that an earlier owner of the lease prepared: permitted although its records have
    not been delivered again. The end of a shard is none: its children need leases first."""

    def taken_back(self, until: ExtendedSequenceNumber) -> Permitted:
        """Return the range once the records after ``until`` have failed."""
        return replace(self, largest=max(until, self.last))

    def ended(self) -> Permitted:
        """Return the range at the end of the shard: its last user record stands for SHARD_END."""
        return self if self.end is not None else replace(self, largest=_END, end=self.largest)

    def committed(self, at: ExtendedSequenceNumber) -> Permitted:
        """Return the range after a checkpoint at ``at``."""
        return replace(self, last=at, largest=max(self.largest, at), pending=None)

    def resolve(
        self, sequence_number: str | None, sub_sequence_number: int | None
    ) -> ExtendedSequenceNumber:
        """Return the checkpoint to write for a call of ``checkpoint``. Raises `CheckpointError`."""
        if sequence_number is None:
            if sub_sequence_number is not None:
                raise CheckpointError(
                    "A sub-sequence number was given without a sequence number. Call "
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
                f"A checkpoint at {wanted} lies before the last checkpoint, at {self.last}. To "
                "process records again, use checkpointer.reset()."
            )
        if not wanted <= self.largest and wanted != self.pending:
            advice = " Checkpoint the end in shard_ended()." if wanted == _END else ""
            raise CheckpointError(
                f"A checkpoint at {wanted} lies beyond the last record that was processed, at "
                f"{self.largest}. The records in between would be lost.{advice}"
            )
        return wanted


def _check(wanted: ExtendedSequenceNumber) -> None:
    name = wanted.sequence_number
    if name in {LATEST, TRIM_HORIZON, AT_TIMESTAMP}:
        raise CheckpointError(
            f"{name} is not the position of a record. To move the shard there, use "
            f"checkpointer.reset({name!r})."
        )
    if name != SHARD_END and not (name.isascii() and name.isdecimal()):
        raise CheckpointError(f"{name[:80]!r} is not a sequence number: those have digits only.")
    if wanted.sub_sequence_number < 0:
        raise CheckpointError(
            f"The sub-sequence number {wanted.sub_sequence_number} is negative; it counts from 0."
        )


def check_state(state: object) -> None:
    if state is None:
        return
    if not isinstance(state, bytes):
        raise CheckpointError(
            f"state is of the type {type(state).__name__}; it must be bytes, such as "
            "json.dumps(...).encode(). Nothing was written."
        )
    if len(state) > MAX_STATE_BYTES:
        raise CheckpointError(
            f"state has {len(state):,} bytes; it may have {MAX_STATE_BYTES:,}. DynamoDB stores at "
            "most 400 KB in a row, which holds the whole lease. Store it elsewhere, and give its "
            "place as the state. Nothing was written."
        )


def known_after(at: ExtendedSequenceNumber, arrived_ms: int | None) -> AfterRecord | None:
    """Return the arrival times to store with a checkpoint."""
    if at.is_sentinel or arrived_ms is None:
        return None
    clear_until = arrived_ms - CLOCK_MARGIN_MS
    return AfterRecord(at.sequence_number, clear_until, arrived_ms=arrived_ms)
