"""Connections to a fleet's driver that have not authenticated yet, and their eviction.

Each costs a socket, and a thread once it has sent data. Their number is limited; beyond the limit,
a new connection evicts the one that has been silent for longest. So other clients cannot keep
workers out, whatever their addresses: a worker sends its first bytes at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MAX_PENDING = 128
MAX_PER_ADDRESS = 64
"""Pending connections per address; many workers may share one address."""
SILENCE_TIMEOUT = 3.0
"""Seconds within which a connection has to send its first bytes."""

_C = TypeVar("_C")


@dataclass(eq=False, slots=True)
class PendingConnection(Generic[_C]):
    """A connection that has not authenticated yet."""

    connection: _C
    address: str
    since: float
    """The time at which the connection was accepted, in seconds."""
    has_spoken: bool = False


def connection_to_evict(
    pending: Iterable[PendingConnection[_C]],
    newest: PendingConnection[_C],
    *,
    limit: int = MAX_PENDING,
    per_address: int = MAX_PER_ADDRESS,
) -> PendingConnection[_C] | None:
    """Return the connection to close in favour of the newest, if there are too many. Pure.

    If the newest's address has too many, the choice is among that address, else among all. The
    choice is the oldest silent connection, or, if none is silent, the oldest one that has sent
    data.
    """
    others = [each for each in pending if each is not newest]
    neighbours = [each for each in others if each.address == newest.address]
    if len(neighbours) >= per_address:
        others = neighbours
    elif len(others) < limit:
        return None
    return min(others, key=lambda each: (each.has_spoken, each.since), default=None)


@dataclass(slots=True)
class PendingConnections(Generic[_C]):
    """The pending connections. Safe to use from any thread."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[int, PendingConnection[_C]] = field(default_factory=dict)
    """Connections by id(), oldest first."""

    def __len__(self) -> int:
        return len(self._known)

    def add(self, newest: PendingConnection[_C]) -> PendingConnection[_C] | None:
        """Add a connection; return the one that is evicted for it, if any."""
        with self._lock:
            gone = connection_to_evict(self._known.values(), newest)
            if gone is not None:
                del self._known[id(gone)]
            self._known[id(newest)] = newest
        return gone

    def remove(self, stranger: PendingConnection[_C]) -> None:
        """Remove a connection that has authenticated or ended, if it is there."""
        with self._lock:
            self._known.pop(id(stranger), None)

    def clear(self) -> list[PendingConnection[_C]]:
        """Remove and return all connections."""
        with self._lock:
            found = list(self._known.values())
            self._known.clear()
        return found

    def overdue(self, now: float) -> list[PendingConnection[_C]]:
        """Return the connections that have been silent for too long."""
        with self._lock:
            silent = [each for each in self._known.values() if not each.has_spoken]
        return [each for each in silent if now - each.since >= SILENCE_TIMEOUT]

    def time_left(self, now: float) -> float | None:
        """Return the seconds until the next connection is overdue; None if none is silent."""
        with self._lock:
            begun = [each.since for each in self._known.values() if not each.has_spoken]
        return max(0.0, min(begun) + SILENCE_TIMEOUT - now) if begun else None
