"""Probes a shard: finds out, with few and cheap calls, which records follow a position.

A plan asks a prober three things, in this order:

- `ShardProber.look`: the first records after the position. On a slow shard these are all records,
  and the plan needs no other call;
- `ShardProber.sample` and `ShardProber.read_on`: more records, from which the plan estimates how
  many there are (`sparkinesis.source.planning.probing.survey`) and chooses the instant at which the
  batch ends, the same for all shards (`sparkinesis.source.planning.batch_instant`);
- `ShardProber.end`: the end of the batch in this shard. Kinesis finds records by time, so one call
  gives the first record that arrived after the instant, and the batch ends before it. Where no
  record arrived after the instant (a burst, then silence), the prober halves the time in between,
  and reads the rest forward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sparkinesis.errors import (
    ExpiredIteratorError,
    PositionNotFoundError,
    ShardNotFoundError,
)
from sparkinesis.source.options.allowance import NO_LIMIT, Allowance
from sparkinesis.source.planning.batch_end import Finding, Finished, Quiet, Records
from sparkinesis.source.planning.probing.arrival_density import Window, add_sample, add_window
from sparkinesis.source.planning.probing.survey import (
    SAMPLE_LIMITS,
    RecordsInHand,
    Survey,
    count_rows,
    density_window,
    last_windows,
    sample_place,
    weigh,
)
from sparkinesis.stream.calls.client import Fetched, StreamClient, shard_of
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import (
    TRIM_HORIZON,
    AfterRecord,
    AtTimestamp,
    Position,
    sequence_order,
)
from sparkinesis.stream.reading.budget import MAX_RECORDS_PER_CALL, ShardBudget
from sparkinesis.stream.reading.cursor import ShardCursor
from sparkinesis.stream.reading.retention import CLOCK_MARGIN_MS, RetentionCheck
from sparkinesis.stream.shard import Shard

FIRST_LIMIT = 1_000
"""The limit of the first call, before the prober knows if the shard is busy."""

SMALL_PAGE = 256 * 1024
"""The most bytes at which reading forward is worth the calls that it saves."""

COUNTED_BYTES = 1_000_000
"""The most bytes that are read on: a sample reads about as much, and costs a call more."""

CLOSE_MS = 1_000
"""The time without a record to which the halving of a silence narrows it down."""

MAX_KEPT = 1_000
"""The most records in hand that are kept for the next plan."""

_NOTHING = Survey()
"""The survey of a shard at whose tip no record is in hand."""


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """The end of a batch in one shard."""

    finding: Finding
    lag_ms: int = 0
    """The lag behind the shard's tip at this end."""
    records: int | None = None
    """The number of records up to this end, about; None if it is not known."""


@dataclass(frozen=True, slots=True)
class _Sample:
    """Consecutive records of a shard, of which the first is the first one since ``since``."""

    since: int
    records: Sequence[Record]
    cursor: ShardCursor
    is_all: bool
    """True if no record follows."""

    def first_after(self, instant: int) -> int | None:
        """Return the index of the first record that arrived after ``instant``."""
        late = (at for at, record in enumerate(self.records) if _arrival_ms(record) > instant)
        return next(late, None)


@dataclass(frozen=True, slots=True)
class _Resumption:
    """The state of a prober with which the next plan begins."""

    end: ShardEnd
    cursor: ShardCursor | None
    rest: RecordsInHand
    limit: int


