"""A reader of one shard's range: exactly the records of (start, end], in order.

The end is before or after a record that exists, or SHARD_END, so a range has the same records at
any time within retention. Records of a page after the end are dropped.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Fetched, Record, is_empty_at_tip
from sparkinesis.stream.position import (
    TRIM_HORIZON,
    AfterRecord,
    Position,
    Sentinel,
    ShardRange,
    sequence_order,
)
from sparkinesis.stream.reading.retention import ReadProgress, RetentionCheck
from sparkinesis.stream.reading.shard_end import MissingEndWatch

# How a task is sure that it reads exactly its range
#
# A range is read AT the sequence number of its start, and the first record must be the start's own.
# That is the only proof that nothing behind it has expired: for an expired number the service may
# begin with the oldest record it keeps, without a word. Four more places where records were lost in
# silence, or could be:
#
# - In the middle. A task that slept for longer than records are kept went on behind its last record
#   with a new iterator, and missed what had expired. Now it reads AT its last record again if a
#   later one may be gone (`ReadProgress`, 155219ee). This is between pages and not in the cursor,
#   so it holds for polling and for enhanced fan-out.
# - At a start without a record of its own (an instant, a shard that the start does not list): the
#   end of the batch names the first record that the plan saw, and it must still be there
#   (3d29448e).
# - At the end. The end record existed when the range was planned. A page that begins behind it, or
#   the last page without it, shows that it has expired, and all records before it.
# - In a closed shard that never ends, as with a server that answers with empty pages: a read that
#   ends with the shard would wait for ever, so it fails (0e815e01).
#
# One page is fetched ahead while the caller works on the present one. `page_limit` asks for no more
# than the rest of the range: records behind its end would use up the shard's limit for nothing.


def cut_at_end(
    records: Sequence[Record], end: AfterRecord | Literal[Sentinel.SHARD_END]
) -> tuple[Sequence[Record], bool, bool]:
    """Cut a page at a range's end; return (records within, range has ended, end was found)."""
    if not isinstance(end, AfterRecord) or not records:
        return records, False, False
    last = sequence_order(end.sequence_number)
    if sequence_order(records[-1].sequence_number) < last:
        return records, False, False
    place = bisect.bisect_left(records, last, key=lambda r: sequence_order(r.sequence_number))
    is_found = records[place].sequence_number == end.sequence_number
    return records[: place + (is_found and not end.is_before)], True, is_found


SMALLEST_PAGE = 100
"""The fewest records to request near the expected end of a range."""


def page_limit(most: int, expected: int | None, seen: int) -> int:
    """Return the number of records to request after ``seen`` of ``expected``, up to ``most``.

    Records after the range's end would use up the shard's limit for nothing.
    """
    if expected is None:
        return most
    left = expected - seen
    return min(most, max(left + left // 20 + 1, seen // 10, SMALLEST_PAGE))


class Cursor(Protocol):
    """Fetches a shard's pages in order."""

    @property
    def at_end(self) -> bool:
        """True if the shard is closed and all its records have been fetched."""

    def fetch(self, limit: int) -> Fetched:
        """Return the next page, of at most ``limit`` records if the cursor supports limits."""


def read_range(
    open_cursor: Callable[[Position], Cursor],
    wanted: ShardRange,
    check: RetentionCheck,
    limit: int = MAX_RECORDS_PER_CALL,
    expected: int | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Sequence[Record], None, None]:
    """Yield the range's records, page by page, without empty pages.

    open_cursor: returns a cursor AT a position (inclusive). expected: the approximate number of
    records in the range, if known; it affects the size of pages only. clock: monotonic, in seconds.

    The next page is fetched while the caller processes the present one. Raises `DataLossError` if
    the range's start or end has expired, or the first record that the plan saw, or the next record
    while the caller paused; if ``check`` accepts losses, yields the rest of the range instead.
    Raises `ServiceError` if a closed shard does not end.
    """
    # An initial start may lie before the oldest record: the user chose it.
    is_start_checked = wanted.is_initial
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
                if reached.may_have_missed(fetched):
                    cursor = open_cursor(reached.position)
                    is_start_checked = False
                    fetched = cursor.fetch(page_limit(limit, expected, seen))
            except PositionNotFoundError as error:
                check.accept_or_raise(error)
                cursor = open_cursor(TRIM_HORIZON)
                fetched = cursor.fetch(page_limit(limit, expected, seen))
                is_start_checked = True
            except ShardNotFoundError as error:
                check.accept_or_raise(error)
                return
            records: Sequence[Record] = fetched.page.records
            if not is_start_checked:
                checked = check.check_start(wanted.shard_id, reached.position, fetched)
                if checked is not None:
                    records, is_start_checked = checked, True
            reached = reached.after(fetched)
            within, over, end_seen = cut_at_end(records, wanted.end)
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
    """Checks that the planned first and last records of a range are in its pages."""

    def __init__(self, wanted: ShardRange, check: RetentionCheck) -> None:
        self._wanted = wanted
        self._check = check
        self._looks_for_first = wanted.first is not None
        self._has_reported = False

    def check(self, fetched: Fetched, *, over: bool, end_seen: bool) -> None:
        """Check a page; ``over``: the last one. Raises `DataLossError` once for both records."""
        first = next(iter(fetched.page.records), None)
        if self._looks_for_first and (first is not None or over):
            self._looks_for_first = False
            self._has_reported = not self._check.check_planned_first(self._wanted, first)
        ends_at_record = isinstance(self._wanted.end, AfterRecord)
        if ends_at_record and over and not end_seen and not self._has_reported:
            # The end record existed when the range was planned. Now the page starts after it, or
            # is the last one: the end record has expired, and all records before it.
            self._check.report_missing_end(self._wanted, fetched)
