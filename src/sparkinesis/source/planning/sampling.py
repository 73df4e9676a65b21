"""Finds the end of a batch in a shard's backlog by samples, so that the batch uses its allowance.

Reading all of the backlog to count it would use the shard's read limit twice. Instead the planner
samples the records at a few instants, until the records in between can be estimated well enough
(`sparkinesis.source.planning.arrival_density`). The end is always a record that exists. If the
samples do not suffice, the caller reads forward and counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparkinesis.source.options.allowance import Allowance
from sparkinesis.source.planning.arrival_density import (
    TOLERANCE,
    Window,
    add_window,
    instant_at_weight,
    largest_error,
)
from sparkinesis.stream.kpl.unpack import count_user_records
from sparkinesis.stream.page import Record

MAX_SAMPLES = 10

MIN_BURSTS = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """Consecutive records from an instant (epoch ms) on, with their weights."""

    start: float
    records: Sequence[Record]
    weights: Sequence[float]
    is_all: bool = False
    """True if no record follows: the sample reaches the tip."""

    @property
    def window(self) -> Window | None:
        """The sample as a window of time; None if its records arrived in too few bursts.

        The sample may hold only a part of its last burst, so its density is computed from the first
        record up to the last burst, which is left out. A burst ends where the gap to the next
        record is longer than average.
        """
        arrivals = sorted(arrival_ms(record) for record in self.records)
        first, last = arrivals[0], arrivals[-1]
        average = (last - first) / len(arrivals)
        begins = [new for old, new in itertools.pairwise(arrivals) if new - old > average]
        if len(begins) < MIN_BURSTS:
            return None
        pairs = zip(self.records, self.weights, strict=True)
        before = sum(weight for record, weight in pairs if arrival_ms(record) < begins[-1])
        density = before / (begins[-1] - first)
        return Window(self.start, max(self.start, last), sum(self.weights), density)

    def last_until(self, instant: float) -> Record:
        """Return the last record that arrived by ``instant``, or else the first one."""
        found = self.records[0]
        for record in self.records:
            if arrival_ms(record) > instant:
                break
            found = record
        return found


@dataclass(frozen=True, slots=True)
class SampledEnd:
    """The last record within the limit; None: all records up to the tip are within it."""

    end: Record | None
    weight: float


def sampled_end(
    first: Sample, tip: float, sample: Callable[[float, int], Sample | None], size: int
) -> SampledEnd | None:
    """Return where the records from ``first`` on weigh 1.0; None if samples cannot decide it.

    ``sample(instant, n)`` returns n records that arrived at ``instant`` or later, or None if there
    are none; it is never called for an instant after ``tip`` (epoch ms). A sample has ``size``
    records.
    """
    begin = first.window
    if begin is None or tip <= begin.end:
        return None
    seen = [(begin, first)]
    windows = [begin]
    for _ in range(MAX_SAMPLES):
        reached = min(instant_at_weight(windows), tip)
        error, middle = largest_error(windows, reached)
        if error > TOLERANCE:
            at = middle
        elif reached == tip and windows[-1].end >= tip:
            return SampledEnd(None, _weight(windows, tip))
        else:
            at = reached
            for window, found in seen:
                if window.start <= reached <= window.end:
                    return SampledEnd(found.last_until(reached), 1.0)
            if reached < windows[-1].start:
                landed = sample(reached, 1)
                if landed is not None:
                    return SampledEnd(landed.records[0], 1.0)
        landed = sample(at, size)
        new = _window_at(at, tip, landed)
        if new is None:
            return None
        windows = add_window(windows, new)
        seen += [(new, landed)] if landed else []
    return None


def _window_at(at: float, tip: float, landed: Sample | None) -> Window | None:
    """Return the window of a sample at ``at``; None if it has too few bursts."""
    if landed is None:
        return Window(at, tip, 0.0, 0.0)
    # A short page is not always the last one: its bytes may have reached the limit first.
    if landed.is_all:
        total = sum(landed.weights)  # all records up to the tip
        return Window(at, max(at, tip), total, total / max(tip - at, 1.0))
    return landed.window


def weigh(records: Sequence[Record], allowance: Allowance, *, deaggregate: bool) -> list[float]:
    """Return the weight of each record: its share of the allowance, where 1.0 is all of it."""
    rows = count_user_records(records) if deaggregate else [1] * len(records)
    return [
        max(count / allowance.rows, len(record.data) / allowance.bytes)
        for count, record in zip(rows, records, strict=True)
    ]


def arrival_ms(record: Record) -> int:
    """Return the arrival time of a record in epoch milliseconds."""
    return round((record.approximate_arrival_timestamp or 0.0) * 1000)


def _weight(windows: Sequence[Window], tip: float) -> float:
    """Return the weight of all records up to ``tip``, to a hundredth; at most 1."""
    hundredths = range(1, 100)
    return next((n / 100 for n in hundredths if instant_at_weight(windows, n / 100) >= tip), 1.0)
