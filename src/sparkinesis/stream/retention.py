"""Has retention removed what a position points at? No record goes missing without a word."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkinesis.errors import DataLossError
from sparkinesis.stream.aggregation import deaggregate
from sparkinesis.stream.client import Fetched, StreamClient
from sparkinesis.stream.explain import BEGIN_ELSEWHERE
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import (
    AfterRecord,
    AtTimestamp,
    Position,
    ShardRange,
    advanced,
)

_log = logging.getLogger(__name__)

SHORTEST_RETENTION_MS = 24 * 3_600_000
"""No stream keeps records for less than this (Kinesis quotas)."""

CLOCK_MARGIN_MS = 60_000
"""How far arrival times may be out of order, and clocks apart, when silence is put on record."""

ITERATOR_LIFE_MS = 300_000
"""A shard iterator expires after this (GetShardIterator), and a subscription ends."""


def may_have_lost(position: Position, now_ms: int, retention_ms: int) -> bool:
    """Whether records after ``position`` may have been trimmed, given that its own record was.

    Retention removes by arrival time: nothing is lost while everything that may have come after
    the position is still kept.
    """
    horizon = now_ms - retention_ms
    if isinstance(position, AtTimestamp):
        return position.ms < horizon
    if isinstance(position, AfterRecord):
        return position.clear_until is None or position.clear_until < horizon
    return False


def holds_more(record: Record, done: AfterRecord) -> bool:
    """Whether ``record``, the one of the position ``done``, holds user records behind it.

    As a KCL does when it resumes: it reads AT its checkpoint's sequence number and drops the user
    records up to the checkpoint's sub-sequence number, 0 for a record that is not aggregated.
    """
    if done.sub_sequence_number is None:
        return False
    return len(deaggregate([record]).data) > done.sub_sequence_number + 1


def user_records_done(first: Record, start: Position) -> int:
    """How many user records of ``first``, read AT ``start``, lie before ``start``."""
    if not isinstance(start, AfterRecord) or start.sub_sequence_number is None:
        return 0
    is_start = first.sequence_number == start.sequence_number
    return start.sub_sequence_number + 1 if is_start else 0


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a reader has come in a shard, and when that was seen.

    Between two of its pages it may have slept for days: a processor that hangs, a machine that is
    suspended. What is to follow the first then may have been removed, and the second begins with
    the oldest record kept.
    """

    position: Position
    seen_ms: int | None = None
    """The service's clock (epoch ms) at the last page, once one had a record or was at the tip."""

    def after(self, fetched: Fetched) -> Reached:
        """Behind a page as well."""
        page, now_ms = fetched.page, fetched.service_time_ms
        at_tip = page.millis_behind_latest == 0
        if not page.records and not at_tip:
            return self if self.seen_ms is None else replace(self, seen_ms=now_ms)
        position, clear_until = self.position, now_ms if at_tip else None
        if page.records:
            last = page.records[-1]
            position = AfterRecord(last.sequence_number)
            if not at_tip and last.approximate_arrival_timestamp is not None:
                clear_until = round(last.approximate_arrival_timestamp * 1000)
        if clear_until is not None:
            position = advanced(position, clear_until - CLOCK_MARGIN_MS)
        return Reached(position, now_ms)

    def is_doubtful(self, fetched: Fetched) -> bool:
        """Whether records may be missing between here and a page that was fetched to follow.

        Then read again AT the position, for `RetentionCheck.after_start` to see.
        """
        now_ms = fetched.service_time_ms
        if self.seen_ms is None or now_ms - self.seen_ms <= ITERATOR_LIFE_MS:
            return False
        return may_have_lost(self.position, now_ms, SHORTEST_RETENTION_MS)


@dataclass(frozen=True, slots=True)
class RetentionCheck:
    """Looks at what a shard gives for a position; raises, or logs, when records are gone."""

    client: StreamClient
    fail_on_data_loss: bool = True

    def after_start(
        self, shard_id: str, start: Position, fetched: Fetched
    ) -> Sequence[Record] | None:
        """The records of ``fetched``, a page read AT ``start``, that come after ``start``.

        The record of ``start`` is the first of them when user records in it are still to come.
        None: the page holds nothing yet to judge by, so look at the next one. The service is not
        relied on to refuse a trimmed sequence number: it may as well begin with the oldest record
        it has. Raises `DataLossError`.
        """
        records = fetched.page.records
        if isinstance(start, AfterRecord):
            if not records and fetched.page.millis_behind_latest != 0:
                return None
            # At the tip, no record at all: then that of the position is not kept any more, and
            # what followed it may be gone as well.
            if records and records[0].sequence_number == start.sequence_number:
                return records if holds_more(records[0], start) else records[1:]
        now_ms = fetched.service_time_ms
        if may_have_lost(start, now_ms, SHORTEST_RETENTION_MS):
            # Worth a call to know what this stream's retention period is now.
            retention_ms = self.client.describe().retention_ms
            if may_have_lost(start, now_ms, retention_ms):
                self.lost(shard_id, start, retention_ms)
        return records

    def without_end(self, wanted: ShardRange, fetched: Fetched) -> None:
        """A range was read past its end, and the end's record was not there. `DataLossError`.

        No loss: the range begins at an instant since which everything is kept. Then its end arrived
        before its start; both are as a batch read was asked for.
        """
        retention_ms = self.client.describe().retention_ms
        if not isinstance(wanted.start, AtTimestamp) or may_have_lost(
            wanted.start, fetched.service_time_ms, retention_ms
        ):
            self.lost(wanted.shard_id, wanted.end, retention_ms)

    def lost(self, shard_id: str, position: Position, retention_ms: int | None = None) -> None:
        """Raise `DataLossError` for a position that has expired, or log it when told to go on."""
        if retention_ms is None:
            retention_ms = self.client.describe().retention_ms
        text = (
            f"The position {position} in shard {shard_id} of {self.client.address} has expired: "
            f"the stream keeps records for {retention_ms / 3_600_000:g} hours, and records that "
            "followed the position were removed before they were read."
        )
        if self.fail_on_data_loss:
            raise DataLossError(
                f"{text} Set the option failOnDataLoss to false to go on with the oldest record "
                f"kept, or {BEGIN_ELSEWHERE}; raise the stream's retention period to have more "
                "time in future."
            )
        _log.warning("%s Going on with the oldest record kept.", text)

    def tolerates(self, error: DataLossError) -> bool:
        """Whether to go on after the service itself said that a shard or position is gone."""
        if not self.fail_on_data_loss:
            _log.warning("%s Going on with the oldest record kept.", error)
        return not self.fail_on_data_loss
