"""The rules of checkpoints: which are permitted, and what is stored with them."""

# A checkpoint is permitted from the last one up to the largest position that was delivered and has
# not failed. Behind the last one, records would come again without a word; beyond the largest, the
# records between would be lost. The KCL permits what a failed ``process_records`` was given; here a
# failure takes the permission back.
#
# Two positions lie outside of this range and are permitted all the same, for no record is lost with
# them:
#
# - A checkpoint that an earlier owner of the lease prepared. Its records were processed, though not
#   here. When it had to wait until they were delivered again, a processor had no way to know when
#   it may commit. Now `initialize` may, and delivery begins after it.
# - The end of the shard: from `ended` on, the last user record and SHARD_END both mean the end.
#   This is recognised before positions are compared, which the KCL does first.
#
# A user record of an aggregate has its record's sequence number and a sub-sequence number of its
# own, which is kept: without it, a restart would begin at the aggregate's first user record.

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

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
from sparkinesis.lease.lease import Lease
from sparkinesis.stream.position import (
    CLOCKS_DIFFER_MS,
    AfterRecord,
    AtTimestamp,
    InitialPosition,
    parse_initial_position,
)
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.batches.user_record import UserRecord

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


class Delivered:
    """What was delivered: since when no checkpoint covers it, and when its records arrived."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.uncovered_since: float | None = None
        self.batch: RecordBatch | None = None
        """The batch that is being delivered."""
        self._last: tuple[str | None, int | None] = (None, None)
        """Sequence number and arrival time (epoch ms) of the last record that was delivered."""

    @property
    def age(self) -> float:
        since = self.uncovered_since
        return 0.0 if since is None else self._clock() - since

    def uncover(self) -> None:
        """Note the first record that no checkpoint covers."""
        self.uncovered_since = self._clock()

    def cover(self, *, is_whole: bool) -> None:
        """Note a checkpoint; ``is_whole``: of all that was delivered."""
        self.uncovered_since = None if is_whole else self._clock()

    def begin(self, until: ExtendedSequenceNumber, batch: RecordBatch | None) -> None:
        self.batch = batch
        number = until.sequence_number
        self._last = number, None if batch is None else batch.arrived_ms(number)

    def arrived_ms(self, at: ExtendedSequenceNumber, lease: Lease) -> int | None:
        """Return the arrival time of a record (epoch ms); None if it is no longer known."""
        sequence_number, known = at.sequence_number, lease.known
        if self._last[0] == sequence_number:
            return self._last[1]
        if isinstance(known, AfterRecord) and known.sequence_number == sequence_number:
            return known.arrived_ms
        return None if self.batch is None else self.batch.arrived_ms(sequence_number)


def known_after(at: ExtendedSequenceNumber, arrived_ms: int | None) -> AfterRecord | None:
    """Return the arrival times to store with a checkpoint."""
    if at.is_sentinel or arrived_ms is None:
        return None
    clear_until = arrived_ms - CLOCK_MARGIN_MS
    return AfterRecord(at.sequence_number, clear_until, arrived_ms=arrived_ms)


def parts_of(
    at: UserRecord | str | None, sub_sequence_number: int | None
) -> tuple[str | None, int | None]:
    """Return the numbers of a position as a user gives it. Raises `CheckpointError`."""
    if isinstance(at, UserRecord):
        return at.sequence_number, at.sub_sequence_number
    if at is not None and not isinstance(at, str):
        raise CheckpointError(
            f"checkpoint() takes a user record or a sequence number, not {type(at).__name__}."
        )
    return at, sub_sequence_number


def arrival_of(at: UserRecord | str | None) -> int | None:
    """Return the arrival time of a user record (epoch ms); None if it is not known."""
    if not isinstance(at, UserRecord) or at.approximate_arrival_timestamp is None:
        return None
    return AtTimestamp.of(at.approximate_arrival_timestamp).ms


def reset_target(to: str | datetime) -> InitialPosition:
    """Return the position of a reset, as a user gives it. Raises `CheckpointError`."""
    try:
        return parse_initial_position(to)
    except ValueError as error:
        given = to.isoformat() if isinstance(to, datetime) else repr(to)
        raise CheckpointError(f"The position to reset to is {given}, {error}.") from None


def check_reset(target: InitialPosition, now_ms: int) -> None:
    """Raise `CheckpointError` for a reset to the future. ``now_ms``: the service's clock."""
    if isinstance(target, AtTimestamp) and target.ms > now_ms + CLOCKS_DIFFER_MS:
        raise CheckpointError(
            f"The position to reset to is {target.instant.isoformat()}, which is in the "
            f"future: the stream's clock shows {AtTimestamp(now_ms).instant.isoformat()}. "
            "Give an instant in the past, or LATEST."
        )
