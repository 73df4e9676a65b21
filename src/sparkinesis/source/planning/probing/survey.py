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

from sparkinesis.source.planning.probing.arrival_density import (
    Gap,
    Window,
    gaps_until,
    weight_until,
)

MIN_BURSTS = 4
"""The fewest bursts of records from which a density is estimated."""

SAMPLE_LIMITS = (100, 1_000)
"""The fewest and the most records of a sample."""

MAX_SAMPLES = 20
"""The most samples of a shard for one batch."""


@dataclass(frozen=True, slots=True)
class Survey:
    """All that is known of the records of a shard after the start of a batch."""

    arrivals: Sequence[int] = ()
    """For each record in hand, the latest arrival time up to it (epoch ms), so in order."""
    weights: Sequence[float] = ()
    """For each record in hand, the weight of all records up to it."""
    in_hand_until: float = math.inf
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
        """Return the weight of the records that arrived by ``instant``.

        It is estimated after `in_hand_until`.
        """
        if instant > self.in_hand_until and self.windows:
            return max(self.weights[-1], weight_until(self.windows, instant))
        count = self.count(instant)
        return self.weights[count - 1] if count else 0.0

    def gaps(self, instant: float) -> Iterator[Gap]:
        """Yield the times up to ``instant`` in which the weight is estimated."""
        if instant > self.in_hand_until:
            yield from gaps_until(self.windows, instant)


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
