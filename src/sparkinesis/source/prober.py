"""Finds out, with few and cheap calls, what follows a position in a shard.

Kinesis has no call that tells a shard's latest sequence number. Two ways lead to one that exists:

- read forward: the last record of a page. One call, exact, and on a slow shard nearly free;
- jump: ask for the first record that arrived at an instant close to the tip (AT_TIMESTAMP, one
  record). On a fast shard, or a backlog, this saves reading everything twice.

When the jump finds nothing (a burst, then silence), a page is read forward. If that does not reach
the tip either, the instant is moved back by halves, and the rest is read forward.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparkinesis.errors import PositionNotFoundError, ShardNotFoundError
from sparkinesis.source.plan import Finding, Finished, LastRecords, Quiet, Records
from sparkinesis.stream.budget import MAX_RECORDS_PER_CALL, ShardBudget
from sparkinesis.stream.client import Fetched, StreamClient, shard_of
from sparkinesis.stream.cursor import ShardCursor
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import (
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    sequence_order,
)
from sparkinesis.stream.retention import RetentionCheck
from sparkinesis.stream.shard import Shard

CLOSE_TO_TIP_MS = 1_000
"""A reader that is this close behind has caught up, as far as planning goes."""

JUMP_SHORT_OF_TIP_MS = 250
"""How far before the tip a jump aims: a busy shard has a record that young."""

FIRST_LIMIT = 1_000
"""Records to ask for at the first look, which does not know yet whether the shard is busy."""

SMALL_PAGE = 256 * 1024
"""Bytes since the last look up to which reading forward costs less than it saves in calls."""

MOST_HALVINGS = 10
MOST_EMPTY_PAGES = 5

CLOCK_MARGIN_MS = 60_000
"""How far arrival times may be out of order, and clocks apart, when silence is put on record."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look at a shard found; children when it reached the end of a closed shard."""

    finding: Finding
    children: tuple[Shard, ...] = ()


