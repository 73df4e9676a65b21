"""The start of reading a shard, and a check there that no record was lost.

A shard begins where ``initialize`` says, else at its checkpoint, or at ``skip_older_than``'s bound.
A resumed shard is read AT the checkpoint's record, which may hold user records that are not yet
processed (KCL section "ExtendedSequenceNumber"); the processed ones are dropped. The check detects
records that expired before they were read; every loss is logged and counted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from msgspec.structs import replace

from sparkinesis.errors import (
    PositionNotFoundError,
    ProcessorError,
    ServiceError,
    ShardNotFoundError,
)
from sparkinesis.lease.extended_sequence_number import ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.lease.rules.lease_start import WantedRecords, wanted_records
from sparkinesis.stream.page import Fetched, Record
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    advanced,
)
from sparkinesis.stream.reading.retention import SHORTEST_RETENTION_MS, RetentionCheck
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings

_DIGITS = re.compile(r"[0-9]{1,128}")
_MOST = 2**62
"""The bound of sub-sequence numbers that a lease's row may hold."""


# --- the start that `initialize` returns


def returned_start(returned: object, name: str) -> ExtendedSequenceNumber | None:
    """Return the start that ``initialize`` of a shard returned; None: after the checkpoint. Pure.

    name: the shard's, for the error. Raises `ProcessorError` for all that is no start.
    """
    if returned is None:
        return None
    if not isinstance(returned, ExtendedSequenceNumber):
        raise _wrong(name, f"a {type(returned).__name__}")
    number, sub = returned.sequence_number, returned.sub_sequence_number
    if number == str(TRIM_HORIZON):
        return dataclasses.replace(returned, sub_sequence_number=0)
    if returned.is_shard_end:
        raise _wrong(
            name,
            "SHARD_END. Return the shard's last record instead: the worker reads the shard's end, "
            "makes the leases of its children, and calls shard_ended",
        )
    if returned.is_sentinel:
        raise _wrong(
            name,
            f"{number}, which is not the position of a record. To move the shard there, return "
            "None, and call checkpointer.reset(...) in process_records",
        )
    if not isinstance(number, str) or not _DIGITS.fullmatch(number):
        raise _wrong(name, f"the sequence number {number!r:.80}, which is not a text of digits")
    if not isinstance(sub, int) or not 0 <= sub < _MOST:
        raise _wrong(name, f"the sub-sequence number {sub!r:.80}, which counts from 0")
    return returned


def move_to(
    start: ExtendedSequenceNumber,
    lease: Lease,
    checkpointer: Checkpointer,
    settings: ConsumerSettings,
) -> None:
    """Make a start the checkpoint of a lease that this worker holds; write nothing if it is.

    A start that has expired, alone or with its shard, is written all the same, and reading there
    reports the loss: when a shard that is gone was an error, `initialize` was repeated for ever.
    Raises `ProcessorError` for a record of another shard, the errors of the calls, and those of
    `HeldLease.move`.
    """
    if start == lease.checkpoint:
        return
    if not start.is_sentinel:
        _require_of_shard(start, lease.shard_id, settings)
    checkpointer.begin_at(start)


def _require_of_shard(
    start: ExtendedSequenceNumber, shard_id: str, settings: ConsumerSettings
) -> None:
    """Raise `ProcessorError` for a sequence number that the service refuses as another shard's."""
    at = AfterRecord(start.sequence_number)
    try:
        settings.client.shard_iterator(shard_id, at, inclusive=True)
    except (PositionNotFoundError, ShardNotFoundError) as error:
        # The record has expired, or the whole shard, or it is not this shard's record: its digits
        # say which.
        if encodes_another_shard(start.sequence_number, shard_id):
            raise _wrong(
                settings.describe_shard(shard_id),
                f"{start}, a record of another shard. Keep each shard's position by stream and "
                f"shard id. {error}",
            ) from None


def encodes_another_shard(sequence_number: str, shard_id: str) -> bool:
    """Return True if a sequence number says that it is another shard's, False if it does not. Pure.

    The layout is that which the KCL's ``SequenceNumberValidator`` knows: 186 bits, which end with 4
    bits for the version, 2, after 32 bits for the number in the shard id. Nothing is known of a
    number, or of a shard id, that another server makes in another way.
    """
    number, (_, _, index) = int(sequence_number), shard_id.rpartition("-")
    is_known = number.bit_length() == 186 and number & 0xF == 2 and index.isdecimal()
    return is_known and number >> 4 & 0xFFFF_FFFF != int(index)


