"""Probes a shard: finds out, with few and cheap calls, which records follow a position.

Kinesis has no call that returns a shard's latest sequence number. The prober finds one that exists
in one of two ways:

- it reads forward, to the last record of a page. One call, exact, and nearly free on a slow shard;
- it jumps to the first record that arrived at an instant close to the tip (AT_TIMESTAMP, one
  record). On a fast shard, or in a backlog, this saves reading all records twice.

If the jump finds no record (a burst, then silence), the prober reads a page forward. If that page
does not reach the tip either, the prober moves the instant back by halves, and reads the rest
forward.

If the batch is limited, a small amount is counted by reading forward, and the end of a large one is
found by samples (`sparkinesis.source.planning.sampling`).
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sparkinesis.errors import (
    ExpiredIteratorError,
    PositionNotFoundError,
    ShardNotFoundError,
)
from sparkinesis.source.options.allowance import NO_LIMIT, Allowance
from sparkinesis.source.planning.batch_end import Finding, Finished, Quiet, Records
from sparkinesis.source.planning.sampling import Sample, arrival_ms, sampled_end, weigh
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

CLOSE_TO_TIP_MS = 1_000
"""A lag up to this counts as caught up."""

JUMP_SHORT_OF_TIP_MS = 250
"""The distance of a jump to the tip: a busy shard has a record that young."""

FIRST_LIMIT = 1_000
"""The limit of the first call, before the prober knows if the shard is busy."""

SMALL_PAGE = 256 * 1024
"""The most bytes since the last probe at which reading forward is worth the saved calls."""

SAMPLE_LIMITS = (100, 1_000)
"""The fewest and the most records of a sample."""

SAMPLES_IN_SLICE = 40
"""The size of a slice in samples, so that a sample reads a fortieth of the slice twice."""

COUNTED_SHARE = 0.25
"""The share of the allowance from which on, if the first page has it, the rest is counted."""

COUNTED_BYTES = 1_000_000
"""The largest slice that is counted: sampling it would read about as many bytes."""

ROUNDING = 1e-9
"""The largest rounding error of a sum of many small weights."""

MAX_HALVINGS = 10
MOST_EMPTY_PAGES = 5


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of one probe; it has children if the probe reached the end of a closed shard."""

    finding: Finding
    children: tuple[Shard, ...] = ()
    taken: float = 0.0
    """The share of the allowance that the finding uses; 1.0 is all."""
    is_cut: bool = False
    """True if more records follow, and only the allowance leaves them for the next batch."""
    lag_ms: int = 0
    """The lag behind the shard's tip at the end of the finding."""
    records: int | None = None
    """The approximate number of records in the finding, if known."""