class ShardProber:
    """Looks at one shard, again and again, by one cursor; used by one thread at a time.

    ``until_ms``: as if no record had arrived after this instant (epoch ms).
    """

    def __init__(
        self,
        client: StreamClient,
        shard_id: str,
        budget: ShardBudget,
        check: RetentionCheck,
        until_ms: int | None = None,
    ) -> None:
        self._client = client
        self._shard_id = shard_id
        self._budget = budget
        self._check = check
        self._until_ms = until_ms
        self._position: Position | None = None
        self._cursor: ShardCursor | None = None
        self._start_is_checked = False
        self._last_look: Look | None = None
        self._limit = FIRST_LIMIT

    def look(self, position: Position) -> Look:
        """What follows ``position``. Raises `DataLossError` when what followed it was trimmed."""
        if self._cursor is None or not _same_place(position, self._position):
            self._cursor = self._open(position, inclusive=True)
            self._start_is_checked = False
            self._last_look = None
        elif self._last_look is not None:
            return self._last_look
        self._position = position
        look = self._examine_or_skip(self._cursor)
        if isinstance(look.finding, Records):
            # The cursor stands behind these records: there, most likely, the next look is wanted.
            self._position = AfterRecord(look.finding.end)
            self._start_is_checked = True
        elif not isinstance(look.finding, Quiet):
            self._last_look = look
        return look

    def _examine_or_skip(self, cursor: ShardCursor) -> Look:
        try:
            return self._examine(cursor)
        except PositionNotFoundError as error:
            if not self._check.tolerates(error):
                raise
            self._cursor = self._open(TRIM_HORIZON)
            self._start_is_checked = True
            return self._examine(self._cursor)
        except ShardNotFoundError as error:
            if not self._check.tolerates(error):
                raise
            return Look(Finished())

    def _open(self, position: Position, *, inclusive: bool = False) -> ShardCursor:
        return ShardCursor(
            self._client, self._budget, self._shard_id, position, inclusive=inclusive
        )

    def _examine(self, cursor: ShardCursor) -> Look:
        limit = self._limit
        found = self._following(cursor, limit)
        if not found.records and not found.passed_until:
            self._limit = MAX_RECORDS_PER_CALL
            if cursor.at_end:
                return Look(Finished(), found.children)
            return Look(Quiet(found.silent_until))
        is_close = found.lag_ms == 0 or (found.lag_ms <= CLOSE_TO_TIP_MS and limit > 1)
        if is_close or cursor.at_end or found.passed_until:
            return self._conclude(cursor, found, None)
        return self._approach_tip(cursor, found)

    def _conclude(self, cursor: ShardCursor, found: _Following, last: Record | None) -> Look:
        """The look that ends with this page; ``last`` is the last record before it."""
        if found.records:
            last = found.records[-1]
        if found.passed_until:
            self._cursor = None  # it stands behind records that were not to be seen
            return _records(last, None) if last is not None else Look(Quiet())
        self._cursor = cursor
        if cursor.at_end:
            return Look(LastRecords(), found.children)
        assert last is not None
        self._limit = MAX_RECORDS_PER_CALL if found.fetched.size <= SMALL_PAGE else 1
        return _records(last, found.silent_until)

    def _following(self, cursor: ShardCursor, limit: int) -> _Following:
        """The next records, past the empty pages that the service may give before the tip."""
        tries: Iterable[int]
        tries = range(MOST_EMPTY_PAGES) if self._until_ms is None else itertools.count()
        for _ in tries:
            # One more, for the record AT which a cursor begins and which is dropped.
            extra = 0 if self._start_is_checked else 1
            fetched = cursor.fetch(min(limit + extra, MAX_RECORDS_PER_CALL))
            records: Sequence[Record] | None = fetched.page.records
            if not self._start_is_checked and self._position is not None:
                records = self._check.after_start(self._shard_id, self._position, fetched)
                self._start_is_checked = records is not None
            if records or cursor.at_end or not fetched.page.millis_behind_latest:
                break
        within = _until(records or (), self._until_ms)
        return _Following(fetched, within, passed_until=len(within) < len(records or ()))

    def _approach_tip(self, cursor: ShardCursor, found: _Following) -> Look:
        """The look that ends with a record close to the tip, which is far behind this page."""
        last = found.records[-1]
        if last.approximate_arrival_timestamp is None:
            return self._forward(cursor, last)[0]
        tip = _arrival_ms(last) + found.lag_ms - JUMP_SHORT_OF_TIP_MS
        if self._until_ms is not None:
            tip = min(tip, self._until_ms)
        landed = self._jump(tip, last)
        if landed is not None:
            look = self._conclude(*landed, last)
            self._limit = 1  # busy: next time, too, a jump will do
            return look
        look, reached = self._forward(cursor, last)
        if reached is None:
            return look
        return self._narrow(cursor, reached, tip)

    def _jump(self, instant: int, last: Record) -> tuple[ShardCursor, _Following] | None:
        """The first record that arrived at ``instant`` or later, if it is behind ``last``."""
        if instant <= _arrival_ms(last):
            return None
        probe = self._open(AtTimestamp(instant))
        found = self._following(probe, 1)
        # Arrival times need not be in order: a record that is not further on is none.
        if not found.records or _order(found.records[0]) <= _order(last):
            return None
        return probe, found

    def _narrow(self, cursor: ShardCursor, last: Record, high: int) -> Look:
        """The look that ends near the last record before ``high``: none arrived after it."""
        low = _arrival_ms(last)
        for _ in range(MOST_HALVINGS):
            if high - low <= CLOSE_TO_TIP_MS:
                break
            middle = (low + high) // 2
            landed = self._jump(middle, last)
            if landed is None:
                high = middle
                continue
            cursor, found = landed
            if cursor.at_end:
                return self._conclude(cursor, found, last)
            last = found.records[0]
            low = max(middle, _arrival_ms(last))
        return self._forward(cursor, last)[0]

    def _forward(self, cursor: ShardCursor, last: Record) -> tuple[Look, Record | None]:
        """The look that ends with the next page, and its last record if the tip is further on."""
        found = self._following(cursor, MAX_RECORDS_PER_CALL)
        look = self._conclude(cursor, found, last)
        is_over = cursor.at_end or found.passed_until or found.lag_ms == 0 or not found.records
        return look, None if is_over else found.records[-1]


@dataclass(frozen=True, slots=True)
class _Following:
    """The page that a look ended with, and its records behind the position looked at."""

    fetched: Fetched
    records: Sequence[Record]
    passed_until: bool
    """Records were left out that arrived later than the look is to see."""

    @property
    def children(self) -> tuple[Shard, ...]:
        """What the last page of a closed shard announces."""
        return tuple(shard_of(child) for child in self.fetched.page.child_shards or ())

    @property
    def lag_ms(self) -> int:
        return self.fetched.page.millis_behind_latest or 0

    @property
    def silent_until(self) -> int | None:
        """No record behind this page had arrived before this instant, when it is at the tip."""
        return None if self.lag_ms else self.fetched.service_time_ms - CLOCK_MARGIN_MS


def _until(records: Sequence[Record], until_ms: int | None) -> Sequence[Record]:
    """The records up to the first one that arrived later than ``until_ms``."""
    if until_ms is None:
        return records
    late = (at for at, record in enumerate(records) if _arrival_ms(record) > until_ms)
    return records[: next(late, len(records))]


def _records(end: Record, silent_until: int | None) -> Look:
    if silent_until is None and end.approximate_arrival_timestamp is not None:
        silent_until = _arrival_ms(end) - CLOCK_MARGIN_MS
    return Look(Records(end.sequence_number, silent_until))


def _arrival_ms(record: Record) -> int:
    return round((record.approximate_arrival_timestamp or 0.0) * 1000)


def _order(record: Record) -> tuple[int, str]:
    return sequence_order(record.sequence_number)


def _same_place(one: Position, other: Position | None) -> bool:
    return one.is_same_place(other) if isinstance(one, AfterRecord) else one == other