def _wrong(name: str, what: str) -> ProcessorError:
    return ProcessorError(
        f"initialize of {name} returned {what}. It may return None, to begin after the lease's "
        "checkpoint, or a sparkinesis.ExtendedSequenceNumber(sequence_number, sub_sequence_number) "
        'up to which everything is done, or ExtendedSequenceNumber("TRIM_HORIZON"). Nothing was '
        "delivered or written."
    )


# --- the start of the lease


def start_of(
    lease: Lease, initial: Position, now_ms: int, bound_ms: int | None, *, deaggregate: bool
) -> tuple[Position, WantedRecords | None]:
    """Return the position after the lease's checkpoint, and the records wanted from there.

    None instead of the records: those after the checkpoint's own. bound_ms: the bound of
    `skip_older_than` (epoch ms), if any. The others: see `start_position`.
    """
    start = start_position(lease, initial, now_ms, deaggregate=deaggregate)
    if isinstance(start, AfterRecord):
        return start, None  # whether it lies before the bound is not known
    unread = wanted_records(lease, initial)
    if bound_ms is not None:
        unread = replace(unread, skipped_before_ms=bound_ms)
    return advanced(start, bound_ms), unread


def start_position(lease: Lease, initial: Position, now_ms: int, *, deaggregate: bool) -> Position:
    """Return the position of ``lease``. ``now_ms``: the service's clock.

    A sentinel without an instant was written by a KCL. LATEST means from now on, and AT_TIMESTAMP
    the instant in the application's configuration. If the configuration has no instant, the shard
    is read from its start, so that nothing is lost.
    """
    position = lease.position()
    if position is LATEST:
        return AtTimestamp(now_ms)
    if position is None:
        return initial if isinstance(initial, AtTimestamp) else TRIM_HORIZON
    if isinstance(position, AfterRecord) and not deaggregate and not position.sub_sequence_number:
        return replace(position, sub_sequence_number=None)
    return position


class StartCheck:
    """Checks that no record is missing between a position and the first page after it.

    For one thread. A page that could not be used is checked again; a loss is reported once.
    """

    # Reading AT the checkpoint's record shows whether the record is kept: if it is, nothing after
    # it has expired. The same check follows a pause within which records may have expired (a
    # suspended machine, a processor that hung): a new iterator begins with the oldest record that
    # is kept, whatever was removed before it.
    #
    # A lease without a record (LATEST, an instant, the first record of a child) has only the time
    # since which its shard may hold records. If that is longer ago than records are kept, and both
    # stream and shard are as old, records are lost. A quiet shard is no loss: a worker that has
    # read all of it notes that with its lease.

    def __init__(
        self,
        shard_id: str,
        start: Position,
        settings: ConsumerSettings,
        unread: WantedRecords | None = None,
    ) -> None:
        """``unread``: the records that are wanted, where ``start`` is not a record's position."""
        self._shard_id = shard_id
        self._start = start
        self._settings = settings
        if unread is None and isinstance(start, AtTimestamp):
            unread = WantedRecords(start)
        self._unread = unread
        self._retention = RetentionCheck(
            settings.client, on_loss=self._report, describe=settings.describe
        )
        self._is_reported = False

    def check_page(self, fetched: Fetched) -> Sequence[Record] | None:
        """Check a page that was read AT the position: report what is lost, return what comes after.

        Returns None if the page does not show whether records are missing: check the next page.
        """
        if isinstance(self._start, AfterRecord):
            # Records that `skip_older_than` skips do not count as lost.
            bound_ms = self._settings.skip_before(fetched.service_time_ms)
            start = advanced(self._start, bound_ms)
            return self._retention.check_start(self._shard_id, start, fetched)
        if self._unread is not None and not self._is_reported:
            self._check_age(self._unread, fetched.service_time_ms)
        return fetched.page.records

    def _check_age(self, unread: WantedRecords, now_ms: int) -> None:
        if not unread.may_have_lost(now_ms, SHORTEST_RETENTION_MS):
            return
        # Only now are calls for the stream's retention period and age worth their cost.
        stream = self._settings.describe()
        if (
            unread.may_have_lost(now_ms, stream.retention_ms)
            and stream.created_ms < now_ms - stream.retention_ms
            and self._is_shard_old()
        ):
            self._retention.report_loss(self._shard_id, self._start, stream.retention_ms)

    def _is_shard_old(self) -> bool:
        """Return True if the shard is older than the oldest record kept, or its age is unknown."""
        try:
            shards, _ = self._settings.client.list_shards(at=TRIM_HORIZON)
        except ServiceError:
            return True
        return any(shard.id == self._shard_id for shard in shards)

    def _report(self, text: str) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._settings.reporter(self._shard_id).lost(
                f"{text} Resuming with the oldest record kept."
            )
