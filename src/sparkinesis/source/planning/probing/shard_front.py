"""The front of a shard: the first records after a position, and the cursor behind them."""

from __future__ import annotations

from collections.abc import Sequence

from sparkinesis.errors import (
    ExpiredIteratorError,
    PositionNotFoundError,
    ShardNotFoundError,
)
from sparkinesis.source.planning.probing.records_in_hand import UNLIMITED, RecordsInHand, Scale
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import Fetched, Record, shard_of
from sparkinesis.stream.position import TRIM_HORIZON, AfterRecord, Position
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL, ShardBudget
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS, RetentionCheck
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from sparkinesis.stream.shard import Shard

SMALL_PAGE = 256 * 1024
"""The most bytes at which reading forward is worth the calls that it saves."""

MAX_KEPT = 1_000
"""The most records in hand that are kept for the next plan."""


class ShardFront:
    """Reads one shard forward, from plan to plan. Used by one thread at a time.

    Three facts tell how near a closed shard's end is, each stronger than the one before:

    - `is_ended`: a cursor has met the end, that of a later sample perhaps;
    - `at_end`: the front's own cursor has met it, so all remaining records are in hand;
    - `is_finished`: none is in hand either, so no record is left.
    """

    def __init__(self, client: StreamClient, shard_id: str, budget: ShardBudget) -> None:
        self._client = client
        self._shard_id = shard_id
        self.budget = budget
        self._check: RetentionCheck
        self._positions: tuple[Position, ...] = ()
        """The positions after which the records in hand come first; all are the same place."""
        self._start_is_checked = False
        self._lag_ms = 0
        self.cursor: ShardCursor | None = None
        self.hand = RecordsInHand()
        self.scale = UNLIMITED
        self.at_tip = False
        """True if all records that arrived before `asked_ms` are in hand."""
        self.is_ended = False
        """True once the shard is closed and a cursor has met its end."""
        self.children: tuple[Shard, ...] = ()
        """The children that the end of the shard has named."""
        self.asked_ms = 0
        """The service's clock (epoch ms) when the last look was asked for."""
        self.tip_ms = 0
        """The service's clock (epoch ms) at the last answer."""

    @property
    def silent_until(self) -> int:
        """The epoch ms before which no record arrived after those in hand, if this is the tip."""
        return all_arrived_before(self.tip_ms)

    @property
    def at_end(self) -> bool:
        """True if all of a closed shard's records after the position are in hand."""
        return self.cursor is not None and self.cursor.at_end

    @property
    def is_finished(self) -> bool:
        """True if the shard is closed and no record follows the position."""
        return self.at_end and not self.hand

    @property
    def is_quiet(self) -> bool:
        """True if no record follows the position, and the shard has not ended.

        A batch then ends in this shard at the same place, whatever its instant is.
        """
        return self.at_tip and not self.hand and not self.is_ended

    def open(
        self, position: Position, *, inclusive: bool = False, renews: bool = False
    ) -> ShardCursor:
        """Return a cursor at a position."""
        return ShardCursor(
            self._client,
            self.budget,
            self._shard_id,
            position,
            inclusive=inclusive,
            renews=renews,
            asks_twice=True,
        )

    def look(
        self,
        position: Position,
        check: RetentionCheck,
        scale: Scale,
        limit: int,
        until_ms: float,
    ) -> None:
        """Take the first records after ``position`` in hand: see `ShardProber.look`."""
        is_weighed = scale is self.scale or scale == self.scale or not self.hand
        if self.cursor is None or not self._is_at(position) or not is_weighed:
            self._restart(position)
        self.scale, self._check = scale, check
        try:
            if not (self.at_end or self._reaches(until_ms)):
                self._look_or_accept_loss(position, limit, until_ms)
        except ExpiredIteratorError:
            # The last look was minutes or days ago: check again that the start is kept.
            self.cursor = None
            self.look(position, check, scale, limit, until_ms)
        except Exception:
            self.cursor = None  # it may be past records that no plan has seen
            raise

    def fetch_on(self, limit: int) -> None:
        """Take more records in hand; what comes before them was there a moment ago."""
        try:
            self._fetch(limit)
        except ExpiredIteratorError:
            last = AfterRecord(self.hand.numbers[-1]) if self.hand else self._positions[0]
            self.cursor = self.open(last)
            self._fetch(limit)

    def note_end(self, cursor: ShardCursor, fetched: Fetched) -> None:
        """Note the end of the shard, if a cursor has met it, and the children that it names."""
        if cursor.at_end:
            self.is_ended = True
            self.children = tuple(map(shard_of, fetched.page.child_shards or ()))

    def stand_at(self, *positions: Position) -> None:
        """Note that the next look begins at one of these, before the records in hand."""
        self._positions = positions

    def move_to(self, end: Position, cursor: ShardCursor | None, rest: RecordsInHand) -> None:
        """Move to the end of a batch; ``cursor`` is behind ``rest``, the records that follow."""
        self._positions = (end,)
        self.cursor, self.hand = cursor, rest
        self._start_is_checked = True
        if self.cursor is not None:
            self.cursor.renews = False  # the next plan may be days away: see `look`

    def drop_surplus(self) -> None:
        """Read again later what is too much to keep."""
        self.at_tip = self.at_end
        if len(self.hand) > MAX_KEPT:
            self.cursor = None

    def _is_at(self, position: Position) -> bool:
        return any(
            one is position
            or (one.is_same_place(position) if isinstance(one, AfterRecord) else one == position)
            for one in self._positions
        )

    def _restart(self, position: Position) -> None:
        self._positions = (position,)
        self.cursor = self.open(position, inclusive=True)
        self._start_is_checked = False
        self.hand = RecordsInHand()
        self.is_ended = self.at_tip = False
        self.children = ()

    def _reaches(self, instant: float) -> bool:
        """Return True if a record in hand arrived after ``instant``."""
        return bool(self.hand) and self.hand.arrivals[-1] > instant

    def _look_or_accept_loss(self, position: Position, limit: int, until_ms: float) -> None:
        try:
            self._approach_tip(limit, until_ms)
        except PositionNotFoundError as error:
            self._check.accept_or_raise(error)
            self._restart(position)
            self.cursor = self.open(TRIM_HORIZON)
            self._start_is_checked = True
            self._approach_tip(limit, until_ms)
        except ShardNotFoundError as error:
            self._check.accept_or_raise(error)
            assert self.cursor is not None
            self.cursor.at_end = self.is_ended = self.at_tip = True

    def _approach_tip(self, limit: int, until_ms: float) -> None:
        """Fetch the first records, and the next ones if they cost less than a jump."""
        self.asked_ms = self._fetch(limit).asked_ms
        if self.at_tip or self.scale.allowance.is_limited or limit == 1 or self._reaches(until_ms):
            return
        span = self.hand.arrivals[-1] - self.hand.arrivals[0]
        if not span or self.hand.size * self._lag_ms <= SMALL_PAGE * span:
            self.fetch_on(MAX_RECORDS_PER_CALL)

    def _fetch(self, limit: int) -> Fetched:
        """Take the next records in hand, past the empty pages that the service may return."""
        cursor = self.cursor
        assert cursor is not None
        while True:
            # One more record, as the record AT which the cursor begins is dropped.
            extra = 0 if self._start_is_checked else 1
            fetched = cursor.fetch(min(limit + extra, MAX_RECORDS_PER_CALL))
            records: Sequence[Record] = fetched.page.records
            if not self._start_is_checked:
                checked = self._check.check_start(self._shard_id, self._positions[0], fetched)
                self._start_is_checked = checked is not None
                records = checked or ()
            self._lag_ms = fetched.page.millis_behind_latest or 0
            self.at_tip = is_last(cursor, fetched)
            if records or self.at_tip:
                break
        self.note_end(cursor, fetched)
        if records:
            self.hand.extend(records, self.scale)
        self.tip_ms = fetched.service_time_ms
        return fetched


def all_arrived_before(ms: int) -> int:
    """Return the epoch ms before which no record arrives any more, where time has reached ``ms``.

    ``ms``: the service's clock, or the arrival of a record.
    """
    return ms - CLOCK_MARGIN_MS


def is_last(cursor: ShardCursor, fetched: Fetched) -> bool:
    """Return True if no record follows the page that a cursor has fetched: the tip or the end."""
    return cursor.at_end or not fetched.page.millis_behind_latest
