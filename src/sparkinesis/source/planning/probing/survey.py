"""What a plan knows of one shard's records after its start: those in hand, and samples. Pure.

The planner reads the first records of a shard, and samples of later ones. From these a survey tells
the weight of all records up to an instant (a share of the batch's limit), and how wrong it may be.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparkinesis.source.options.allowance import Allowance
from sparkinesis.source.planning.probing.arrival_density import (
    Gap,
    Window,
    gaps_until,
    weight_until,
)
from sparkinesis.stream.kpl.magic import aggregates_of
from sparkinesis.stream.page import Record

MIN_BURSTS = 4
"""The fewest bursts of records from which a density is estimated."""

SAMPLE_LIMITS = (100, 1_000)
"""The fewest and the most records of a sample."""

MAX_SAMPLES = 20
"""The most samples of a shard for one batch."""

COUNTED_RECORDS = 20
"""The most aggregated records of a page that are opened if nothing limits a batch."""


@dataclass(frozen=True, slots=True)
class Survey:
    """All that is known of the records of a shard after the start of a batch."""

    arrivals: Sequence[int] = ()
    """For each record in hand, the latest arrival time up to it (epoch ms), so in order."""
    weights: Sequence[float] = ()
    """For each record in hand, the weight of all records up to it."""
    reach: float = math.inf
    """All records that arrived by this instant are in hand; infinity at the shard's tip or end."""
    windows: Sequence[Window] = ()
    """The records in hand, and samples of later ones; none if too few to tell a density."""
    cheap: float = 0.0
    """The weight up to which reading on costs less than a sample."""
    samples: int = 0
    """The number of samples taken."""
    rows_per_weight: float = 0.0
    """The number of rows that weigh 1.0; 0 if it is not known."""

    def count(self, instant: float) -> int:
        """Return the number of records in hand that arrived by ``instant``."""
        return bisect.bisect_right(self.arrivals, instant)

    def weight(self, instant: float) -> float:
        """Return the weight of the records that arrived by ``instant``, estimated after `reach`."""
        if instant > self.reach and self.windows:
            return max(self.weights[-1], weight_until(self.windows, instant))
        count = self.count(instant)
        return self.weights[count - 1] if count else 0.0

    def gaps(self, instant: float) -> Iterator[Gap]:
        """Yield the times up to ``instant`` in which the weight is estimated."""
        if instant > self.reach:
            yield from gaps_until(self.windows, instant)


class RecordsInHand:
    """The first records of a shard after a position, without their data."""

    def __init__(self) -> None:
        self.numbers: list[str] = []
        self.times: list[int | None] = []
        """The arrival times in epoch ms; None if the service returns none."""
        self.arrivals: list[int] = []
        """The latest arrival time up to each record; 0 without any."""
        self.weights: list[float] = []
        """The weight up to each record."""
        self.rows = 0
        """The number of rows; about, if nothing limits the batch."""
        self.size = 0
        """The bytes of data."""

    def __len__(self) -> int:
        return len(self.numbers)

    def extend(self, records: Sequence[Record], rows: Sequence[int], allowance: Allowance) -> None:
        """Add the records that follow, with the number of rows of each."""
        times = [record.arrived_ms for record in records]
        last, total = (self.arrivals[-1], self.weights[-1]) if self.numbers else (0, 0.0)
        latest = itertools.accumulate((time or 0 for time in times), max, initial=last)
        sums = itertools.accumulate(weigh(records, rows, allowance), initial=total)
        self.rows += sum(rows)
        self.numbers += [record.sequence_number for record in records]
        self.times += times
        self.arrivals += itertools.islice(latest, 1, None)
        self.weights += itertools.islice(sums, 1, None)
        self.size += sum(len(record.data) for record in records)

    def after(self, count: int) -> RecordsInHand:
        """Return the records after the first ``count``."""
        rest = RecordsInHand()
        rest.numbers, rest.times = self.numbers[count:], self.times[count:]
        latest = itertools.accumulate((time or 0 for time in rest.times), max)
        rest.arrivals = list(latest)
        done = self.weights[count - 1] if count else 0.0
        rest.weights = [weight - done for weight in self.weights[count:]]
        share = len(rest) / len(self) if self.numbers else 0.0
        rest.size, rest.rows = round(self.size * share), round(self.rows * share)
        return rest

    def window(self) -> Window | None:
        """Return these records as a window; None if they are too few to tell a density."""
        if not self.numbers:
            return None
        weights = [new - old for old, new in itertools.pairwise([0.0, *self.weights])]
        times = [time or 0 for time in self.times]
        return density_window(min(times), times, weights)


