"""Which entries go into the next PutRecords call: decisions only, on a clock that is passed in.

PutRecords takes an entry and refuses its neighbour: it promises no order, not even inside one
call. Where order matters, a call therefore holds at most one entry of a lane (a partition key, or
a shard of aggregates), and until that one is accepted no other entry of the lane is put.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count

from sparkinesis.stream.put_entry import PutEntry

MAX_ENTRIES = 500
"""Entries of a PutRecords call at most."""
MAX_CALL_SIZE = 5 * 1_048_576
"""Bytes of a call with several entries, keys included.

The service takes 10 MiB today, and took 5 MiB before. More per call gains nothing: a shard takes
1 MiB a second. An entry larger than this goes alone.
"""


class PutQueue:
    """Entries that wait for a call. Owned by one thread.

    An entry taken stays the queue's business until `accepted` or `refused` tells what became of it.
    """

    def __init__(self) -> None:
        self._ready: deque[PutEntry] = deque()
        self._later: list[tuple[float, int, Sequence[PutEntry]]] = []
        self._number = count()
        self._behind: dict[str, deque[PutEntry]] = {}
        """For each lane with an entry ready, waiting or taken: what comes after that entry."""
        self._waiting = 0
        self.size = 0
        """Bytes of the entries that are not taken."""

    def __len__(self) -> int:
        """How many entries are not taken."""
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
        """The entries of the next call, within the limits of one; empty if none may go now."""
        while self._later and self._later[0][0] <= now:
            # In front: they have waited longest.
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
        """When the first refused entries may be put again; None when none are waiting for that."""
        return self._later[0][0] if self._later else None

    def accepted(self, entry: PutEntry) -> None:
        """The service has stored a taken entry: the next one of its lane may go."""
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
        """The service has refused taken entries of one call: they go again after a pause.

        They wait together, so that they do not come back as many small calls. ``pause`` gives the
        seconds to wait by the number of refusals so far, which is the least of theirs: an entry
        that was unlucky does not hold up those beside it.
        """
        delay = pause(min(entry.attempts for entry in entries))
        for entry in entries:
            entry.attempts += 1
            self.size += entry.size
        heapq.heappush(self._later, (now + delay, next(self._number), entries))
        self._waiting += len(entries)

    def take_all(self) -> list[PutEntry]:
        """Empty the queue, for packing anew: each lane in order. Only while none is taken."""
        later = chain.from_iterable(entries for _, _, entries in self._later)
        behind = chain.from_iterable(self._behind.values())
        found = list(chain(later, self._ready, behind))
        self._ready.clear()
        self._later.clear()
        self._behind.clear()
        self._waiting = self.size = 0
        return found
