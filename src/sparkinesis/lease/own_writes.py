"""The counters that a worker has tried to write, to tell its own late writes from another's."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable

from sparkinesis.lease.lease import Lease
from sparkinesis.lease.table.requests import Update


class OwnWrites:
    """The highest counter that this worker has tried to write to each lease. For any thread.

    A write without an answer may take effect at any time later, and a write whose answer came late
    may belong to a lease that has expired by then. Each of them leaves the counter that it was sent
    with, or is refused. So a counter above all of these was written by another process.

    If a row is deleted and made again within one scan interval, the counters begin anew, and
    another process is noticed only when it has passed the old ones.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._highest: dict[str, int] = {}

    def note(self, updates: Iterable[Update]) -> None:
        """Note writes that raise the counter. Call this before the writes are sent."""
        with self._lock:
            for update in updates:
                known = self._highest.get(update.key, update.after.counter)
                self._highest[update.key] = max(known, update.after.counter)

    def keep(self, keys: Collection[str]) -> None:
        """Forget all leases but those of these keys."""
        with self._lock:
            self._highest = {key: n for key, n in self._highest.items() if key in keys}

    def may_have_made(self, row: Lease) -> bool:
        """Return True if a write of this worker may have left the row's counter."""
        with self._lock:
            highest = self._highest.get(row.key)
        return highest is not None and row.counter <= highest
