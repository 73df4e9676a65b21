"""Finds where a batch ends in one shard: the last record that arrived by the batch's instant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkinesis.source.planning.batch_end import Finding, Finished, NoRows, Records
from sparkinesis.source.planning.probing.records_in_hand import RecordsInHand
from sparkinesis.source.planning.probing.shard_calls import (
    SMALL_PAGE,
    Samples,
    ShardFront,
    Stretch,
    all_arrived_before,
    arrival_ms,
    is_last,
)
from sparkinesis.source.planning.probing.survey import Survey
from sparkinesis.stream.page import MAX_RECORDS_PER_CALL, Record
from sparkinesis.stream.reading.shard_cursor import ShardCursor

# In which order the end is searched, and why each way is needed
#
# The end must be a record that exists, so that a repeated batch ends at the same place. `find` asks
# what is known first, then makes one call, then several:
#
# 1. records in hand: exact, without a call;
# 2. a sample that reaches over the instant: it has the first record that arrived too late. The
#    batch ends before that one (`is_before`), as nothing names the record that precedes it;
# 3. one call for the first record after the instant. A server that knows whole seconds only may
#    answer with earlier ones, so that the sample is extended until it passes the instant;
# 4. no record arrived after the instant: a burst, then silence, perhaps hours behind the records in
#    hand. The time is halved until a page can bridge the rest, which is then read forward. Samples
#    narrow that time: without them a silence was halved whose beginning one had shown (6def8bbf).
#
# `instant < tip_ms` guards 3: the service refuses instants in its future. In 4 a record may arrive
# meanwhile, which is then the first one that is too late, so each jump asks `first_after` again. A
# cursor that reads on from a sample takes that sample away, because its place moves.
#
# Arrival times within a shard may be out of order. "Arrived by the instant" therefore means before
# the first record that arrived later: `RecordsInHand.arrivals` holds the latest time so far.

CLOSE_MS = 1_000
"""The time without a record to which the halving of a silence narrows it down: all that a shard
takes in a second is a page."""

CLOSE_WITHOUT_LIMITS_MS = 20
"""The same on a Kinesis without limits: calls are free there, and a second may hold many pages."""


@dataclass(frozen=True, slots=True)
class EndInShard:
    """The end of a batch in one shard."""

    finding: Finding
    lag_ms: int = 0
    """The lag behind the shard's tip at this end."""
    records: int | None = None
    """The approximate number of records up to this end; None if it is not known."""
    kept: Sequence[Record] | None = None
    """The records up to this end, if all of them are in hand with their data."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """An end, and what the next plan begins with if the batch ends there."""

    end: EndInShard
    cursor: ShardCursor | None
    rest: RecordsInHand
    limit: int


@dataclass(frozen=True, slots=True)
class EndSearch:
    """The search for the end of a batch among all that is known of a shard."""

    front: ShardFront
    samples: Samples
    survey: Survey

    def find(self, instant: int, count: int | None) -> Resumption:
        """Return the end at ``instant``, or after ``count`` records in hand."""
        if count is not None:
            return self._in_hand(count)
        if instant <= self.survey.in_hand_until:
            return self._in_hand(self.survey.count(instant))
        for sample in self.samples.taken:
            place = sample.first_after(instant)
            if sample.since <= instant + 1 and place is not None:
                return self._in_sample(sample, place, is_kept=False)
        # The service refuses instants in its future.
        if instant < self.front.tip_ms:
            sample = self.samples.jump(instant + 1, 1)
            while (place := sample.first_after(instant)) is None and not sample.is_all:
                sample = self.samples.extended(sample)  # a server that knows whole seconds only
            if place is not None:
                return self._in_sample(sample, place, is_kept=True)
        return self._in_silence(instant)

    def _in_hand(self, count: int) -> Resumption:
        front, hand = self.front, self.front.hand
        rest = hand.after(count)
        limit = MAX_RECORDS_PER_CALL if hand.size <= SMALL_PAGE else 1
        silent_until = all_arrived_before(rest.arrivals[0]) if rest and rest.arrivals[0] else None
        if not rest and front.at_tip:
            silent_until = front.silent_until
        if not count:
            finding: Finding = Finished() if front.is_finished else NoRows(silent_until)
            lag = max(0, front.tip_ms - rest.arrivals[0]) if rest and rest.arrivals[0] else 0
            return Resumption(EndInShard(finding, lag, 0), front.cursor, rest, limit)
        arrived = hand.times[count - 1]
        if silent_until is None and arrived is not None:
            silent_until = all_arrived_before(arrived)
        found = Records(hand.numbers[count - 1], silent_until, arrived, hand.numbers[0])
        lag = 0 if front.at_tip and not rest else max(0, front.tip_ms - (arrived or front.tip_ms))
        kept = None if hand.records is None else hand.records[:count]
        return Resumption(EndInShard(found, lag, count, kept), front.cursor, rest, limit)

    def _in_sample(self, sample: Stretch, place: int, *, is_kept: bool) -> Resumption:
        """Return the end before a record of a sample: the first one that arrived too late."""
        rest = RecordsInHand()
        rest.extend(sample.records[place:], self.front.scale)
        arrived, first = rest.arrivals[0], self.front.hand.numbers[0]
        clear_until = all_arrived_before(arrived)
        found = Records(rest.numbers[0], clear_until, arrived, first, is_before=True)
        end = EndInShard(found, max(0, self.front.tip_ms - arrived), self._estimated(arrived - 1))
        return Resumption(end, sample.cursor if is_kept else None, rest, 1)

    def _estimated(self, instant: float) -> int | None:
        """Estimate the number of records up to ``instant``."""
        survey = self.survey
        if not survey.windows:
            return None
        return round(survey.weight(instant) * len(survey.weights) / survey.weights[-1])

    def _in_silence(self, instant: int) -> Resumption:
        """Return the end after the last record, which arrived by ``instant``, after those in hand.

        Halve the time in which it arrived, then read forward.
        """
        low, high = self.front.hand.arrivals[-1], min(instant, self.front.tip_ms)
        close = CLOSE_MS if self.front.budget.records.pace.is_limited else CLOSE_WITHOUT_LIMITS_MS
        near: Stretch | None = None
        for sample in sorted(self.samples.taken, key=lambda sample: sample.since):
            if sample.records:
                near = sample
                low = max(low, *map(arrival_ms, sample.records))
            if sample.is_all:
                high = min(high, sample.since)
        while low and high - low > close:
            middle = (low + high) // 2
            landed = self.samples.jump(middle, 1)
            if not landed.records:
                high = middle
                continue
            if (place := landed.first_after(instant)) is not None:
                return self._in_sample(landed, place, is_kept=True)  # it has just arrived
            near = landed
            low = max(middle, arrival_ms(landed.records[0]))
        return self._by_reading_on(instant) if near is None else self._after(near, instant)

    def _after(self, near: Stretch, instant: int) -> Resumption:
        """Return the end after the last record, read forward from a sample near it."""
        cursor, last = near.cursor, near.records[-1]
        self.samples.taken = [one for one in self.samples.taken if one.cursor is not cursor]
        while True:
            fetched = cursor.fetch(MAX_RECORDS_PER_CALL)
            self.front.keep_end(cursor, fetched)
            records, is_over = fetched.page.records, is_last(cursor, fetched)
            found = Stretch(instant + 1, records, cursor, is_over)
            if (place := found.first_after(instant)) is not None:
                return self._in_sample(found, place, is_kept=True)
            last = records[-1] if records else last
            if is_over:
                break
        silent_until = all_arrived_before(fetched.service_time_ms)
        first = self.front.hand.numbers[0]
        end = Records(last.sequence_number, silent_until, last.arrived_ms, first)
        count = self._estimated(arrival_ms(last))
        return Resumption(EndInShard(end, 0, count), cursor, RecordsInHand(), MAX_RECORDS_PER_CALL)

    def _by_reading_on(self, instant: int) -> Resumption:
        hand = self.front.hand
        while not self.front.at_tip and hand.arrivals[-1] <= instant:
            self.front.fetch_on(MAX_RECORDS_PER_CALL)
        return self._in_hand(hand.count(instant))
