"""What the charts show: the application's lag and rates of the last hour."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

KEPT_FOR = 3600.0
"""Seconds."""
_MOST = 7200
"""Points, whatever the interval."""


@dataclass(frozen=True, slots=True)
class Point:
    """The application at one look."""

    at: float
    """Seconds since the epoch."""
    lag_ms: int | None
    """The largest lag; None if no lag is known."""
    kilobytes_per_second: float | None
    """By the lease table; None if no owner stores its rate."""
    records_per_second: float | None
    """By the workers; None if none of them is asked."""


class History:
    """The points of the last hour. Not for several threads."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=_MOST)

    def add(self, point: Point) -> tuple[Point, ...]:
        """Add a point; return all points of the hour before it, and itself."""
        if self._points and point.at < self._points[-1].at:
            self._points.clear()  # The clock was set back: what was before is at no known time.
        self._points.append(point)
        while self._points[0].at < point.at - KEPT_FOR:
            self._points.popleft()
        return tuple(self._points)