class ShardProber:
    """Probes one shard repeatedly by one cursor; used by one thread at a time.

    ``until_ms``: ignore records that arrived after this instant (epoch ms). ``deaggregate``: count
    user records as rows.
    """

    def __init__(
        self,
        client: StreamClient,
        shard_id: str,
        budget: ShardBudget,
        check: RetentionCheck,
        until_ms: int | None = None,
        *,
        deaggregate: bool = True,
    ) -> None:
        self._client = client
        self._shard_id = shard_id
        self._budget = budget
        self._check = check
        self._until_ms = until_ms
        self._deaggregate = deaggregate
        self._position: Position | None = None
        self._cursor: ShardCursor | None = None
        self._start_is_checked = False
        self._is_new = False
        """True until the cursor has met a record or the tip."""
        self._last_result: ProbeResult | None = None
        self._first: str | None = None
        """The sequence number of the first record that the present probe has met."""
        self._limit = FIRST_LIMIT

    def use_check(self, check: RetentionCheck) -> None:
        """Replace the retention check: the initial start of a shard is checked less strictly."""
        self._check = check

    def probe(self, position: Position, allowance: Allowance = NO_LIMIT) -> ProbeResult:
        """Find the records that follow ``position``, within ``allowance`` but at least one.

        Raises `DataLossError` if records after the position were trimmed.
        """
        again = self._last_result
        # A result for another allowance may exceed this one.
        is_stale = again is not None and again.taken > 0 and allowance.is_limited
        if self._cursor is None or is_stale or not _same_place(position, self._position):
            self._cursor = self._open(position, inclusive=True)
            self._start_is_checked = False
            self._is_new = True
            self._last_result = None
        elif again is not None:
            return again
        self._position = position
        self._first = None
        try:
            result = self._examine_from_kept(self._cursor, allowance)
        except ExpiredIteratorError:
            # The last probe was minutes or days ago: check again that the start is kept.
            self._cursor = None
            return self.probe(position, allowance)
        except Exception:
            self._cursor = None  # it may be past records that no probe has reported
            raise
        found = result.finding
        if isinstance(found, Records):
            result = replace(result, finding=replace(found, first=self._first))
            # The cursor is past these records, where the next probe most likely starts.
            self._position = AfterRecord(found.end)
            self._start_is_checked = True
            if self._cursor is not None and self._cursor.at_end:
                self._last_result = ProbeResult(Finished(), result.children)
        elif not isinstance(found, Quiet):
            self._last_result = result
        return result

    def _examine_from_kept(self, cursor: ShardCursor, allowance: Allowance) -> ProbeResult:
        examine = self._examine_within if allowance.is_limited else self._examine
        try:
            return examine(cursor, allowance)
        except PositionNotFoundError as error:
            self._check.accept_or_raise(error)
            self._cursor = self._open(TRIM_HORIZON)
            self._start_is_checked = True
            return examine(self._cursor, allowance)
        except ShardNotFoundError as error:
            self._check.accept_or_raise(error)
            return ProbeResult(Finished())

    def _open(self, position: Position, *, inclusive: bool = False) -> ShardCursor:
        return ShardCursor(
            self._client,
            self._budget,
            self._shard_id,
            position,
            inclusive=inclusive,
            renews=False,
        )

    def _examine(self, cursor: ShardCursor, _: Allowance) -> ProbeResult:
        limit = self._limit
        found = self._fetch_records(cursor, limit)
        if not found.records and not found.passed_until:
            self._limit = MAX_RECORDS_PER_CALL
            return _without_records(cursor, found)
        is_close = found.lag_ms == 0 or (found.lag_ms <= CLOSE_TO_TIP_MS and limit > 1)
        if is_close or cursor.at_end or found.passed_until:
            return self._conclude(cursor, found, None)
        return self._approach_tip(cursor, found)

    def _conclude(self, cursor: ShardCursor, found: _Fetch, last: Record | None) -> ProbeResult:
        """Return the result that ends with this page; ``last`` is the last record before."""
        if found.records:
            last = found.records[-1]
        if found.passed_until:
            self._cursor = None  # it is past records that must be ignored
            if last is None:
                assert self._until_ms is not None
                return ProbeResult(Quiet(self._until_ms - CLOCK_MARGIN_MS))
            return _ending_at(last, None)
        self._cursor = cursor
        assert last is not None
        if cursor.at_end:
            return replace(_ending_at(last, None), children=found.children)
        self._limit = MAX_RECORDS_PER_CALL if found.fetched.size <= SMALL_PAGE else 1
        return _ending_at(last, found.silent_until, found.lag_ms)

    def _examine_within(self, cursor: ShardCursor, allowance: Allowance) -> ProbeResult:
        """Examine as `_examine` does, but stop at about the allowance."""
        found = self._fetch_records(cursor, FIRST_LIMIT)
        if not found.records and not found.passed_until:
            return _without_records(cursor, found)
        weights = self._weigh(found.records, allowance)
        weight = sum(weights)
        if weight > 1.0 + ROUNDING:
            return self._cut(found, weights, 1.0, None, 0)
        is_close = found.lag_ms <= CLOSE_TO_TIP_MS
        if is_close or cursor.at_end or found.passed_until:
            result = self._conclude(cursor, found, None)
            return replace(result, taken=weight, records=len(found.records))
        size = sum(len(record.data) for record in found.records)
        has_times = all(r.approximate_arrival_timestamp is not None for r in found.records)
        if weight < COUNTED_SHARE and size > COUNTED_BYTES * weight and has_times:
            sliced = self._slice(cursor, found, weights, allowance)
            if sliced is not None:
                return sliced
        return self._count_forward(cursor, found, weight, allowance)

    def _weigh(self, records: Sequence[Record], allowance: Allowance) -> list[float]:
        return weigh(records, allowance, deaggregate=self._deaggregate)

    def _cut(
        self,
        found: _Fetch,
        weights: Sequence[float],
        left: float,
        last: Record | None,
        before: int,
    ) -> ProbeResult:
        """Return the result that ends within this page, where the page's records weigh ``left``.

        ``last`` is the last of the ``before`` records before the page; without it the result has at
        least one record.
        """
        sums = list(itertools.accumulate(weights, initial=0.0))
        count = bisect.bisect_right(sums, left + ROUNDING) - 1
        if count == 0 and last is None:
            count = 1
        end = found.records[count - 1] if count or last is None else last
        self._cursor = None  # it is past records that are left for the next batch
        result = _ending_at(end, None, found.tip_ms - arrival_ms(end))
        taken = 1.0 - left + sums[count]
        return replace(result, taken=taken, is_cut=True, records=before + count)

    def _count_forward(
        self, cursor: ShardCursor, found: _Fetch, weight: float, allowance: Allowance
    ) -> ProbeResult:
        """Read forward from ``found``, which weighs ``weight``, and count up to the allowance."""
        count = len(found.records)
        while True:
            last = found.records[-1]
            lacking = (1.0 - weight) / max(weight / count, 1.0 / MAX_RECORDS_PER_CALL)
            found = self._fetch_records(cursor, min(int(lacking) + 1, MAX_RECORDS_PER_CALL))
            weights = self._weigh(found.records, allowance)
            more = sum(weights)
            if weight + more > 1.0 + ROUNDING:
                return self._cut(found, weights, 1.0 - weight, last, count)
            weight += more
            count += len(found.records)
            is_close = found.lag_ms <= CLOSE_TO_TIP_MS or not found.records
            if is_close or cursor.at_end or found.passed_until or weight >= 1.0:
                result = replace(self._conclude(cursor, found, last), taken=weight, records=count)
                return replace(result, is_cut=weight >= 1.0 and not is_close)

    def _slice(
        self,
        cursor: ShardCursor,
        found: _Fetch,
        weights: Sequence[float],
        allowance: Allowance,
    ) -> ProbeResult | None:
        """Return the result that ends where samples show the allowance used, if they do."""
        last = found.records[-1]
        tip = found.tip_ms - JUMP_SHORT_OF_TIP_MS
        if self._until_ms is not None:
            tip = min(tip, self._until_ms)
        first = Sample(arrival_ms(found.records[0]), found.records, weights)
        fewest, most = SAMPLE_LIMITS
        size = int(len(weights) / sum(weights) / SAMPLES_IN_SLICE)

        def sample(instant: float, count: int) -> Sample | None:
            landed = self._jump(int(instant), last, count)
            if landed is None:
                return None
            cursor, found = landed
            weights = self._weigh(found.records, allowance)
            is_all = cursor.at_end or found.passed_until or not found.lag_ms
            return Sample(instant, found.records, weights, is_all)

        ends = sampled_end(first, tip, sample, min(max(size, fewest), most))
        if ends is None:
            return None
        expected = int(len(weights) / sum(weights) * ends.weight)
        if ends.end is None:
            result = self._approach_tip(cursor, found)
            return replace(result, taken=ends.weight, records=expected)
        self._cursor = None
        result = _ending_at(ends.end, None, found.tip_ms - arrival_ms(ends.end))
        return replace(result, taken=ends.weight, is_cut=True, records=expected)

    def _fetch_records(self, cursor: ShardCursor, limit: int) -> _Fetch:
        """Fetch the next records, past the empty pages that the service may return."""
        tries: Iterable[int] = range(MOST_EMPTY_PAGES)
        if self._until_ms is not None or self._position is TRIM_HORIZON or self._is_new:
            # Empty pages before the tip decide nothing: an offset stores neither a position without
            # a time nor a cursor's place past empty pages, which the next cursor would meet again.
            tries = itertools.count()
        for _ in tries:
            # One more record, as the record AT which the cursor begins is dropped.
            extra = 0 if self._start_is_checked else 1
            fetched = cursor.fetch(min(limit + extra, MAX_RECORDS_PER_CALL))
            records: Sequence[Record] | None = fetched.page.records
            if not self._start_is_checked and self._position is not None:
                records = self._check.check_start(self._shard_id, self._position, fetched)
                self._start_is_checked = records is not None
            if records or cursor.at_end or not fetched.page.millis_behind_latest:
                break
        self._is_new = False
        within = _up_to_instant(records or (), self._until_ms)
        if within and self._first is None:
            self._first = within[0].sequence_number
        return _Fetch(fetched, within, passed_until=len(within) < len(records or ()))

    def _approach_tip(self, cursor: ShardCursor, found: _Fetch) -> ProbeResult:
        """Return the result that ends with a record close to the tip, far after this page."""
        last = found.records[-1]
        if last.approximate_arrival_timestamp is None:
            return self._read_forward(cursor, last)[0]
        tip = found.tip_ms - JUMP_SHORT_OF_TIP_MS
        if self._until_ms is not None:
            tip = min(tip, self._until_ms)
        landed = self._jump(tip, last)
        if landed is not None:
            result = self._conclude(*landed, last)
            self._limit = 1  # a busy shard: the next probe jumps, too
            return result
        if _is_more_than_a_page(found):
            return self._halve(cursor, last, tip)
        result, reached = self._read_forward(cursor, last)
        if reached is None:
            return result
        return self._halve(cursor, reached, tip)

    def _jump(
        self, instant: int, last: Record, limit: int = 1
    ) -> tuple[ShardCursor, _Fetch] | None:
        """Fetch the first records that arrived at ``instant`` or later, if they follow ``last``."""
        if instant <= arrival_ms(last):
            return None
        cursor = self._open(AtTimestamp(instant))
        found = self._fetch_records(cursor, limit)
        # Arrival times may be out of order, so the record found may not follow the last one.
        if not found.records or _order(found.records[0]) <= _order(last):
            return None
        return cursor, found

    def _halve(self, cursor: ShardCursor, last: Record, high: int) -> ProbeResult:
        """Return the result that ends near the last record before ``high`` (epoch ms)."""
        low = arrival_ms(last)
        for _ in range(MAX_HALVINGS):
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
            low = max(middle, arrival_ms(last))
        return self._read_forward(cursor, last)[0]

    def _read_forward(self, cursor: ShardCursor, last: Record) -> tuple[ProbeResult, Record | None]:
        """Return the result that ends with the next page, and its last record if more follow."""
        found = self._fetch_records(cursor, MAX_RECORDS_PER_CALL)
        result = self._conclude(cursor, found, last)
        is_over = cursor.at_end or found.passed_until or found.lag_ms == 0 or not found.records
        return result, None if is_over else found.records[-1]


