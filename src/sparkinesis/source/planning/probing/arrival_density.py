"""Estimates how the records of a shard are spread over time, from samples of their density.

Kinesis has no call that counts records. To end a batch after an amount of records, the planner
samples the records at a few instants; this module estimates the records in between, and tells how
wrong the estimate may be. A weight is an amount as a share of the limit: a batch ends at weight
1.0. Pure functions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

MIN_ERROR = 0.08
"""The assumed error of the records between two windows of the same density, as a share."""

SURPRISE = 0.25
"""The share by which a sample may differ from the expected density by chance."""

SLOW_MS = 6 * 3_600_000
"""The time in which a density may rise and fall again, as in the course of a day."""


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
