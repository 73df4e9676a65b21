"""Detects records lost to retention; every loss raises or is logged.

The decisions are pure functions of a position, the service's clock, and the stream's summary.
`RetentionCheck` applies them to pages. It calls DescribeStreamSummary only if the record of a
position is missing: a position whose record still exists costs no call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

import msgspec
from msgspec.structs import replace

from sparkinesis.errors import DataLossError
from sparkinesis.stream.calls.client import StreamClient, StreamSummary
from sparkinesis.stream.calls.explain import START_ELSEWHERE
from sparkinesis.stream.kpl.objects import last_sub_sequence_number
from sparkinesis.stream.page import Fetched, Record
from sparkinesis.stream.position import (
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    ShardRange,
    advanced,
    sequence_order,
)

# When is a record that is gone a loss?
#
# Retention removes records by arrival time, and nothing says what was removed: a position whose own
# record is missing may be that of a silent shard, in which nothing else was lost. What decides:
#
# - A position carries the time before which nothing followed it. If all that arrived since is still
#   kept, nothing is lost. Each such time lies a minute before the service's clock
#   (`CLOCK_MARGIN_MS`), as arrival times may be out of order. A time that is too late hides a loss
#   for good: when a trimmed position was taken for silence at the tip of an empty shard, the time
#   stored then did that (780d9a4a).
# - The present retention period proves nothing about the past. A record that is gone although that
#   period would keep it shows that the period was shorter meanwhile; then only the last 24 hours,
#   which no stream removes, are certain (3d29448e). A position that is an instant has no record to
#   show that, so there is a warning instead (f6299676).
# - A stream may be another one of the same name. Positions that hold a time show it; a shard that
#   was stored as ended does not, so the whole offset gives way, and not shard by shard: such a
#   shard of the new stream was never read (b08624c1).
#
# A reader asks only where its position's own record is missing: DescribeStreamSummary is limited to
# 20 calls a second for all of an account.

_log = logging.getLogger(__name__)

HOUR_MS = 3_600_000

SHORTEST_RETENTION_MS = 24 * HOUR_MS
"""The shortest retention period of any stream (Kinesis quotas)."""

CLOCK_MARGIN_MS = 60_000
"""Allowance for unordered arrival times and clock skew, subtracted from each "no records until"."""

_MOST_EMPTY_PAGES = 5

_MOST_NAMED_SHARDS = 10
"""The most shards to name in a message; a stream may have thousands."""

_LONGER_RETENTION = ". To have more time in future, raise the stream's retention period"

ITERATOR_LIFE_MS = 300_000
"""The life of a shard iterator (GetShardIterator), and of a subscription."""


def may_have_lost(position: Position, now_ms: int, retention_ms: int) -> bool:
    """Return True if records after ``position`` may have expired.

    Assumes that the period was never shorter than ``retention_ms``. Retention removes records by
    arrival time: no record is lost while the stream keeps all records that may have arrived after
    the position.
    """
    horizon = now_ms - retention_ms
    if isinstance(position, AtTimestamp):
        return position.ms < horizon
    if isinstance(position, AfterRecord):
        return position.clear_until is None or position.clear_until < horizon
    return False


def is_kept(position: Position, now_ms: int, retention_ms: int) -> bool:
    """Return True if the stream still keeps the position's own record.

    Assumes that the period was never shorter than ``retention_ms``. False if the position does not
    hold its record's arrival time.
    """
    if not isinstance(position, AfterRecord) or position.arrived_ms is None:
        return False
    return position.arrived_ms >= now_ms - retention_ms + CLOCK_MARGIN_MS


def has_lost(position: Position, now_ms: int, retention_ms: int) -> bool:
    """Return True if records after ``position`` may be lost, given that its own record is missing.

    ``retention_ms``: the stream's present retention period. If that period should have kept the
    record, the period was shorter for a time since then. Its length is unknown, but no stream keeps
    records for less than `SHORTEST_RETENTION_MS`, so all records that arrived within that time
    exist.
    """
    if not is_kept(position, now_ms, retention_ms):
        return may_have_lost(position, now_ms, retention_ms)
    if is_kept(position, now_ms, SHORTEST_RETENTION_MS):
        return True  # no retention period removes a record this young
    return may_have_lost(position, now_ms, SHORTEST_RETENTION_MS)


def is_of_another_stream(position: Position, created_ms: int) -> bool:
    """Return True if a stored ``position`` is older than a stream created at ``created_ms``.

    This position belongs to a deleted stream of the same name. A starting instant that a user
    chose is not a stored position, and may be older than the stream. False for a position that
    holds no time.
    """
    if isinstance(position, AtTimestamp):
        known: int | None = position.ms
    elif isinstance(position, AfterRecord):
        times = (position.arrived_ms, position.clear_until)
        known = max((time for time in times if time is not None), default=None)
    else:
        known = None
    # A stored instant lies one margin before the clock; clocks may differ by another margin.
    return known is not None and created_ms > known + 2 * CLOCK_MARGIN_MS


def holds_more(record: Record, done: AfterRecord) -> bool:
    """Return True if ``record``, in which ``done`` lies, has user records after ``done``.

    A KCL resumes in the same way: it reads AT the checkpoint's sequence number, and drops the user
    records up to the checkpoint's sub-sequence number (0 for a record that is not aggregated).
    """
    if done.sub_sequence_number is None:
        return False
    return done.is_before or last_sub_sequence_number(record) > done.sub_sequence_number


class ReadProgress(msgspec.Struct, frozen=True):
    """A reader's position in a shard, and the time at which the reader was there.

    A reader may pause for days between two pages, because a processor hangs or the machine is
    suspended. Records after the first page may expire in that time; the second page then starts
    with the oldest record kept.
    """

    position: Position
    seen_ms: int | None = None
    """The service's clock (epoch ms) at the last page; None until a page had a record or was at the
    tip."""

    def after(self, fetched: Fetched) -> ReadProgress:
        """Return the progress after a page."""
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
        """Return True if records may be missing between this position and the page fetched from it.

        The caller then reads AT the position again, and passes the page to
        `RetentionCheck.check_start`.
        """
        now_ms = fetched.service_time_ms
        if self.seen_ms is None or now_ms - self.seen_ms <= ITERATOR_LIFE_MS:
            return False
        return may_have_lost(self.position, now_ms, SHORTEST_RETENTION_MS)


class RetentionCheck(msgspec.Struct, frozen=True):
    """Compares the pages of a shard with a position; raises or logs if records are lost."""

    client: StreamClient
    fail_on_data_loss: bool = True
    on_loss: Callable[[str], None] | None = None
    """Called with the text of each loss, in place of the error or the log."""
    logs_doubt: bool = False
    """Also log a warning if retention may have been shorter for a time since the position."""
    on_accepted: Callable[[], None] | None = None
    """Called after each loss that was logged instead of raised."""
    describe: Callable[[], StreamSummary] | None = None
    """Returns the stream's summary, which many checks may share; None: calls the client."""

    def check_start(
        self, shard_id: str, start: Position, fetched: Fetched
    ) -> Sequence[Record] | None:
        """Check a page read AT ``start``, and return its records after ``start``.

        The record of ``start`` is included if some of its user records come after ``start``.
        Returns None if the page is empty and shows nothing; check the next page then. For an
        expired sequence number, the service either refuses or starts with the oldest record; this
        method handles the second case. Raises `DataLossError`.
        """
        records = fetched.page.records
        if isinstance(start, AfterRecord):
            if not records and fetched.page.millis_behind_latest != 0:
                return None
            # An empty page at the tip means that the position's record has expired, and maybe
            # the records after it.
            if records and records[0].sequence_number == start.sequence_number:
                return records if holds_more(records[0], start) else records[1:]
        now_ms = fetched.service_time_ms
        if has_lost(start, now_ms, SHORTEST_RETENTION_MS):
            # Only now is a call for the stream's present retention period worth its cost.
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
        """Check that the first record of a planned range still exists. Raises `DataLossError`.

        ``first``: the first record that the range has now; None if it has none. Returns False for
        a loss that was logged.
        """
        if wanted.first is None or (
            first is not None
            and sequence_order(first.sequence_number) <= sequence_order(wanted.first)
        ):
            return True
        retention_ms = self._summary().retention_ms
        self._report(
            f"The record {wanted.first} in shard {wanted.shard_id} of {self.client.address} has "
            f"expired. It was the first record of the batch from {wanted.start} to {wanted.end} "
            f"when the batch was planned. The stream keeps records for {retention_ms / HOUR_MS:g} "
            "hours, and the record was removed before the batch was read."
        )
        return False

    def report_missing_end(self, wanted: ShardRange, fetched: Fetched) -> None:
        """Report a range whose end record is missing. Raises `DataLossError`.

        Reports nothing if no plan saw a record in the range, and nothing after its starting instant
        can have expired: the user chose an end that lies before the start.
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
        """Report stored positions that are older than the stream. Raises `DataLossError`.

        They belong to a deleted stream of the same name. Returns their shards. A query or
        a worker calls this once, when it resumes: one DescribeStreamSummary serves all shards.
        ``skip_older_than`` (seconds): a loss of records that arrived longer ago is not reported.
        """
        others = {
            shard: position
            for shard, position in positions.items()
            if is_of_another_stream(position, stream.created_ms)
        }
        age_ms = stream.service_time_ms - stream.created_ms
        if others and (skip_older_than is None or age_ms < round(skip_older_than * 1000)):
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
        """Raise `DataLossError` for a position that has expired, or log it (`fail_on_data_loss`).

        ``was_shorter``: the present retention period would have kept the position's record.
        """
        if retention_ms is None:
            retention_ms = self._summary().retention_ms
        hours = f"{retention_ms / HOUR_MS:g} hours"
        keeps = f"the stream keeps records for {hours}"
        if was_shorter:
            keeps = (
                f"the stream keeps records for {hours} now, but kept them for a shorter time before"
            )
        self._report(
            f"The position {position} in shard {shard_id} of {self.client.address} has expired: "
            f"{keeps}, and records after the position were removed before they were read."
        )

    def accept_or_raise(self, error: DataLossError) -> None:
        """Log or raise the service's own error about a shard or position that no longer exists."""
        if self.fail_on_data_loss:
            raise error
        self._accept(error.loss)

    def _has_older(self, shard_id: str, start: Position) -> bool:
        """Return True if the shard has a record older than ``start``, so none after it is lost.

        Costs one GetShardIterator and usually one GetRecords.
        """
        if not isinstance(start, AtTimestamp):
            return False  # the shard has no record between the position's own and `clear_until`
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
            "for %g hours. If the period was shorter in between, records after the position were "
            "removed before they were read; nothing shows whether it was. Resuming from the oldest "
            "record kept.",
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
        named = sorted(positions)[:_MOST_NAMED_SHARDS]
        places = ", ".join(f"{shard} at {positions[shard]}" for shard in named)
        more = f" and of {left} other shards" if (left := len(positions) - len(named)) else ""
        self._report(
            f"{self.client.address} was created at {created.isoformat()}, which is later than the "
            f"position of shard {places}{more}: the position belongs to a deleted stream of the "
            "same name. The unread records of that stream are lost.",
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
                f"{text} Set the option failOnDataLoss to false to resume from the oldest record "
                f"kept, or {START_ELSEWHERE}{in_future}."
            )
        self._accept(text)

    def _accept(self, text: str) -> None:
        _log.warning("%s Resuming from the oldest record kept.", text)
        if self.on_accepted is not None:
            self.on_accepted()
