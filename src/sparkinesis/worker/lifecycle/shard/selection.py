"""The selection of the records of a page that are delivered, and how far that brings a shard.

Records are left out if they were delivered before a jump to an instant, or are older than
``skip_older_than`` permits. If a page ends before that bound, the reader jumps there. All of this
is pure; `HashRangeFilter`, which leaves out user records of aggregates, may ask the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from sparkinesis.stream.page import Fetched, Record
from sparkinesis.stream.position import AfterRecord, AtTimestamp, Position, sequence_order
from sparkinesis.stream.reading.retention import ReadProgress
from sparkinesis.worker.batches.batch import RecordBatch
from sparkinesis.worker.lifecycle.settings import ConsumerSettings, ReadRange
from sparkinesis.worker.lifecycle.shard.starting import StartCheck

_DISORDER_MS = 10_000
"""The most by which the arrival times of a shard's records are taken to be out of order."""
_NEXT_JUMP_MS = 1_000
"""The least by which a jump goes beyond the one before. Servers that know instants to the second
begin at the same record for all instants of a second: a reader would jump there for ever."""

_KEPT_FOR = 60.0
"""Seconds for which nothing is dropped, nor the service asked again, if the stream was found to
distribute records itself."""


class ShardProgress(msgspec.Struct, frozen=True):
    """A position up to which a shard was read. Replaced by each page; restored after an error."""

    read_up_to: ReadProgress
    """The position at which retrieval began, or resumes after an error."""
    start_check: StartCheck | None = None
    """Checks the first page after a checkpoint or a long pause; None once that page was seen."""
    before_jump: AfterRecord | None = None
    """The last record that was read before a jump to an instant. Arrival times are in no order, so
    the instant may lie before this record; records up to it are dropped."""
    last_arrival_ms: int | None = None
    """Arrival time of the last record read; before the first one, of the checkpoint's record (epoch
    ms)."""
    jumped_to_ms: int | None = None
    """The instant of the last jump (epoch ms)."""

    @property
    def deliver_after(self) -> Position:
        """The position after which records are to be delivered."""
        return self.before_jump or self.read_up_to.position


class Selection(NamedTuple):
    """The records of a page to deliver, and the progress of the shard with them."""

    records: Sequence[Record]
    progress: ShardProgress
    jump_to_ms: int | None = None
    """The bound (epoch ms) at which reading restarts instead; None: it goes on."""


def select(
    progress: ShardProgress,
    fetched: Fetched,
    found: Sequence[Record] | None,
    bound_ms: int | None,
    *,
    may_jump: bool,
) -> Selection:
    """Select the records of a page that are to be delivered.

    found: the page's records, without those that `ShardProgress.start_check` has dropped; None if
    it must check the next page too. bound_ms: the bound of ``skip_older_than`` (epoch ms), if any.
    may_jump: True if another retrieval may begin now; until then, this one approaches the bound.
    """
    records: Sequence[Record] = found or ()
    if progress.before_jump is not None:
        records = _drop_up_to(progress.before_jump, records)
    after = ShardProgress(
        progress.read_up_to.after(fetched),
        progress.start_check if found is None else None,
        None if records else progress.before_jump,
        records[-1].arrived_ms if records else progress.last_arrival_ms,
        progress.jumped_to_ms,
    )
    if bound_ms is None:
        return Selection(records, after)
    former_ms = progress.jumped_to_ms
    may_jump = may_jump and (former_ms is None or bound_ms >= former_ms + _NEXT_JUMP_MS)
    if may_jump and records and _is_older(records[-1], bound_ms):
        last = _farther(progress.before_jump, progress.read_up_to.position)
        start = ReadProgress(AtTimestamp(bound_ms))
        jumped = ShardProgress(start, None, last, after.last_arrival_ms, bound_ms)
        return Selection((), jumped, jump_to_ms=bound_ms)
    return Selection(drop_older(records, bound_ms), after)


def drop_older(records: Sequence[Record], bound_ms: int) -> Sequence[Record]:
    """Return the records that arrived at ``bound_ms`` (epoch ms) or later."""
    return [record for record in records if not _is_older(record, bound_ms)]


def within(records: Sequence[Record], reads: ReadRange) -> Sequence[Record]:
    """Return the records that arrived within a range, and those whose arrival is unknown."""
    return [
        record
        for record in records
        if (ms := record.arrived_ms) is None or reads.since_ms <= ms < reads.until_ms
    ]


def is_beyond(fetched: Fetched, reads: ReadRange) -> bool:
    """Return True if no record within the range follows the page in its shard.

    Arrival times are in no order: a record that is a little later than the range ends nothing.
    """
    page = fetched.page
    last = page.records[-1].arrived_ms if page.records else None
    if last is not None and last >= reads.until_ms + _DISORDER_MS:
        return True
    is_at_tip = page.millis_behind_latest == 0
    return (
        is_at_tip
        and page.next_shard_iterator is not None
        and fetched.service_time_ms >= reads.until_ms
    )


def _is_older(record: Record, bound_ms: int) -> bool:
    """Return True if the record is known to have arrived before ``bound_ms`` (epoch ms)."""
    arrived_ms = record.arrived_ms
    return arrived_ms is not None and arrived_ms < bound_ms


def _farther(last: AfterRecord | None, reached: Position) -> AfterRecord | None:
    """Return the position that is farther on in the shard; None if neither is a record's."""
    if not isinstance(reached, AfterRecord):
        return last
    if last is None:
        return reached
    return max(reached, last, key=lambda position: sequence_order(position.sequence_number))


def _drop_up_to(last: AfterRecord, records: Sequence[Record]) -> Sequence[Record]:
    """Return the records after ``last``, and its own record if only a part of that is done."""
    last_order, is_whole = sequence_order(last.sequence_number), last.sub_sequence_number is None

    def is_done(record: Record) -> bool:
        order = sequence_order(record.sequence_number)
        return order < last_order or (order == last_order and is_whole)

    return [record for record in records if not is_done(record)]


class _MakeBatch(Protocol):
    def __call__(self, *, hash_range: tuple[int, int] | None = None) -> tuple[RecordBatch, int]: ...


class HashRangeFilter:
    """Has batches made without user records that a KPL puts again after a reshard.

    A stream may begin to distribute records itself at any moment, and a record does not say how it
    was put; its user records are then where they belong, whatever their keys. When the service was
    asked once, at the start, most user records of a stream whose strategy was switched were lost.
    So it is asked after the fetch of a page from which records would be dropped. An answer holds
    for each page that was fetched before the question.
    """

    def __init__(self, settings: ConsumerSettings, hash_range: tuple[int, int] | None) -> None:
        """``hash_range``: None to drop nothing."""
        self.dropped = 0
        self._settings = settings
        self._hash_range = hash_range
        self._drops_from = 0.0
        """The time until which nothing is dropped, by the worker's clock."""
        self._asked_at = 0.0
        """The time of the last question, before which a page was fetched if it needs no other."""

    def apply(self, make: _MakeBatch, fetched_at: float) -> tuple[RecordBatch, int]:
        """Return a page's batch, and the number of user records that were dropped of it."""
        now = self._settings.clock()
        batch, dropped = make(hash_range=self._hash_range if now >= self._drops_from else None)
        if dropped and fetched_at >= self._asked_at:
            if self._settings.client.describe().distributes_records:
                # A KPL may give up before each user record has come to the shard of its key.
                self._drops_from = now + _KEPT_FOR
                batch, dropped = make()
            else:
                self._asked_at = now
        self.dropped += dropped
        return batch, dropped