def density_window(
    start: float, arrivals: Sequence[int], weights: Sequence[float]
) -> Window | None:
    """Return consecutive records from ``start`` on as a window; None if there are too few bursts.

    ``arrivals`` in epoch ms, ``weights`` of each record. The records may hold only a part of their
    last burst, so the density is computed from the first record up to the last burst, which is left
    out. A burst ends where the gap to the next record is longer than average.
    """
    if not arrivals:
        return None
    times = sorted(arrivals)
    first, last = times[0], times[-1]
    average = (last - first) / len(times)
    begins = [new for old, new in itertools.pairwise(times) if new - old > average]
    if len(begins) < MIN_BURSTS:
        return None
    pairs = zip(arrivals, weights, strict=True)
    before = sum(weight for arrival, weight in pairs if arrival < begins[-1])
    return Window(start, max(start, last), sum(weights), before / (begins[-1] - first))


def sample_place(
    wanted: int, weight: float, mean: float, last: Window | None, tip_ms: int
) -> tuple[int, int]:
    """Return the instant (epoch ms) and the number of records of a sample.

    wanted: the instant that it is wanted at. weight: the weight that the records should have,
    about, where one weighs ``mean``. last: the last window before the instant. Near the tip a
    sample begins earlier, so that it is large enough to tell a density.
    """
    fewest, most = SAMPLE_LIMITS
    size = min(max(int(weight / mean), fewest), most) if mean else fewest
    reserve = 0.0
    if last is not None and last.density:
        reserve = max(0.0, min(size * mean / last.density, (tip_ms - last.end) / 2))
    return min(wanted, tip_ms - math.ceil(reserve)), size


def last_windows(
    start: int, arrivals: Sequence[int], weights: Sequence[float], tip_ms: int
) -> Sequence[Window]:
    """Return a shard's last records, from ``start`` on, and the silence after them, as windows."""
    end = max([start, *arrivals]) + 1
    weight = sum(weights)
    records = density_window(start, arrivals, weights)
    density = records.density if records else weight / max(tip_ms - start, end - start)
    records = Window(start, end, weight, density)
    return [records, Window(end, tip_ms, 0.0, 0.0)] if end < tip_ms else [records]


def count_rows(
    records: Sequence[Record], allowance: Allowance, *, deaggregate: bool
) -> Sequence[int]:
    """Return the number of rows of each record; about the mean of all if nothing limits them."""
    if not deaggregate or not aggregates_of(records):
        return [1] * len(records)
    # With the protobuf runtime, which plain records do not need.
    from sparkinesis.stream.kpl.envelope import count_user_records  # noqa: PLC0415

    if allowance.is_limited:
        return count_user_records(records)
    # The rows only tell the mean size of a row.
    some = count_user_records(records[:COUNTED_RECORDS])
    return [round(sum(some) / len(some))] * len(records)


def weigh(records: Sequence[Record], rows: Sequence[int], allowance: Allowance) -> Sequence[float]:
    """Return the weight of each record: its share of the allowance, where 1.0 is all of it."""
    if not allowance.is_limited:
        return [0.0] * len(records)
    return [
        max(count / allowance.rows, len(record.data) / allowance.bytes)
        for count, record in zip(rows, records, strict=True)
    ]