class ShardProber:
    """Probes one shard repeatedly by one cursor; used by one thread at a time.

    ``deaggregate``: count user records as rows.
    """

    def __init__(
        self,
        client: StreamClient,
        shard_id: str,
        budget: ShardBudget,
        *,
        deaggregate: bool = True,
    ) -> None:
        self._client = client
        self._shard_id = shard_id
        self._budget = budget
        self._check = RetentionCheck(client)
        self._deaggregate = deaggregate
        self._allowance = NO_LIMIT
        self._positions: tuple[Position, ...] = ()
        """The positions after which the records in hand come first; all are the same place."""
        self._cursor: ShardCursor | None = None
        self._start_is_checked = False
        self._limit = FIRST_LIMIT
        self._in_hand = RecordsInHand()
        self._samples: list[_Sample] = []
        self._windows: list[Window] = []
        self._is_bursty = False
        """True if the records come in too few bursts to estimate their density."""
        self._lag_ms = 0
        self._tip_ms = 0
        self._silent_until = 0
        self._ends: dict[tuple[int, int | None], _Resumption] = {}
        self._chosen: _Resumption | None = None
        self.at_tip = False
        """True if all records that arrived before `asked_ms` are in hand."""
        self.is_ended = False
        """True once the shard is closed and a cursor has met its end."""
        self.children: tuple[Shard, ...] = ()
        """The children that the end of the shard has named."""
        self.asked_ms = 0
        """The service's clock (epoch ms) when the last look was asked for."""
        self.survey = Survey()

    @property
    def is_finished(self) -> bool:
        """True if the shard is closed and no record follows the position."""
        return self._at_end and not self._in_hand

    @property
    def is_quiet(self) -> bool:
        """True if no record follows the position, and the shard has not ended.

        The batch then ends in this shard at the same place, whatever its instant is.
        """
        return self.at_tip and not self._in_hand and not self.is_ended

    @property
    def quiet_until(self) -> int:
        """The epoch ms before which no record of a quiet shard arrived."""
        return self._silent_until

    @property
    def _at_end(self) -> bool:
        """True if all of a closed shard's records after the position are in hand."""
        return self._cursor is not None and self._cursor.at_end

    @property
    def in_hand(self) -> tuple[int, int]:
        """The number of rows in hand, about if nothing limits the batch, and of bytes of data."""
        return self._in_hand.rows, self._in_hand.size

    @property
    def first_arrival(self) -> int | None:
        """The arrival time (epoch ms) of the first record in hand."""
        return self._in_hand.arrivals[0] if self._in_hand else None

    @property
    def last_arrival(self) -> int | None:
        """The latest arrival time (epoch ms) of the records in hand."""
        return self._in_hand.arrivals[-1] if self._in_hand else None

    def look(
        self,
        position: Position,
        check: RetentionCheck,
        allowance: Allowance = NO_LIMIT,
        limit: int | None = None,
        until_ms: float = math.inf,
    ) -> None:
        """Fetch the first records after ``position``, ``limit`` at most.

        until_ms: the instant (epoch ms) behind which records do not matter. Raises `DataLossError`
        if records after the position were trimmed.
        """
        self._check = check
        is_weighed = allowance == self._allowance or not self._in_hand
        if self._cursor is None or not self._is_at(position) or not is_weighed:
            self._restart(position)
        self._allowance = allowance
        self._forget_samples()
        try:
            if not (self._at_end or self._reaches(until_ms)):
                self._look_from_kept(position, limit or self._limit, until_ms)
        except ExpiredIteratorError:
            # The last look was minutes or days ago: check again that the start is kept.
            self._cursor = None
            self.look(position, check, allowance, limit, until_ms)
            return
        except Exception:
            self._cursor = None  # it may be past records that no plan has seen
            raise
        self._update()

    def meet_end(self) -> None:
        """Ask once more at the tip of a closed shard: its end may come after its last records."""
        if self.at_tip and not self._at_end:
            self._fetch_on(MAX_RECORDS_PER_CALL)
            self._update()

    def read_on(self, weight: float) -> None:
        """Fetch about as many of the next records as weigh ``weight``, up to a page."""
        if self._cursor is None or self.at_tip:
            return
        mean = self._in_hand.weights[-1] / len(self._in_hand) if self._in_hand else 0.0
        wanted = int(1.05 * weight / mean) + 1 if mean else MAX_RECORDS_PER_CALL
        self._fetch_on(max(wanted, SAMPLE_LIMITS[0]))
        self._update()

    def sample(self, instant: int, weight: float) -> None:
        """Fetch some records that arrived at ``instant`` (epoch ms) or later.

        weight: the weight that they should have, about. The sample may begin earlier: see
        `sample_place`, which keeps it out of the service's future, too.
        """
        mean = self._in_hand.weights[-1] / len(self._in_hand)
        known = self.survey.windows
        instant, size = sample_place(
            instant, weight, mean, known[-1] if known else None, self._tip_ms
        )
        found = self._jump(instant, size)
        window: Window | None = None
        while not found.is_all and (window := self._window_of(found)) is None:
            if len(found.records) >= SAMPLE_LIMITS[1]:
                self._is_bursty = True
                break
            found = self._extended(found)
        new: Sequence[Window] = [] if window is None else [window]
        if found.is_all:
            arrivals = [_arrival_ms(record) for record in found.records]
            new = last_windows(instant, arrivals, self._weigh(found.records), self._tip_ms)
        for one in new:
            known = add_sample(known, one)
        self._windows = list(known[1:])  # the first one is that of the records in hand
        self._update()

    def _window_of(self, sample: _Sample) -> Window | None:
        arrivals = [_arrival_ms(record) for record in sample.records]
        return density_window(sample.since, arrivals, self._weigh(sample.records))

    def _weigh(self, records: Sequence[Record]) -> Sequence[float]:
        return weigh(records, self._count_rows(records), self._allowance)

    def end(self, instant: int, count: int | None = None) -> ShardEnd:
        """Return the end of a batch of all records that arrived by ``instant`` (epoch ms).

        count: the number of records in hand that the batch has, if the instant does not decide it.
        The call may find the shard's end (`is_ended`): its children then decide if the instant
        stays.
        """
        if (instant, count) not in self._ends:
            self._ends[instant, count] = self._find_end(instant, count)
        self._chosen = self._ends[instant, count]
        return self._chosen.end

    def keep(self, start: Position, end: Position) -> None:
        """Prepare for the next plan, which resumes at ``end``, or at ``start`` without a batch.

        Records that were fetched behind the batch's end stay in hand.
        """
        chosen, self._chosen = self._chosen, None
        if chosen is None:
            return
        self._forget_samples()
        self._limit = chosen.limit
        if isinstance(chosen.end.finding, Records):
            self._positions = (end,)
            self._cursor, self._in_hand = chosen.cursor, chosen.rest
            self._start_is_checked = True
            if self._cursor is not None:
                self._cursor.renews = False  # the next plan may be days away: see `look`
        else:
            self._positions = (start, end)
        self.at_tip = self._at_end
        if len(self._in_hand) > MAX_KEPT:
            self._cursor = None

    def rest(self, start: Position, end: Position) -> None:
        """Prepare a quiet shard for the next plan, which resumes at ``start`` or ``end``."""
        self._positions = (start, end)

    def _forget_samples(self) -> None:
        self._samples, self._windows, self._is_bursty, self._ends = [], [], False, {}

    def _is_at(self, position: Position) -> bool:
        return any(
            one is position
            or (one.is_same_place(position) if isinstance(one, AfterRecord) else one == position)
            for one in self._positions
        )

    def _restart(self, position: Position) -> None:
        self._positions = (position,)
        self._cursor = self._open(position, inclusive=True)
        self._start_is_checked = False
        self._in_hand = RecordsInHand()
        self.is_ended = self.at_tip = False
        self.children = ()

    def _reaches(self, instant: float) -> bool:
        """Return True if a record in hand arrived after ``instant``."""
        return bool(self._in_hand) and self._in_hand.arrivals[-1] > instant

    def _look_from_kept(self, position: Position, limit: int, until_ms: float) -> None:
        try:
            self._approach_tip(limit, until_ms)
        except PositionNotFoundError as error:
            self._check.accept_or_raise(error)
            self._restart(position)
            self._cursor = self._open(TRIM_HORIZON)
            self._start_is_checked = True
            self._approach_tip(limit, until_ms)
        except ShardNotFoundError as error:
            self._check.accept_or_raise(error)
            assert self._cursor is not None
            self._cursor.at_end = self.is_ended = self.at_tip = True

    def _approach_tip(self, limit: int, until_ms: float) -> None:
        """Fetch the first records, and the next ones if they cost less than a jump."""
        fetched = self._fetch(limit)
        self.asked_ms = fetched.asked_ms
        if self.at_tip or self._allowance.is_limited or limit == 1 or self._reaches(until_ms):
            return
        span = self._in_hand.arrivals[-1] - self._in_hand.arrivals[0]
        if not span or self._in_hand.size * self._lag_ms <= SMALL_PAGE * span:
            self._fetch_on(MAX_RECORDS_PER_CALL)

    def _open(
        self, position: Position, *, inclusive: bool = False, renews: bool = False
    ) -> ShardCursor:
        return ShardCursor(
            self._client,
            self._budget,
            self._shard_id,
            position,
            inclusive=inclusive,
            renews=renews,
        )

    def _fetch_on(self, limit: int) -> None:
        """Take more records in hand; what comes before them was there a moment ago."""
        try:
            self._fetch(limit)
        except ExpiredIteratorError:
            hand = self._in_hand
            last = AfterRecord(hand.numbers[-1]) if hand else self._positions[0]
            self._cursor = self._open(last)
            self._fetch(limit)

    def _fetch(self, limit: int) -> Fetched:
        """Take the next records in hand, past the empty pages that the service may return."""
        cursor = self._cursor
        assert cursor is not None
        while True:
            # One more record, as the record AT which the cursor begins is dropped.
            extra = 0 if self._start_is_checked else 1
            fetched = cursor.fetch(min(limit + extra, MAX_RECORDS_PER_CALL))
            records: Sequence[Record] | None = fetched.page.records
            if not self._start_is_checked:
                records = self._check.check_start(self._shard_id, self._positions[0], fetched)
                self._start_is_checked = records is not None
            self._lag_ms = fetched.page.millis_behind_latest or 0
            self.at_tip = _is_last(cursor, fetched)
            if records or self.at_tip:
                break
        self._note_end(cursor, fetched)
        if records:
            self._in_hand.extend(records, self._count_rows(records), self._allowance)
        self._silent_until = fetched.service_time_ms - CLOCK_MARGIN_MS
        self._tip_ms = fetched.service_time_ms
        return fetched

    def _count_rows(self, records: Sequence[Record]) -> Sequence[int]:
        return count_rows(records, self._allowance, deaggregate=self._deaggregate)

    def _note_end(self, cursor: ShardCursor, fetched: Fetched) -> None:
        if cursor.at_end:
            self.is_ended = True
            self.children = tuple(map(shard_of, fetched.page.child_shards or ()))

    def _update(self) -> None:
        """Make the survey of what is known now."""
        self._ends = {}
        hand = self._in_hand
        if self.at_tip and not hand:
            self.survey = _NOTHING
            self._limit = MAX_RECORDS_PER_CALL  # no page of this shard is large now
            return
        if hand:
            # Reading on may have passed samples.
            self._windows = [one for one in self._windows if one.start > hand.arrivals[-1]]
        reach = math.inf if self.at_tip else (hand.arrivals[-1] - 1 if hand else -math.inf)
        windows: list[Window] = []
        total = hand.weights[-1] if hand else 0.0
        first = None if self.at_tip or self._is_bursty or not total else hand.window()
        if first is not None:
            windows = add_window(self._windows, first)
        cheap = 0.0
        if hand:
            records = min(FIRST_LIMIT, COUNTED_BYTES * len(hand) / max(hand.size, 1))
            cheap = total / len(hand) * records
        self.survey = Survey(
            list(hand.arrivals),  # copies, as the lists grow
            list(hand.weights),
            reach,
            windows,
            cheap,
            len(self._samples),
            rows_per_weight=hand.rows / total if total else 0.0,
        )

    def _jump(self, instant: int, limit: int) -> _Sample:
        """Fetch the first records that arrived at ``instant`` or later, if they are not in hand."""
        cursor = self._open(AtTimestamp(instant), renews=True)
        while True:
            fetched = cursor.fetch(limit)
            records = fetched.page.records
            is_all = _is_last(cursor, fetched)
            if records or is_all:
                break
        self._note_end(cursor, fetched)
        if self._in_hand:
            # Arrival times may be out of order, so a record found may be one in hand.
            last = sequence_order(self._in_hand.numbers[-1])
            known = (n for n, r in enumerate(records) if sequence_order(r.sequence_number) > last)
            records = records[next(known, len(records)) :]
        sample = _Sample(instant, records, cursor, is_all)
        self._samples.append(sample)
        return sample

    def _find_end(self, instant: int, count: int | None) -> _Resumption:
        if instant <= self.survey.reach or count is not None:
            return self._end_in_hand(self.survey.count(instant) if count is None else count)
        for sample in self._samples:
            place = sample.first_after(instant)
            if sample.since <= instant + 1 and place is not None:
                return self._end_in_sample(sample, place, is_kept=False)
        # The service refuses instants in its future.
        if instant < self._tip_ms:
            sample = self._jump(instant + 1, 1)
            while (place := sample.first_after(instant)) is None and not sample.is_all:
                sample = self._extended(sample)  # a server that knows whole seconds only
            if place is not None:
                return self._end_in_sample(sample, place, is_kept=True)
        return self._end_in_silence(instant)

    def _extended(self, sample: _Sample) -> _Sample:
        """Return a sample of twice the size, which replaces the sample: its cursor goes on."""
        fetched = sample.cursor.fetch(max(len(sample.records), SAMPLE_LIMITS[0]))
        self._note_end(sample.cursor, fetched)
        records = [*sample.records, *fetched.page.records]
        is_all = _is_last(sample.cursor, fetched)
        more = _Sample(sample.since, records, sample.cursor, is_all)
        self._samples = [more if one is sample else one for one in self._samples]
        return more

    def _end_in_hand(self, count: int) -> _Resumption:
        hand, rest = self._in_hand, self._in_hand.after(count)
        is_small = hand.size <= SMALL_PAGE
        limit = MAX_RECORDS_PER_CALL if is_small else 1
        silent_until = rest.arrivals[0] - CLOCK_MARGIN_MS if rest and rest.arrivals[0] else None
        if not rest and self.at_tip:
            silent_until = self._silent_until
        if not count:
            finding: Finding = Finished() if self.is_finished else Quiet(silent_until)
            lag = max(0, self._tip_ms - rest.arrivals[0]) if rest and rest.arrivals[0] else 0
            return _Resumption(ShardEnd(finding, lag, 0), self._cursor, rest, limit)
        arrived = hand.times[count - 1]
        if silent_until is None and arrived is not None:
            silent_until = arrived - CLOCK_MARGIN_MS
        found = Records(hand.numbers[count - 1], silent_until, arrived, hand.numbers[0])
        lag = 0 if self.at_tip and not rest else max(0, self._tip_ms - (arrived or self._tip_ms))
        return _Resumption(ShardEnd(found, lag, count), self._cursor, rest, limit)

    def _end_in_sample(self, sample: _Sample, place: int, *, is_kept: bool) -> _Resumption:
        """Return the end before a record of a sample: the first one that arrived too late."""
        rest = RecordsInHand()
        later = sample.records[place:]
        rest.extend(later, self._count_rows(later), self._allowance)
        silent_until = (rest.times[0] or 0) - CLOCK_MARGIN_MS
        first = self._in_hand.numbers[0]
        found = Records(rest.numbers[0], silent_until, rest.times[0], first, is_before=True)
        lag = max(0, self._tip_ms - (rest.times[0] or 0))
        end = ShardEnd(found, lag, self._estimated(rest.arrivals[0] - 1))
        return _Resumption(end, sample.cursor if is_kept else None, rest, 1)

    def _estimated(self, instant: float) -> int | None:
        """Return the number of records up to ``instant``, about."""
        survey = self.survey
        if not survey.windows or not survey.weights[-1]:
            return None
        return round(survey.weight(instant) * len(survey.weights) / survey.weights[-1])

    def _end_in_silence(self, instant: int) -> _Resumption:
        """Return the end after the last record, which arrived by ``instant``, after those in hand.

        Halve the time in which it arrived, then read forward.
        """
        hand = self._in_hand
        low, high = hand.arrivals[-1], min(instant, self._tip_ms)
        cursor, last = None, None
        for sample in sorted(self._samples, key=lambda sample: sample.since):
            if sample.records:
                cursor, last = sample.cursor, sample.records[-1]
                low = max(low, *map(_arrival_ms, sample.records))
            if sample.is_all:
                high = min(high, max(low, sample.since))
        while low and high - low > CLOSE_MS:
            middle = (low + high) // 2
            landed = self._jump(middle, 1)
            if not landed.records:
                high = middle
                continue
            if (place := landed.first_after(instant)) is not None:
                return self._end_in_sample(landed, place, is_kept=True)  # it has just arrived
            cursor, last = landed.cursor, landed.records[0]
            low = max(middle, _arrival_ms(last))
        if cursor is None or last is None:
            return self._end_by_reading_on(instant)
        self._samples = [sample for sample in self._samples if sample.cursor is not cursor]
        while True:
            fetched = cursor.fetch(MAX_RECORDS_PER_CALL)
            self._note_end(cursor, fetched)
            is_over = _is_last(cursor, fetched)
            found = _Sample(instant + 1, fetched.page.records, cursor, is_over)
            place = found.first_after(instant)
            if place is not None:
                return self._end_in_sample(found, place, is_kept=True)
            last = fetched.page.records[-1] if fetched.page.records else last
            if is_over:
                break
        silent_until = fetched.service_time_ms - CLOCK_MARGIN_MS
        end = Records(last.sequence_number, silent_until, last.arrived_ms, hand.numbers[0])
        records = self._estimated(_arrival_ms(last))
        return _Resumption(ShardEnd(end, 0, records), cursor, RecordsInHand(), MAX_RECORDS_PER_CALL)

    def _end_by_reading_on(self, instant: int) -> _Resumption:
        while not self.at_tip and self._in_hand.arrivals[-1] <= instant:
            self._fetch_on(MAX_RECORDS_PER_CALL)
        self._update()
        return self._end_in_hand(self.survey.count(instant))


def _is_last(cursor: ShardCursor, fetched: Fetched) -> bool:
    """Return True if no record follows the page that a cursor has fetched: the tip or the end."""
    return cursor.at_end or not fetched.page.millis_behind_latest


def _arrival_ms(record: Record) -> int:
    """Return the arrival time of a record in epoch ms; 0 if the service returns none."""
    return record.arrived_ms or 0