@dataclass(frozen=True, slots=True)
class _Fetch:
    """The last page of a fetch, and its records after the position."""

    fetched: Fetched
    records: Sequence[Record]
    passed_until: bool
    """True if records that arrived after ``until_ms`` were left out."""

    @property
    def children(self) -> tuple[Shard, ...]:
        """The child shards that the last page of a closed shard names."""
        return tuple(shard_of(child) for child in self.fetched.page.child_shards or ())

    @property
    def lag_ms(self) -> int:
        return self.fetched.page.millis_behind_latest or 0

    @property
    def tip_ms(self) -> int:
        """The arrival time of the shard's newest record, estimated by the page's lag; epoch ms."""
        return arrival_ms(self.fetched.page.records[-1]) + self.lag_ms

    @property
    def silent_until(self) -> int | None:
        """The instant before which no record after this page arrived; None before the tip."""
        return None if self.lag_ms else self.fetched.service_time_ms - CLOCK_MARGIN_MS


def _is_more_than_a_page(found: _Fetch) -> bool:
    """Return True if more than a page of records follows, at the rate of this page."""
    span = arrival_ms(found.records[-1]) - arrival_ms(found.records[0])
    return span > 0 and len(found.records) * found.lag_ms > MAX_RECORDS_PER_CALL * span


def _up_to_instant(records: Sequence[Record], until_ms: int | None) -> Sequence[Record]:
    """Return the records before the first one that arrived after ``until_ms``."""
    if until_ms is None:
        return records
    late = (at for at, record in enumerate(records) if arrival_ms(record) > until_ms)
    return records[: next(late, len(records))]


def _without_records(cursor: ShardCursor, found: _Fetch) -> ProbeResult:
    if cursor.at_end:
        return ProbeResult(Finished(), found.children)
    return ProbeResult(Quiet(found.silent_until))


def _ending_at(end: Record, silent_until: int | None, lag_ms: int = 0) -> ProbeResult:
    if silent_until is None and end.approximate_arrival_timestamp is not None:
        silent_until = arrival_ms(end) - CLOCK_MARGIN_MS
    return ProbeResult(Records(end.sequence_number, silent_until, end.arrived_ms), lag_ms=lag_ms)


def _order(record: Record) -> tuple[int, str]:
    return sequence_order(record.sequence_number)


def _same_place(one: Position, other: Position | None) -> bool:
    return one.is_same_place(other) if isinstance(one, AfterRecord) else one == other
