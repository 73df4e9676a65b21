"""The start of reading a shard: its checkpoint, or ``skip_older_than``'s bound. Pure.

A resumed shard is read AT the checkpoint's record, which may hold user records that are not yet
processed (KCL section "ExtendedSequenceNumber"); the processed ones are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkinesis.lease.lease import Lease
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import (
    LATEST,
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    sequence_order,
)


def start_position(
    lease: Lease, initial: Position, now_ms: int, *, deaggregate: bool = True
) -> Position:
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


def not_before(position: Position, bound_ms: int) -> Position:
    """Return ``position``, or the bound (epoch ms) if the position surely lies before the bound."""
    if position is TRIM_HORIZON:
        return AtTimestamp(bound_ms)
    if isinstance(position, AtTimestamp) and position.ms < bound_ms:
        return AtTimestamp(bound_ms)
    return position


def drop_older(records: Sequence[Record], bound_ms: int) -> Sequence[Record]:
    """Return the records that arrived at ``bound_ms`` (epoch ms) or later."""
    kept = [record for record in records if not is_older(record, bound_ms)]
    return records if len(kept) == len(records) else kept


def is_older(record: Record, bound_ms: int) -> bool:
    """Return True if the record is known to have arrived before ``bound_ms`` (epoch ms)."""
    arrival = record.approximate_arrival_timestamp
    return arrival is not None and round(arrival * 1000) < bound_ms


def farther(last: AfterRecord | None, reached: Position) -> AfterRecord | None:
    """Return the position that is farther on in the shard; None if neither is a record's."""
    if not isinstance(reached, AfterRecord):
        return last
    if last is None:
        return reached
    return max(reached, last, key=lambda position: sequence_order(position.sequence_number))


def drop_up_to(last: AfterRecord, records: Sequence[Record]) -> Sequence[Record]:
    """Return the records after ``last``, and its own record if only a part of that is done."""
    last_order, is_whole = sequence_order(last.sequence_number), last.sub_sequence_number is None

    def is_done(record: Record) -> bool:
        order = sequence_order(record.sequence_number)
        return order < last_order or (order == last_order and is_whole)

    kept = [record for record in records if not is_done(record)]
    return records if len(kept) == len(records) else kept
