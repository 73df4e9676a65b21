"""Has retention removed what a position points at? No record goes missing without a word.

The decisions are pure functions over a position, the service's clock, and what a stream's summary
tells. `RetentionCheck` looks at pages for them. It calls DescribeStreamSummary only where a record
is not where it was: a position whose record is still there costs no call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from sparkinesis.errors import DataLossError
from sparkinesis.stream.calls.client import Fetched, StreamClient, StreamSummary
from sparkinesis.stream.calls.explain import BEGIN_ELSEWHERE
from sparkinesis.stream.kpl.unpack import deaggregate
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import (
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    ShardRange,
    advanced,
    sequence_order,
)

_log = logging.getLogger(__name__)

HOUR_MS = 3_600_000

SHORTEST_RETENTION_MS = 24 * HOUR_MS
"""No stream keeps records for less than this (Kinesis quotas)."""

CLOCK_MARGIN_MS = 60_000
"""How far arrival times may be out of order, and clocks apart, when silence is put on record."""

_MOST_EMPTY_PAGES = 5

_MOST_PLACES = 10
"""Shards that a message names; a stream has thousands."""

_LONGER_RETENTION = "; raise the stream's retention period to have more time in future"

ITERATOR_LIFE_MS = 300_000
"""A shard iterator expires after this (GetShardIterator), and a subscription ends."""


def may_have_lost(position: Position, now_ms: int, retention_ms: int) -> bool:
    """Whether records after ``position`` may have been trimmed, if retention was never shorter.

    Retention removes by arrival time: nothing is lost while everything that may have come after
    the position is still kept.
    """
    horizon = now_ms - retention_ms
    if isinstance(position, AtTimestamp):
        return position.ms < horizon
    if isinstance(position, AfterRecord):
        return position.clear_until is None or position.clear_until < horizon
    return False


def is_kept(position: Position, now_ms: int, retention_ms: int) -> bool:
    """Whether retention, if it was never shorter, still keeps the position's own record.

    False where the position does not tell when its record arrived.
    """
    if not isinstance(position, AfterRecord) or position.arrived_ms is None:
        return False
    return position.arrived_ms >= now_ms - retention_ms + CLOCK_MARGIN_MS


def has_lost(position: Position, now_ms: int, retention_ms: int) -> bool:
    """Whether records after ``position`` may be gone, where its own record is not there any more.

    ``retention_ms``: the stream's retention period now. A record that it would keep, and that is
    gone, shows that the period was shorter meanwhile. How short is not known; no stream keeps
    records for less than `SHORTEST_RETENTION_MS`, so whatever arrived within that time is there.
    """
    if not is_kept(position, now_ms, retention_ms):
        return may_have_lost(position, now_ms, retention_ms)
    if is_kept(position, now_ms, SHORTEST_RETENTION_MS):
        return True  # no retention period removes so young a record
    return may_have_lost(position, now_ms, SHORTEST_RETENTION_MS)


def is_of_another_stream(position: Position, created_ms: int) -> bool:
    """Whether a stream that was created at ``created_ms`` is younger than a stored ``position``.

    Then it has the name of a deleted stream, which the position is of. An instant that a user chose
    as the beginning is not a stored position: it may well be older than the stream. False for a
    position that holds no time.
    """
    if isinstance(position, AtTimestamp):
        known: int | None = position.ms
    elif isinstance(position, AfterRecord):
        times = (position.arrived_ms, position.clear_until)
        known = max((time for time in times if time is not None), default=None)
    else:
        known = None
    # What is stored of a look lies a margin before the look, and clocks may be another one apart.
    return known is not None and created_ms > known + 2 * CLOCK_MARGIN_MS


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
class ReadProgress:
    """How far a reader has come in a shard, and when that was seen.

    Between two of its pages it may have slept for days: a processor that hangs, a machine that is
    suspended. What is to follow the first then may have been removed, and the second begins with
    the oldest record kept.
    """

    position: Position
    seen_ms: int | None = None
    """The service's clock (epoch ms) at the last page, once one had a record or was at the tip."""

    def after(self, fetched: Fetched) -> ReadProgress:
        """Behind a page as well."""
        page, now_ms = fetched.page, fetched.service_time_ms
        at_tip = page.millis_behind_latest == 0
        if not page.records and not at_tip:
            return self if self.seen_ms is None else replace(self, seen_ms=now_ms)
        position, clear_until = self.position, now_ms if at_tip else None
        if page.records:
            last = page.records[-1]
            position = AfterRecord(last.sequence_number, arrived_ms=last.arrived_ms)
            if not at_tip:
                clear_until = last.arrived_ms
        if clear_until is not None:
            position = advanced(position, clear_until - CLOCK_MARGIN_MS)
        return ReadProgress(position, now_ms)

    def may_have_missed(self, fetched: Fetched) -> bool:
        """Whether records may be missing between here and a page that was fetched to follow.

        Then read again AT the position, for `RetentionCheck.check_start` to see.
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
    on_loss: Callable[[str], None] | None = None
    """Told of each loss, in place of an error or the log."""
    logs_doubt: bool = False
    """Log a warning also where nothing shows whether retention was shorter meanwhile."""
    describe: Callable[[], StreamSummary] | None = None
    """The stream's summary, where many checks share it; None: by a call of the client's."""

    def check_start(
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
        if has_lost(start, now_ms, SHORTEST_RETENTION_MS):
            # Worth a call to know what this stream is like now.
            stream = self._summary()
            # A user may have chosen an instant to start from: `report_other_stream` judges those.
            is_record = isinstance(start, AfterRecord)
            if is_record and is_of_another_stream(start, stream.created_ms):
                self._report_other_stream({shard_id: start}, stream)
            elif has_lost(start, now_ms, stream.retention_ms):
                was_shorter = is_kept(start, now_ms, stream.retention_ms)
                self.report_loss(shard_id, start, stream.retention_ms, was_shorter=was_shorter)
            elif self.logs_doubt and not self._has_older(shard_id, start):
                self._log_doubt(shard_id, start, stream.retention_ms)
        return records

    def check_planned_first(self, wanted: ShardRange, first: Record | None) -> bool:
        """Whether the first record that the plan of a range saw is there. Raises `DataLossError`.

        ``first``: the first record that the range gives now; None if it gives none.
        """
        if wanted.first is None or (
            first is not None
            and sequence_order(first.sequence_number) <= sequence_order(wanted.first)
        ):
            return True
        retention_ms = self._summary().retention_ms
        self._report(
            f"The record {wanted.first} in shard {wanted.shard_id} of {self.client.address}, with "
            f"which the batch from {wanted.start} to {wanted.end} began when it was planned, has "
            f"expired: the stream keeps records for {retention_ms / HOUR_MS:g} hours, and the "
            "record was removed before the batch was read."
        )
        return False

    def report_missing_end(self, wanted: ShardRange, fetched: Fetched) -> None:
        """A range was read past its end, and the end's record was not there. `DataLossError`.

        No loss: the range begins at an instant since which everything is kept, and no plan saw a
        record in it. Then its end arrived before its start; both are as a batch read was asked for.
        """
        stream = self._summary()
        if (
            wanted.first is not None
            or not isinstance(wanted.start, AtTimestamp)
            or may_have_lost(wanted.start, fetched.service_time_ms, stream.retention_ms)
        ):
            self.report_loss(wanted.shard_id, wanted.end, stream.retention_ms)

    def report_other_stream(
        self,
        positions: Mapping[str, Position],
        stream: StreamSummary,
        skip_older_than: float | None = None,
    ) -> frozenset[str]:
        """The shards whose stored positions are older than the stream. Raises `DataLossError`.

        Those positions are of a deleted stream of the same name. A query or a worker asks once,
        when it goes on from what was stored: one DescribeStreamSummary is enough for all shards.
        ``skip_older_than`` (seconds): what arrived longer ago is not wanted, so its loss is none.
        """
        skipped_ms = 0
        if skip_older_than is not None:
            skipped_ms = stream.service_time_ms - round(skip_older_than * 1000)
        others = {
            shard: position
            for shard, position in positions.items()
            if is_of_another_stream(position, stream.created_ms) and stream.created_ms > skipped_ms
        }
        if others:
            self._report_other_stream(others, stream)
        return frozenset(others)

    def report_loss(
        self,
        shard_id: str,
        position: Position,
        retention_ms: int | None = None,
        *,
        was_shorter: bool = False,
    ) -> None:
        """Raise `DataLossError` for a position that has expired, or log it when told to go on.

        ``was_shorter``: by the present retention period the position's record would be there.
        """
        if retention_ms is None:
            retention_ms = self._summary().retention_ms
        hours = f"{retention_ms / HOUR_MS:g} hours"
        keeps = f"the stream keeps records for {hours}"
        if was_shorter:
            keeps = (
                f"the stream keeps records for {hours} now, but did so for a shorter time before"
            )
        self._report(
            f"The position {position} in shard {shard_id} of {self.client.address} has expired: "
            f"{keeps}, and records that followed the position were removed before they were read."
        )

    def accept_or_raise(self, error: DataLossError) -> None:
        """Log the service's own error about a shard or position that is gone, or raise it."""
        if self.fail_on_data_loss:
            raise error
        _log.warning("%s Going on with the oldest record kept.", error)

    def _has_older(self, shard_id: str, start: Position) -> bool:
        """Whether the shard still has a record from before ``start``: then it has all since then.

        Costs a GetShardIterator and mostly one GetRecords.
        """
        if not isinstance(start, AtTimestamp):
            return False  # no record lies between the position's own and the time it is clear until
        iterator: str | None = self.client.shard_iterator(shard_id, TRIM_HORIZON)
        for _ in range(_MOST_EMPTY_PAGES):
            if iterator is None:
                break
            page = self.client.get_records(shard_id, iterator, 1).page
            if page.records:
                arrived_ms = page.records[0].arrived_ms
                # Arrival times may be out of order.
                return arrived_ms is not None and arrived_ms < start.ms - CLOCK_MARGIN_MS
            iterator = page.next_shard_iterator
        return False

    def _log_doubt(self, shard_id: str, start: Position, retention_ms: int) -> None:
        _log.warning(
            "The position %s in shard %s of %s is older than %d hours. The stream keeps records "
            "for %g hours. If it kept them for a shorter time meanwhile, records that followed the "
            "position were removed before they were read; nothing shows whether it did. Going on "
            "with the oldest record kept.",
            start,
            shard_id,
            self.client.address,
            SHORTEST_RETENTION_MS // HOUR_MS,
            retention_ms / HOUR_MS,
        )

    def _report_other_stream(
        self, positions: Mapping[str, Position], stream: StreamSummary
    ) -> None:
        created = datetime.fromtimestamp(stream.created_ms / 1000, timezone.utc)
        told = sorted(positions)[:_MOST_PLACES]
        places = ", ".join(f"{shard} at {positions[shard]}" for shard in told)
        more = f" and of {left} more" if (left := len(positions) - len(told)) else ""
        self._report(
            f"{self.client.address} was created at {created.isoformat()}, which is later than the "
            f"position of shard {places}{more}: the position is of a stream of the same name that "
            "was deleted. What had not been read of that stream is lost.",
            "",
        )

    def _summary(self) -> StreamSummary:
        return (self.describe or self.client.describe)()

    def _report(self, text: str, in_future: str = _LONGER_RETENTION) -> None:
        if self.on_loss is not None:
            self.on_loss(text)
            return
        if self.fail_on_data_loss:
            raise DataLossError(
                f"{text} Set the option failOnDataLoss to false to go on with the oldest record "
                f"kept, or {BEGIN_ELSEWHERE}{in_future}."
            )
        _log.warning("%s Going on with the oldest record kept.", text)
