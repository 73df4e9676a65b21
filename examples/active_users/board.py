"""Who is active, as the application sees it: what both kinds of it write, and the demo shows."""

from __future__ import annotations

import threading
from dataclasses import dataclass


def evicted_at(heard: float, listening_since: float, silence: float) -> float:
    """When a user is evicted who is not heard again. All times in one unit.

    Silence counts only while somebody listens: not while the application was stopped, nor while a
    shard changes hands.
    """
    return max(heard, listening_since) + silence


@dataclass(frozen=True)
class Eviction:
    user: str
    heard: float
    """When the user's last heartbeat arrived; epoch seconds."""


class Board:
    """The board of one run of the application; threads may share it.

    not_before: what arrived earlier (epoch seconds) is of no interest, and is counted as `old`.
    """

    def __init__(self, not_before: float) -> None:
        self.not_before = not_before
        self.heartbeats = 0
        self.old = 0
        self._heard: dict[str, float] = {}
        self._evictions: list[Eviction] = []
        self._lock = threading.Lock()

    def hear(self, user: str, arrived: float) -> None:
        """A heartbeat that arrived at Kinesis then (epoch seconds)."""
        with self._lock:
            self.heartbeats += 1
            self.old += arrived < self.not_before
            # After a reshard, a user's heartbeats come from another shard: not in order with others.
            self._heard[user] = max(arrived, self._heard.get(user, 0.0))

    def evict(self, eviction: Eviction) -> None:
        with self._lock:
            self._heard.pop(eviction.user, None)
            self._evictions.append(eviction)

    @property
    def active(self) -> dict[str, float]:
        """The active users, and when each was heard last."""
        with self._lock:
            return dict(self._heard)

    @property
    def evictions(self) -> list[Eviction]:
        with self._lock:
            return list(self._evictions)
