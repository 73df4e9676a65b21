"""How long a shard's records take to reach an amount, from samples of how densely they arrived.

Kinesis counts nothing: to end a batch after an amount of records, the planner samples the records
at a few instants, and this module says which instant to look at next, or where the amount is
reached. A weight is an amount as a share of what is allowed: 1.0 is where to stop. Pure functions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

TOLERANCE = 0.03
"""The weight by which the records between two windows may be misjudged."""

MIN_ERROR = 0.08
"""Of what lies between two windows that look alike, the share that may be misjudged even so."""


@dataclass(frozen=True, slots=True)
class Window:
    """All records that arrived from ``start`` to ``end`` (epoch ms) weigh ``weight``."""

    start: float
    end: float
    weight: float
    density: float
    """Weight per millisecond there, as far as it says something of what lies around."""


def add_window(windows: Sequence[Window], new: Window) -> list[Window]:
    """The windows with one more, sorted by time, and cut so that none overlaps the next."""
    found = sorted([*windows, new], key=lambda window: window.start)
    for place, (window, following) in enumerate(itertools.pairwise(found)):
        if window.end > following.start:
            span = following.start - window.start
            share = span / (window.end - window.start)
            found[place] = replace(window, end=following.start, weight=window.weight * share)
    return found


def instant_at_weight(windows: Sequence[Window], goal: float = 1.0) -> float:
    """The instant at which the records since the first window weigh ``goal``.

    Between two windows the density changes evenly, after the last one it stays. Infinity when the
    goal is never reached.
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
    """The gap between windows that may be misjudged most before ``until``: (weight, its middle)."""
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
    """Milliseconds after ``window`` at which the gap's records weigh ``goal``, by the trapezoid."""
    gap = following.start - window.end
    slope = (following.density - window.density) / gap
    if abs(slope) * gap < 1e-9 * window.density:
        return goal / window.density
    # density * x + slope * x^2 / 2 = goal
    root = math.sqrt(max(window.density**2 + 2 * slope * goal, 0.0))
    return min(gap, (root - window.density) / slope)
