"""The board of active users, which the application writes and the demo shows."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass


def evicted_at(heard: float, listening_since: float, silence: float) -> float:
    """The time at which a user is evicted if no further heartbeat arrives. All times in one unit.

    Silence counts only while the application listens: not while it was stopped, nor while a shard
    moves to another worker.
    """
    return max(heard, listening_since) + silence


def is_old(arrived: float, started: float, silence: float) -> bool:
    """Return True for a heartbeat that arrived too long before the application started."""
    return arrived < started - silence


@dataclass(frozen=True)
class Eviction:
    user: str
    heard: float
    """Arrival time of the last heartbeat that the application knew; epoch seconds."""
    at: float
    """The time of the eviction."""


@dataclass(frozen=True)
class Running:
    """A running application. Both functions raise RuntimeError if the application has failed."""

    check: Callable[[], None]
    stop: Callable[[], None]


class Board:
    """The board of one run of the application; threads may share it.

    silence: the seconds after which a user is evicted. Heartbeats that arrived longer than this
    before the run began are useless, and are counted as `old`.
    """

    def __init__(self, silence: float, clock: Callable[[], float] = time.time) -> None:
        self.old = 0
        self._silence = silence
        self._clock = clock
        self.started = clock()
        self._heard: dict[str, float] = {}
        self._heartbeats: Counter[str] = Counter()
        self._evictions: list[Eviction] = []
        self._lock = threading.Lock()

    def hear(self, user: str, arrived: float, stream: str, planned: float = math.inf) -> None:
        """Count a heartbeat that arrived in a stream at ``arrived`` (epoch seconds).

        A user is active by the heartbeats of any stream.

        planned: the time at which its batch was planned. What an earlier run planned and did not
        finish is no delivery of old heartbeats, however long that run's batches took.
        """
        with self._lock:
            self._heartbeats[stream] += 1
            if planned >= self.started:
                self.old += is_old(arrived, self.started, self._silence)
            # Heartbeats of different shards and streams are in no order; a reshard moves users.
            self._heard[user] = max(arrived, self._heard.get(user, 0.0))

    def copy(self, heard: Mapping[str, float], heartbeats: Mapping[str, int], old: int) -> None:
        """Take over state from elsewhere: each active user's last heartbeat, and the counts."""
        with self._lock:
            self._heard = dict(heard)
            self._heartbeats = Counter(heartbeats)
            self.old = old

    def evict(self, user: str, heard: float) -> None:
        with self._lock:
            self._heard.pop(user, None)
            self._evictions.append(Eviction(user, heard, self._clock()))

    @property
    def heartbeats(self) -> Counter[str]:
        """The number of heartbeats, by stream."""
        with self._lock:
            return self._heartbeats.copy()

    @property
    def active(self) -> dict[str, float]:
        """The active users, with the time of each one's last heartbeat."""
        with self._lock:
            return dict(self._heard)

    @property
    def evictions(self) -> list[Eviction]:
        with self._lock:
            return list(self._evictions)
