"""Connections to a fleet's driver that have proved nothing yet, and which of them have to go.

A stranger costs a connection, and a thread once it has said something. There is room for so many;
who connects when there is none takes the place of the one that has been silent for longest. So
strangers cannot keep workers out, from whatever address either come: a worker speaks at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

MAX_PENDING = 128
MAX_PER_ADDRESS = 64
"""Of one address; many workers may have the same."""
SILENCE_TIMEOUT = 3.0
"""Seconds within which a stranger has to say something."""

_C = TypeVar("_C")


@dataclass(eq=False, slots=True)
class PendingConnection(Generic[_C]):
    """A connection, and where it comes from."""

    connection: _C
    address: str
    since: float
    """When it was accepted, in seconds."""
    has_spoken: bool = False


def connection_to_evict(
    strangers: Iterable[PendingConnection[_C]],
    newest: PendingConnection[_C],
    *,
    limit: int = MAX_PENDING,
    per_address: int = MAX_PER_ADDRESS,
) -> PendingConnection[_C] | None:
    """The one that has to go for the newest to stay, if there are too many. Pure.

    One of the newest's own address, if there are too many of that; else of any. Of those the one
    that has been silent for longest, and only if there is none, the oldest that has spoken.
    """
    others = [each for each in strangers if each is not newest]
    neighbours = [each for each in others if each.address == newest.address]
    if len(neighbours) >= per_address:
        others = neighbours
    elif len(others) < limit:
        return None
    return min(others, key=lambda each: (each.has_spoken, each.since), default=None)


@dataclass(slots=True)
class PendingConnections(Generic[_C]):
    """Those that are there. For any thread."""

    limit: int = MAX_PENDING
    per_address: int = MAX_PER_ADDRESS
    silence: float = SILENCE_TIMEOUT
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _known: dict[int, PendingConnection[_C]] = field(default_factory=dict)
    """By identity, in the order in which they came."""

    def __len__(self) -> int:
        return len(self._known)

    def add(self, newest: PendingConnection[_C]) -> PendingConnection[_C] | None:
        """Another one; returns the one that has to go for it, if one has to."""
        with self._lock:
            gone = connection_to_evict(
                self._known.values(), newest, limit=self.limit, per_address=self.per_address
            )
            if gone is not None:
                del self._known[id(gone)]
            self._known[id(newest)] = newest
        return gone

    def mark_spoken(self, stranger: PendingConnection[_C]) -> None:
        stranger.has_spoken = True

    def remove(self, stranger: PendingConnection[_C]) -> bool:
        """It has proved itself, or is gone. Whether it was still among them."""
        with self._lock:
            return self._known.pop(id(stranger), None) is not None

    def clear(self) -> list[PendingConnection[_C]]:
        """All of them, which are gone with it."""
        with self._lock:
            found = list(self._known.values())
            self._known.clear()
        return found

    def overdue(self, now: float) -> list[PendingConnection[_C]]:
        """Those that have to go, for they never said anything."""
        with self._lock:
            silent = [each for each in self._known.values() if not each.has_spoken]
        return [each for each in silent if now - each.since >= self.silence]

    def time_left(self, now: float) -> float | None:
        """Seconds until the next silent one has to go; None: there is none."""
        with self._lock:
            begun = [each.since for each in self._known.values() if not each.has_spoken]
        return max(0.0, min(begun) + self.silence - now) if begun else None
