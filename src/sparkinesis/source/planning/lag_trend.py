"""Notices a query that stays behind: whose lag has not become smaller for a while."""

from __future__ import annotations

INTERVAL = 600.0
"""Seconds in which the lag of a query that catches up becomes smaller."""

MIN_LAG_MS = 60_000
"""A lag up to this is that of a query that keeps up."""


class LagTrend:
    """The smallest lag of each interval. Owned by one thread."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._least_ms = 0
        self._before_ms: int | None = None
        self._has_told = False

    def stays_behind(self, now: float, lag_ms: int) -> bool:
        """Note the lag at the end of a batch; return True once if it does not become smaller.

        ``now``: monotonic, in seconds.
        """
        if self._began is None:
            self._began, self._least_ms = now, lag_ms
            return False
        self._least_ms = min(self._least_ms, lag_ms)
        if now - self._began < INTERVAL:
            return False
        before, least = self._before_ms, self._least_ms
        self._began, self._least_ms, self._before_ms = now, lag_ms, least
        is_behind = before is not None and before <= least and least > MIN_LAG_MS
        if not is_behind or self._has_told:
            return False
        self._has_told = True
        return True
