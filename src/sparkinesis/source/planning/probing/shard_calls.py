"""The calls of a plan on one shard: forward from a position, and at an instant.

`ShardFront` takes the first records after a position in hand, and goes on behind them. `Samples`
finds later records by time. Both note when a cursor of theirs meets the end of the shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkinesis.errors import (
    ExpiredIteratorError,
    PositionNotFoundError,
    ShardNotFoundError,
)
from sparkinesis.source.planning.probing.records_in_hand import UNLIMITED, RecordsInHand, Scale
from sparkinesis.source.planning.probing.survey import (
    SAMPLE_LIMITS,
    Window,
    add_sample,
    density_window,
    last_windows,
    sample_place,
)
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Fetched, Record, shard_of
from sparkinesis.stream.position import (
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    sequence_order,
)
from sparkinesis.stream.reading.budget import ShardBudget
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS, RetentionCheck
from sparkinesis.stream.reading.shard_cursor import ShardCursor
from sparkinesis.stream.shard import Shard

SMALL_PAGE = 256 * 1024
"""The most bytes at which reading forward is worth the calls that it saves."""

MAX_KEPT = 1_000
"""The most records in hand that are kept for the next plan."""


class _Start:
    """The start of a front: a place, and whether a page has shown that its record is kept."""

    def __init__(self, *positions: Position) -> None:
        self.positions = positions
        """The positions after which the records in hand come first; all are the same place."""
        self.is_checked = False

    def is_at(self, position: Position) -> bool:
        return any(
            one is position
            or (one.is_same_place(position) if isinstance(one, AfterRecord) else one == position)
            for one in self.positions
        )

    def records_after(
        self, check: RetentionCheck, shard_id: str, fetched: Fetched
    ) -> Sequence[Record]:
        """Return the records of a page after the start, which is checked by the first of them."""
        if self.is_checked:
            return fetched.page.records
        records = check.check_start(shard_id, self.positions[0], fetched)
        self.is_checked = records is not None
        return records or ()


class ShardFront:
    """Reads one shard forward, from plan to plan. Used by one thread at a time.

    Three facts say how near a closed shard's end is, each stronger than the one before:

    - `is_ended`: a cursor has met the end, that of a later sample perhaps;
    - `at_end`: the front's own cursor has met it, so all remaining records are in hand;
    - `is_finished`: none is in hand either, so no record is left.
    """

    def __init__(self, client: StreamClient, shard_id: str, budget: ShardBudget) -> None:
        self._client = client
        self._shard_id = shard_id
        self.budget = budget
        self._check: RetentionCheck
        self._start = _Start()
        self.cursor: ShardCursor | None = None
        self.hand = RecordsInHand()
        self.scale = UNLIMITED
        self.at_tip = False
        """True if all records that arrived before `asked_ms` are in hand."""
        self.children: tuple[Shard, ...] | None = None
        """The children that the end of the shard has named; None until a cursor meets the end."""
        self.asked_ms = 0
        """The service's clock (epoch ms) when the last probe was asked for."""
        self.tip_ms = 0
        """The service's clock (epoch ms) at the last answer."""

    @property
    def silent_until(self) -> int:
        """The epoch ms before which no record arrived after those in hand, if this is the tip."""
        return all_arrived_before(self.tip_ms)

    @property
    def is_ended(self) -> bool:
        """True once the shard is closed and a cursor has met its end."""
        return self.children is not None

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

    def may_send_ahead(self, position: Position) -> bool:
        """Return True if `probe` would begin with a call now, and the shard was quiet just before.

        Its first request may then be sent ahead.
        """
        cursor = self.cursor
        if cursor is None or not self.is_quiet or not self._start.is_at(position):
            return False
        return not cursor.due_in()

    def send_ahead(self, limit: int) -> bool:
        """Send the first request of `probe` now; False if that cannot be."""
        return self.cursor is not None and self.cursor.send_ahead(self._limit_of(limit))

    def receive(self) -> int:
        """Wait for the answer to `send_ahead`: see `ShardCursor.receive`."""
        return 0 if self.cursor is None else self.cursor.receive()

    def forget_sent(self) -> None:
        """Forget the request that was sent ahead, if `probe` has not taken its answer."""
        if self.cursor is not None:
            self.cursor.forget_sent()

    def probe(
        self,
        position: Position,
        check: RetentionCheck,
        scale: Scale,
        limit: int,
        until_ms: float,
    ) -> None:
        """Take the first records after ``position`` in hand: see `ShardProber.probe`."""
        is_weighed = scale is self.scale or scale == self.scale or not self.hand
        if self.cursor is None or not self._start.is_at(position) or not is_weighed:
            self._restart(position)
        self.scale, self._check = scale, check
        try:
            if not (self.at_end or self._reaches(until_ms)):
                self._probe_or_accept_loss(position, limit, until_ms)
        except ExpiredIteratorError:
            # The last probe was minutes or days ago: check again that the start is kept.
            self.cursor = None
            self.probe(position, check, scale, limit, until_ms)
        except Exception:
            self.cursor = None  # it may be past records that no plan has seen
            raise

    def fetch_on(self, limit: int) -> None:
        """Take more records in hand; what comes before them was there a moment ago."""
        try:
            self._fetch(limit)
        except ExpiredIteratorError:
            last = AfterRecord(self.hand.numbers[-1]) if self.hand else self._start.positions[0]
            self.cursor = self.open(last)
            self._fetch(limit)

    def keep_end(self, cursor: ShardCursor, fetched: Fetched) -> None:
        """Keep the children that the end of the shard names, if a cursor has met the end."""
        if cursor.at_end:
            self.children = tuple(map(shard_of, fetched.page.child_shards or ()))

    def stand_at(self, *positions: Position) -> None:
        """Let the next probe begin at any of these, which all lie before the records in hand."""
        self._start.positions = positions

    def move_to(self, end: Position, cursor: ShardCursor | None, rest: RecordsInHand) -> None:
        """Move to the end of a batch; ``cursor`` is behind ``rest``, the records that follow."""
        self._start = _Start(end)
        self._start.is_checked = True
        self.cursor, self.hand = cursor, rest
        if self.cursor is not None:
            self.cursor.renews = False  # the next plan may be days away: see `probe`

    def drop_surplus(self) -> None:
        """Read again later what is too much to keep."""
        self.at_tip = self.at_end
        if len(self.hand) > MAX_KEPT:
            self.cursor = None

    def _restart(self, position: Position) -> None:
        self._start = _Start(position)
        self.cursor = self.open(position, inclusive=True)
        self.hand = RecordsInHand()
        self.at_tip = False
        self.children = None

    def _reaches(self, instant: float) -> bool:
        """Return True if a record in hand arrived after ``instant``."""
        return bool(self.hand) and self.hand.arrivals[-1] > instant

    def _probe_or_accept_loss(self, position: Position, limit: int, until_ms: float) -> None:
        try:
            self._approach_tip(limit, until_ms)
        except PositionNotFoundError as error:
            self._check.accept_or_raise(error)
            self._restart(position)
            self.cursor = self.open(TRIM_HORIZON)
            self._start.is_checked = True
            self._approach_tip(limit, until_ms)
        except ShardNotFoundError as error:
            self._check.accept_or_raise(error)
            assert self.cursor is not None
            self.cursor.at_end = self.at_tip = True
            self.children = self.children or ()

    def _approach_tip(self, limit: int, until_ms: float) -> None:
        """Fetch the first records, and the next ones if they cost less than a jump."""
        fetched = self._fetch(limit)
        self.asked_ms = fetched.asked_ms
        if self.at_tip or self.scale.allowance.is_limited or limit == 1 or self._reaches(until_ms):
            return
        span = self.hand.arrivals[-1] - self.hand.arrivals[0]
        lag_ms = fetched.page.millis_behind_latest or 0
        if not span or self.hand.size * lag_ms <= SMALL_PAGE * span:
            self.fetch_on(MAX_RECORDS_PER_CALL)

    def _limit_of(self, limit: int) -> int:
        """Return a call's limit: one more, as the record AT which the cursor begins is dropped."""
        return min(limit + (not self._start.is_checked), MAX_RECORDS_PER_CALL)

    def _fetch(self, limit: int) -> Fetched:
        """Take the next records in hand, past the empty pages that the service may return."""
        cursor = self.cursor
        assert cursor is not None
        while True:
            fetched = cursor.fetch(self._limit_of(limit))
            records = self._start.records_after(self._check, self._shard_id, fetched)
            self.at_tip = is_last(cursor, fetched)
            if records or self.at_tip:
                break
        self.keep_end(cursor, fetched)
        if records:
            self.hand.extend(records, self.scale)
        self.tip_ms = fetched.service_time_ms
        return fetched


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records of a shard, of which the first is the first one since ``since``."""

    since: int
    records: Sequence[Record]
    cursor: ShardCursor
    is_all: bool
    """True if no record follows."""

    def first_after(self, instant: int) -> int | None:
        """Return the index of the first record that arrived after ``instant``."""
        late = (at for at, record in enumerate(self.records) if arrival_ms(record) > instant)
        return next(late, None)


class Samples:
    """The samples that a plan takes of one shard, behind the records in hand."""

    def __init__(self, front: ShardFront) -> None:
        self._front = front
        self.taken: list[Stretch] = []
        self.windows: list[Window] = []
        self.is_bursty = False
        """True if the records come in too few bursts to estimate their density."""

    def take(self, instant: int, weight: float, known: Sequence[Window]) -> None:
        """Take a sample at ``instant`` (epoch ms), of a weight of about ``weight``.

        known: the window of the records in hand, then those of earlier samples.
        """
        hand, tip_ms = self._front.hand, self._front.tip_ms
        mean = hand.weights[-1] / len(hand)
        last = known[-1] if known else None
        instant, size = sample_place(instant, weight, mean, last, tip_ms)
        found = self.jump(instant, size)
        window: Window | None = None
        while not found.is_all and (window := self._window_of(found)) is None:
            if len(found.records) >= SAMPLE_LIMITS[1]:
                self.is_bursty = True
                break
            found = self.extended(found)
        new: Sequence[Window] = [] if window is None else [window]
        if found.is_all:
            arrivals = [arrival_ms(record) for record in found.records]
            weights = self._front.scale.weigh(found.records)
            new = last_windows(instant, arrivals, weights, tip_ms)
        for one in new:
            known = add_sample(known, one)
        # The first window is that of the records in hand: each sample begins after them.
        self.windows = list(known[1:])

    def _window_of(self, sample: Stretch) -> Window | None:
        arrivals = [arrival_ms(record) for record in sample.records]
        return density_window(sample.since, arrivals, self._front.scale.weigh(sample.records))

    def jump(self, instant: int, limit: int) -> Stretch:
        """Fetch the first records that arrived at ``instant`` or later, if they are not in hand."""
        cursor = self._front.open(AtTimestamp(instant), renews=True)
        while True:
            fetched = cursor.fetch(limit)
            records = fetched.page.records
            is_all = is_last(cursor, fetched)
            if records or is_all:
                break
        self._front.keep_end(cursor, fetched)
        if self._front.hand:
            # Arrival times may be out of order, so a record found may be one in hand.
            last = sequence_order(self._front.hand.numbers[-1])
            known = (n for n, r in enumerate(records) if sequence_order(r.sequence_number) > last)
            records = records[next(known, len(records)) :]
        sample = Stretch(instant, records, cursor, is_all)
        self.taken.append(sample)
        return sample

    def extended(self, sample: Stretch) -> Stretch:
        """Return a sample of twice the size, which replaces the sample: its cursor goes on."""
        fetched = sample.cursor.fetch(max(len(sample.records), SAMPLE_LIMITS[0]))
        self._front.keep_end(sample.cursor, fetched)
        records = [*sample.records, *fetched.page.records]
        more = Stretch(sample.since, records, sample.cursor, is_last(sample.cursor, fetched))
        self.taken = [more if one is sample else one for one in self.taken]
        return more


def arrival_ms(record: Record) -> int:
    """Return the arrival time of a record in epoch ms; 0 if the service returns none."""
    return record.arrived_ms or 0


def all_arrived_before(ms: int) -> int:
    """Return the epoch ms before which no record arrives any more, where time has reached ``ms``.

    ``ms``: the service's clock, or the arrival of a record.
    """
    return ms - CLOCK_MARGIN_MS


def is_last(cursor: ShardCursor, fetched: Fetched) -> bool:
    """Return True if no record follows the page that a cursor has fetched: the tip or the end."""
    return cursor.at_end or not fetched.page.millis_behind_latest
