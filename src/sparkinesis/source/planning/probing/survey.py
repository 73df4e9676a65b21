"""What a plan knows of one shard's records after its start, and estimates of the rest. Pure.

The planner reads the first records of a shard, and samples of later ones: Kinesis has no call that
counts records. From these a `Survey` has the weight of all records up to an instant, and how wrong
it may be. A weight is an amount as a share of the batch's limit: a batch ends at weight 1.0. Each
`Window` is known; each `Gap` between two windows is estimated.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

MIN_ERROR = 0.08
"""The assumed error of the records between two windows of the same density, as a share."""

SURPRISE = 0.25
"""The share by which a sample may differ from the expected density by chance."""

SLOW_MS = 6 * 3_600_000
"""The time in which a density may rise and fall again, as in the course of a day."""

MIN_BURSTS = 4
"""The fewest bursts of records from which a density is estimated."""

SAMPLE_LIMITS = (100, 1_000)
"""The fewest and the most records of a sample."""

MAX_SAMPLES = 20
"""The most samples of a shard for one batch."""


@dataclass(frozen=True, slots=True)
class Window:
    """The weight of all records that arrived from ``start`` to ``end`` (epoch ms)."""

    start: float
    end: float
    weight: float
    density: float
    """Weight per millisecond, used to estimate the time around the window."""
    doubt: float = 1.0
    """How wrong the densities of the time before this window may be, as a share: 1.0 until a sample
    of that time was taken, then the difference between that sample and the density expected."""

    @property
    def span(self) -> float:
        """Milliseconds from start to end."""
        return max(self.end - self.start, 1.0)


@dataclass(frozen=True, slots=True)
class Gap:
    """The time between two windows, up to ``end``; the weight is estimated."""

    start: float
    end: float
    weight: float
    error: float
    """The largest error of the weight."""
    curve: float = 0.0
    """The part of the error that shards of one course of a day have in common: what a straight line
    misses of a parabola that is flat at one end, a sixth of the difference."""
    doubt: float = 0.0
    """How wrong the density may be, as a share: a long time with the same density at both ends may
    hold a day of many records, between two nights."""


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
    """The records in hand, and samples of later ones; none if too few for a density."""
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

    wanted: the instant that it is wanted at. weight: the approximate weight of the records,
    of which one weighs ``mean``. last: the last window before the instant. Near the tip a
    sample begins earlier, so that it is large enough to show a density.
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


def add_sample(windows: Sequence[Window], new: Window) -> list[Window]:
    """Return the windows with a sample of later records, which shows how well these were known."""
    before = [window for window in windows if window.start <= new.start]
    after = [window for window in windows if window.start > new.start]
    if before and after:
        last, following = before[-1], after[0]
        share = (new.start - last.end) / max(following.start - last.end, 1.0)
        expected = last.density + share * (following.density - last.density)
        most = max(expected, new.density)
        differ = abs(new.density - expected) / most if most else 0.0
        doubt = differ if differ > SURPRISE else 0.0
        new, after[0] = replace(new, doubt=doubt), replace(following, doubt=doubt)
    return add_window([*before, *after], new)


def add_window(windows: Sequence[Window], new: Window) -> list[Window]:
    """Return the windows with ``new``, sorted by time, and cut so that none overlaps the next."""
    found = sorted([*windows, new], key=lambda window: window.start)
    for place, (window, following) in enumerate(itertools.pairwise(found)):
        if window.end > following.start:
            span = following.start - window.start
            share = span / window.span
            found[place] = replace(window, end=following.start, weight=window.weight * share)
    return found


def weight_until(windows: Sequence[Window], instant: float) -> float:
    """Return the estimated weight of the records from the first window on, up to ``instant``.

    The density is assumed to change linearly between two windows, and to stay constant after the
    last one.
    """
    total = 0.0
    for window in windows:
        if instant < window.end:
            total += window.weight * max(0.0, instant - window.start) / window.span
            break
        total += window.weight
    return total + sum(gap.weight for gap in gaps_until(windows, instant))


def gaps_until(windows: Sequence[Window], instant: float) -> Iterator[Gap]:
    """Yield the gaps between the windows, up to ``instant``; the last one may be cut there."""
    for window, following in itertools.zip_longest(windows, windows[1:]):
        if instant <= window.end:
            return
        if following is None:
            weight = window.density * (instant - window.end)
            yield Gap(window.end, instant, weight, weight)
            return
        length = following.start - window.end
        if length <= 0:
            continue
        end = min(instant, following.start)
        slope = (following.density - window.density) / length
        reached = window.density + slope * (end - window.end)
        weight = (window.density + reached) / 2 * (end - window.end)
        differ = abs(following.density - window.density) * (end - window.end)
        error = max(differ / 4, MIN_ERROR * weight)
        doubt = following.doubt * min(1.0, length / SLOW_MS)
        yield Gap(window.end, end, weight, error, differ / 6, doubt)
