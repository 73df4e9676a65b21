"""The start of a shard that ``initialize`` returns, from a store of the user's own."""

from __future__ import annotations

import re
from dataclasses import replace

from sparkinesis.errors import PositionNotFoundError, ProcessorError, ShardNotFoundError
from sparkinesis.lease.extended_sequence_number import TRIM_HORIZON, ExtendedSequenceNumber
from sparkinesis.lease.lease import Lease
from sparkinesis.stream.position import AfterRecord
from sparkinesis.worker.checkpointer import Checkpointer
from sparkinesis.worker.lifecycle.settings import ConsumerSettings

_DIGITS = re.compile(r"[0-9]{1,128}")
_MOST = 2**62
"""The bound of sub-sequence numbers that a lease's row may hold."""


def returned_start(returned: object, name: str) -> ExtendedSequenceNumber | None:
    """Return the start that ``initialize`` of a shard returned; None: after the checkpoint. Pure.

    name: the shard's, for the error. Raises `ProcessorError` for all that is no start.
    """
    if returned is None:
        return None
    if not isinstance(returned, ExtendedSequenceNumber):
        raise _wrong(name, f"a {type(returned).__name__}")
    number, sub = returned.sequence_number, returned.sub_sequence_number
    if number == TRIM_HORIZON:
        return replace(returned, sub_sequence_number=0)
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

    A start that has expired, be it with its shard, is written, and reading there tells the loss.
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
