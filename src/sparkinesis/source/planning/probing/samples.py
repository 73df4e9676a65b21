"""Samples of a shard: some consecutive records at an instant, found by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkinesis.source.planning.probing.arrival_density import Window, add_sample
from sparkinesis.source.planning.probing.shard_front import ShardFront, is_last
from sparkinesis.source.planning.probing.survey import (
    SAMPLE_LIMITS,
    density_window,
    last_windows,
    sample_place,
)
from sparkinesis.stream.page import Record
from sparkinesis.stream.position import AtTimestamp, sequence_order
from sparkinesis.stream.reading.shard_cursor import ShardCursor


@dataclass(frozen=True, slots=True)
class Probe:
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
        self.taken: list[Probe] = []
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

    def _window_of(self, sample: Probe) -> Window | None:
        arrivals = [arrival_ms(record) for record in sample.records]
        return density_window(sample.since, arrivals, self._front.scale.weigh(sample.records))

    def jump(self, instant: int, limit: int) -> Probe:
        """Fetch the first records that arrived at ``instant`` or later, if they are not in hand."""
        cursor = self._front.open(AtTimestamp(instant), renews=True)
        while True:
            fetched = cursor.fetch(limit)
            records = fetched.page.records
            is_all = is_last(cursor, fetched)
            if records or is_all:
                break
        self._front.note_end(cursor, fetched)
        if self._front.hand:
            # Arrival times may be out of order, so a record found may be one in hand.
            last = sequence_order(self._front.hand.numbers[-1])
            known = (n for n, r in enumerate(records) if sequence_order(r.sequence_number) > last)
            records = records[next(known, len(records)) :]
        sample = Probe(instant, records, cursor, is_all)
        self.taken.append(sample)
        return sample

    def extended(self, sample: Probe) -> Probe:
        """Return a sample of twice the size, which replaces the sample: its cursor goes on."""
        fetched = sample.cursor.fetch(max(len(sample.records), SAMPLE_LIMITS[0]))
        self._front.note_end(sample.cursor, fetched)
        records = [*sample.records, *fetched.page.records]
        more = Probe(sample.since, records, sample.cursor, is_last(sample.cursor, fetched))
        self.taken = [more if one is sample else one for one in self.taken]
        return more


def arrival_ms(record: Record) -> int:
    """Return the arrival time of a record in epoch ms; 0 if the service returns none."""
    return record.arrived_ms or 0
