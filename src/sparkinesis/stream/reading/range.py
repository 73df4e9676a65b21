"""Reading one shard's range: exactly the records of (start, end], in order.

The end is a sequence number that is known to exist, or SHARD_END, so the same range gives the same
records at any time within retention. What a page holds beyond the end is dropped.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError
from sparkinesis.stream.calls.client import Fetched
from sparkinesis.stream.page import Record, is_empty_at_tip
from sparkinesis.stream.position import (
    TRIM_HORIZON,
    AfterRecord,
    Position,
    Sentinel,
    ShardRange,
    sequence_order,
)
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL
from sparkinesis.stream.reading.missing_end import MissingEndWatch
from sparkinesis.stream.reading.retention import ReadProgress, RetentionCheck


def cut_at_end(
    records: Sequence[Record], end: AfterRecord | Literal[Sentinel.SHARD_END]
) -> tuple[Sequence[Record], bool, bool]:
    """Cut a page at a range's end: (records within, the range is over, its end was seen)."""
    if not isinstance(end, AfterRecord) or not records:
        return records, False, False
    last = sequence_order(end.sequence_number)
    if sequence_order(records[-1].sequence_number) < last:
        return records, False, False
    count = bisect.bisect_right(records, last, key=lambda r: sequence_order(r.sequence_number))
    within = records[:count]
    return within, True, bool(within) and within[-1].sequence_number == end.sequence_number


SMALLEST_PAGE = 100
"""Records to ask for, at least, where a range seems to end."""


def page_limit(most: int, expected: int | None, seen: int) -> int:
    """Records to ask for after ``seen`` of ``expected``, at most ``most``.

    What a page holds beyond the range's end was read from the shard's limit for nothing.
    """
    if expected is None:
        return most
    left = expected - seen
    return min(most, max(left + left // 20 + 1, seen // 10, SMALLEST_PAGE))


class Cursor(Protocol):
    """Fetches a shard's pages one after the other."""

    @property
    def at_end(self) -> bool:
        """Whether the shard is closed and every record of it was fetched."""

    def fetch(self, limit: int) -> Fetched:
        """The next page, of at most ``limit`` records if it takes one."""


def read_range(
    open_cursor: Callable[[Position], Cursor],
    wanted: ShardRange,
    check: RetentionCheck,
    limit: int = MAX_RECORDS_PER_CALL,
    expected: int | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Sequence[Record], None, None]:
    """Yield the range's records, page by page; empty pages are left out.

    ``open_cursor`` gives a cursor AT a position (inclusive). ``expected``: about how many records
    the range has, if that is known; it decides how large pages are, never what is read. The next
    page is fetched while the caller works on the present one. Raises `DataLossError` when the
    range's start or end has been trimmed, or the first record that the plan saw, or what was next
    to be read while the caller slept, unless the check is told to go on: then what is left of the
    range is read. Raises `ServiceError` when the end of a closed shard does not come, by ``clock``
    (monotonic, in seconds).
    """
    # An initial start may lie before the oldest record: that is what the user asked for.
    looked_at_start = wanted.is_initial
    edges = _EdgeCheck(wanted, check)
    end_watch = MissingEndWatch(check.client.address, wanted.shard_id, clock)
    reached = ReadProgress(wanted.start)
    seen = 0
    with ThreadPoolExecutor(1, thread_name_prefix="get-records") as fetcher:
        cursor = open_cursor(reached.position)
        following = fetcher.submit(cursor.fetch, page_limit(limit, expected, seen))
        while True:
            try:
                fetched = following.result()
                if looked_at_start and reached.may_have_missed(fetched):
                    cursor = open_cursor(reached.position)
                    looked_at_start = False
                    fetched = cursor.fetch(page_limit(limit, expected, seen))
            except PositionNotFoundError as error:
                check.accept_or_raise(error)
                cursor = open_cursor(TRIM_HORIZON)
                fetched = cursor.fetch(page_limit(limit, expected, seen))
                looked_at_start = True
            except ShardNotFoundError as error:
                check.accept_or_raise(error)
                return
            records: Sequence[Record] | None = fetched.page.records
            if not looked_at_start:
                records = check.check_start(wanted.shard_id, reached.position, fetched)
                looked_at_start = records is not None
            reached = reached.after(fetched)
            within, over, end_seen = cut_at_end(records or (), wanted.end)
            ends_at_record = isinstance(wanted.end, AfterRecord)
            over = over or cursor.at_end or (ends_at_record and is_empty_at_tip(fetched.page))
            edges.check(fetched, over=over, end_seen=end_seen)
            end_watch.observe(fetched.page, reached.position, at_end=over)
            seen += len(fetched.page.records)
            if not over:
                following = fetcher.submit(cursor.fetch, page_limit(limit, expected, seen))
            if within:
                yield within
            if over:
                return


class _EdgeCheck:
    """Looks whether the first and the last record of a range, as planned, are in its pages."""

    def __init__(self, wanted: ShardRange, check: RetentionCheck) -> None:
        self._wanted = wanted
        self._check = check
        self._looks_for_first = wanted.first is not None
        self._is_told = False

    def check(self, fetched: Fetched, *, over: bool, end_seen: bool) -> None:
        """One more page; ``over``: the last one. Raises `DataLossError`, once for both edges."""
        first = next(iter(fetched.page.records), None)
        if self._looks_for_first and (first is not None or over):
            self._looks_for_first = False
            self._is_told = not self._check.check_planned_first(self._wanted, first)
        ends_at_record = isinstance(self._wanted.end, AfterRecord)
        if ends_at_record and over and not end_seen and not self._is_told:
            # The end existed when the range was planned. Now the page begins behind it, or there
            # is nothing more to come: it has been trimmed, and all before it as well.
            self._check.report_missing_end(self._wanted, fetched)
