"""Estimates when a shard's records reach an amount, from samples of their density over time.

Kinesis has no call that counts records. To end a batch after an amount of records, the planner
samples the records at a few instants; this module computes which instant to sample next, or when
the amount is reached. A weight is an amount as a share of the limit: a batch ends at weight 1.0.
Pure functions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

TOLERANCE = 0.03
"""The largest error, as a weight, that is accepted between two windows."""

MIN_ERROR = 0.08
"""The assumed error of the records between two windows of the same density, as a share."""


@dataclass(frozen=True, slots=True)
class Window:
    """The weight of all records that arrived from ``start`` to ``end`` (epoch ms)."""

    start: float
    end: float
    weight: float
    density: float
    """Weight per millisecond, used to estimate the time around the window."""


def add_window(windows: Sequence[Window], new: Window) -> list[Window]:
    """Return the windows with ``new``, sorted by time, and cut so that none overlaps the next."""
    found = sorted([*windows, new], key=lambda window: window.start)
    for place, (window, following) in enumerate(itertools.pairwise(found)):
        if window.end > following.start:
            span = following.start - window.start
            share = span / (window.end - window.start)
            found[place] = replace(window, end=following.start, weight=window.weight * share)
    return found


def instant_at_weight(windows: Sequence[Window], goal: float = 1.0) -> float:
    """Return the instant at which the records since the first window weigh ``goal``.

    The density is assumed to change linearly between two windows, and to stay constant after the
    last one. Infinity if the goal is never reached.
    """
    for window, following in itertools.zip_longest(windows, windows[1:]):
        if window.weight and window.weight >= goal:
            return float(window.start + (window.end - window.start) * goal / window.weight)
        goal -= window.weight
        if following is None:
            return window.end + goal / window.density if window.density else math.inf
        between = _weight_between(window, following)
        if between >= goal:
            return float(window.end) + _reach_between(window, following, goal)
        goal -= between
    return math.inf


def largest_error(windows: Sequence[Window], until: float) -> tuple[float, float]:
    """Return the gap before ``until`` with the largest possible error: (weight, its middle)."""
    worst, middle = 0.0, until
    for window, following in itertools.pairwise(windows):
        if window.end >= until:
            break
        gap = following.start - window.end
        differ = abs(following.density - window.density) * gap / 4
        error = max(differ, MIN_ERROR * _weight_between(window, following))
        if error > worst:
            worst, middle = error, window.end + gap / 2
    return worst, middle


def _weight_between(window: Window, following: Window) -> float:
    return (window.density + following.density) / 2 * (following.start - window.end)


def _reach_between(window: Window, following: Window, goal: float) -> float:
    """Return the milliseconds after ``window`` at which the gap's records weigh ``goal``."""
    gap = following.start - window.end
    slope = (following.density - window.density) / gap
    if abs(slope) * gap < 1e-9 * window.density:
        return goal / window.density
    # The area of a trapezoid: density * x + slope * x^2 / 2 = goal.
    root = math.sqrt(max(window.density**2 + 2 * slope * goal, 0.0))
    return min(gap, (root - window.density) / slope)
