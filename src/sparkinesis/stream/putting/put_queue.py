"""A queue that chooses the entries of each PutRecords call. Pure: callers pass the time.

PutRecords may accept an entry and refuse its neighbour: it guarantees no order, even within a call.
If order matters, a call therefore holds at most one entry of a lane (a partition key, or a shard of
aggregates), and no other entry of the lane is put until that one is accepted.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count

from sparkinesis.stream.put_entry import PutEntry

MAX_ENTRIES = 500
"""The most entries of a PutRecords call."""
MAX_CALL_SIZE = 5 * 1_048_576
"""The most bytes of a call with several entries, keys included.

The service accepts 10 MiB now, and accepted 5 MiB before. Larger calls gain nothing, because a
shard accepts 1 MiB a second. A larger entry is put in a call of its own.
"""


class PutQueue:
    """The entries that wait for a call. Owned by one thread.

    The caller reports the result of each taken entry with `accepted` or `refused`.
    """

    def __init__(self) -> None:
        self._ready: deque[PutEntry] = deque()
        self._later: list[tuple[float, int, Sequence[PutEntry]]] = []
        self._number = count()
        self._behind: dict[str, deque[PutEntry]] = {}
        """The later entries of each lane that has an entry ready, waiting or taken."""
        self._waiting = 0
        self.size = 0
        """The bytes of the entries that are not taken."""

    def __len__(self) -> int:
        """Return the number of entries that are not taken."""
        return self._waiting

    def add(self, entries: Iterable[PutEntry]) -> None:
        for entry in entries:
            self._waiting += 1
            self.size += entry.size
            if entry.lane is None:
                self._ready.append(entry)
            elif entry.lane in self._behind:
                self._behind[entry.lane].append(entry)
            else:
                self._behind[entry.lane] = deque()
                self._ready.append(entry)

    def take(self, now: float) -> list[PutEntry]:
        """Return the entries of the next call, within its limits; empty if none is due."""
        while self._later and self._later[0][0] <= now:
            # Refused entries go to the front, because they have waited longest.
            self._ready.extendleft(reversed(heapq.heappop(self._later)[2]))
        taken: list[PutEntry] = []
        size = 0
        while self._ready and len(taken) < MAX_ENTRIES:
            size += self._ready[0].size
            if taken and size > MAX_CALL_SIZE:
                break
            taken.append(self._ready.popleft())
        self._waiting -= len(taken)
        self.size -= sum(entry.size for entry in taken)
        return taken

    def next_due(self) -> float | None:
        """Return the instant of the next retry; None if no refused entries are waiting."""
        return self._later[0][0] if self._later else None

    def accepted(self, entry: PutEntry) -> None:
        """Record that the service stored a taken entry; this frees the next one of its lane."""
        if entry.lane is None:
            return
        behind = self._behind[entry.lane]
        if behind:
            self._ready.append(behind.popleft())
        else:
            del self._behind[entry.lane]

    def refused(
        self, entries: Sequence[PutEntry], now: float, pause: Callable[[int], float]
    ) -> None:
        """Record that the service refused taken entries of one call; retry them after a pause.

        They wait together, so that they do not become many small calls. ``pause`` returns the
        seconds to wait for a number of earlier refusals: the smallest number of these entries, so
        that an often refused entry does not delay the others.
        """
        delay = pause(min(entry.attempts for entry in entries))
        for entry in entries:
            entry.attempts += 1
            self.size += entry.size
        heapq.heappush(self._later, (now + delay, next(self._number), entries))
        self._waiting += len(entries)

    def take_all(self) -> list[PutEntry]:
        """Empty the queue and return its entries, each lane in order. Only while none is taken."""
        later = chain.from_iterable(entries for _, _, entries in self._later)
        behind = chain.from_iterable(self._behind.values())
        found = list(chain(later, self._ready, behind))
        self._ready.clear()
        self._later.clear()
        self._behind.clear()
        self._waiting = self.size = 0
        return found
