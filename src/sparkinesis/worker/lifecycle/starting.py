"""Where a shard is read from: its lease's checkpoint, and the bound of ``skip_older_than``. Pure.

Resuming reads AT the checkpoint's record, since user records in it may be left (KCL section
"ExtendedSequenceNumber"); what is done of it is dropped.
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
    """The position that ``lease`` tells. ``now_ms``: the service's clock.

    A sentinel without its instant was written by a KCL: LATEST means from now on there, and
    AT_TIMESTAMP the instant of the application's configuration. Where that is none, nothing may be
    lost, so the shard is read from its start.
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
    """``position``, or the bound (epoch ms) where it surely lies before that."""
    if position is TRIM_HORIZON:
        return AtTimestamp(bound_ms)
    if isinstance(position, AtTimestamp) and position.ms < bound_ms:
        return AtTimestamp(bound_ms)
    return position


def since(records: Sequence[Record], bound_ms: int) -> Sequence[Record]:
    """The records that arrived at ``bound_ms`` (epoch ms) or later."""
    kept = [record for record in records if not _is_older(record, bound_ms)]
    return records if len(kept) == len(records) else kept


def later(taken: AfterRecord | None, reached: Position) -> AfterRecord | None:
    """Of two places in a shard the one farther on; None where neither is a record."""
    if not isinstance(reached, AfterRecord):
        return taken
    if taken is None:
        return reached
    return max(reached, taken, key=lambda place: sequence_order(place.sequence_number))


def beyond(records: Sequence[Record], taken: AfterRecord) -> Sequence[Record]:
    """The records behind ``taken``, and its own record where only a part of that is done."""
    place, is_whole = sequence_order(taken.sequence_number), taken.sub_sequence_number is None

    def is_taken(record: Record) -> bool:
        order = sequence_order(record.sequence_number)
        return order < place or (order == place and is_whole)

    kept = [record for record in records if not is_taken(record)]
    return records if len(kept) == len(records) else kept


def is_behind(records: Sequence[Record], bound_ms: int) -> bool:
    """Whether a page is so old that jumping to the bound saves reading what lies in between."""
    return bool(records) and _is_older(records[-1], bound_ms)


def _is_older(record: Record, bound_ms: int) -> bool:
    arrival = record.approximate_arrival_timestamp
    return arrival is not None and round(arrival * 1000) < bound_ms
