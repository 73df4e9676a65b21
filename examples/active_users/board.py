"""Who is active, as the application sees it: what both kinds of it write, and the demo shows."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


def evicted_at(heard: float, listening_since: float, silence: float) -> float:
    """When a user is evicted who is not heard again. All times in one unit.

    Silence counts only while somebody listens: not while the application was stopped, nor while a
    shard changes hands.
    """
    return max(heard, listening_since) + silence


def is_old(arrived: float, started: float, silence: float) -> bool:
    """Whether a heartbeat had arrived too long before the application started to be of interest."""
    return arrived < started - silence


@dataclass(frozen=True)
class Eviction:
    user: str
    heard: float
    """When the last heartbeat that the application knew of had arrived; epoch seconds."""
    at: float
    """When the user was evicted."""


@dataclass(frozen=True)
class Running:
    """An application that runs; both raise RuntimeError if it has failed."""

    check: Callable[[], None]
    stop: Callable[[], None]


class Board:
    """The board of one run of the application; threads may share it.

    silence: the seconds after which a user is evicted. Heartbeats that had arrived so long before
    the run began are of no interest, and are counted as `old`.
    """

    def __init__(self, silence: float, clock: Callable[[], float] = time.time) -> None:
        self.heartbeats = 0
        self.old = 0
        self._silence = silence
        self._clock = clock
        self.started = clock()
        self._heard: dict[str, float] = {}
        self._evictions: list[Eviction] = []
        self._lock = threading.Lock()

    def hear(self, user: str, arrived: float, planned: float = math.inf) -> None:
        """A heartbeat that arrived at Kinesis then (epoch seconds).

        planned: when it was decided to read it, if that was before this run.
        """
        with self._lock:
            self.heartbeats += 1
            self.old += is_old(arrived, min(planned, self.started), self._silence)
            # Different shards' heartbeats come in no order, and a reshard moves a user.
            self._heard[user] = max(arrived, self._heard.get(user, 0.0))

    def copy(self, heard: Mapping[str, float], heartbeats: int, old: int) -> None:
        """What was heard and counted elsewhere: when each active user was heard last."""
        with self._lock:
            self._heard = dict(heard)
            self.heartbeats = heartbeats
            self.old = old

    def evict(self, user: str, heard: float) -> None:
        with self._lock:
            self._heard.pop(user, None)
            self._evictions.append(Eviction(user, heard, self._clock()))

    @property
    def active(self) -> dict[str, float]:
        """The active users, and when each was heard last."""
        with self._lock:
            return dict(self._heard)

    @property
    def evictions(self) -> list[Eviction]:
        with self._lock:
            return list(self._evictions)
