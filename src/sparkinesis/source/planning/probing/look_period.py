"""The time between two looks at a stream's shards. Pure."""

from __future__ import annotations

import math

IDLE = 1.0
"""Seconds between two looks while no record arrives, or calls are throttled."""

BUSY = 0.4
"""Seconds between two looks while records arrive: half of the calls that a shard accepts."""

BUSY_FOR = 5.0
"""Seconds after the last record in which looks are that frequent."""

MOST_SHARDS = 100
"""The most shards that are looked at that frequently: each look costs the driver 0.2 ms of CPU."""

THROTTLED_FOR = 60.0
"""Seconds after a throttled call in which they are not: other consumers need the shard's calls."""


class LookPeriod:
    """The time between two looks: the user's choice, or one that follows the records.

    ``chosen``: seconds; None: `BUSY` while records arrive, else `IDLE`.
    """

    def __init__(self, chosen: float | None) -> None:
        self.idle = IDLE if chosen is None else chosen
        """Seconds between two looks while no record arrives."""
        self._busy = BUSY if chosen is None else chosen
        self._rows_at = -math.inf
        self._throttled = 0
        self._throttled_at = -math.inf

    def note_rows(self, at: float, shards: int) -> None:
        """Note that a look at so many shards, at this time, has found records."""
        if shards <= MOST_SHARDS:
            self._rows_at = at

    def seconds(self, now: float, throttled: int) -> float:
        """Return the seconds to the next look.

        ``throttled``: the number of calls that Kinesis has throttled so far.
        """
        if throttled > self._throttled:
            self._throttled, self._throttled_at = throttled, now
        is_busy = now - self._rows_at <= BUSY_FOR and now - self._throttled_at > THROTTLED_FOR
        return self._busy if is_busy else self.idle
