"""The users: each present user sends a heartbeat every minute; and heartbeats of 23 past hours.

A user has a browser, a phone, or both. Who has both uses them by turns, and so is silent for two
minutes in each of the two streams, but not in both together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from examples.active_users.board import Eviction
from examples.flights.shards import split_one
from sparkinesis.local import system_clock

HOURS = 23
"""Hours of past heartbeats; the stream keeps records for 24 hours."""
AT_A_TIME = 500
"""Records of one PutRecords call; Kinesis allows no more."""
SLOTS = 10
"""Parts of a minute. Each user has one of them."""


WEB, MOBILE = "heartbeats-web", "heartbeats-mobile"
STREAMS = (WEB, MOBILE)


def stream_of(user: str, minute: int) -> str:
    """The stream of a user's heartbeat in a minute, counted from any start."""
    return (WEB, MOBILE, STREAMS[minute % 2])[sum(user.encode()) % 3]


class Sent(NamedTuple):
    """The two moments between which a heartbeat arrived; epoch milliseconds."""

    before: int
    after: int


def was_silent(sent: Iterable[Sent], eviction: Eviction, silence: float) -> bool:
    """Return True if a user sent nothing for ``silence`` seconds between the last known heartbeat
    and the eviction.
    """
    since, at = round(eviction.heard * 1000), round(eviction.at * 1000)
    unheard = [beat for beat in sent if since < beat.before and beat.after < at]
    for before, after in [*unheard, Sent(at, at)]:
        if after - since >= silence * 1000:
            return True
        since = before
    return False


class PastClock:
    """A clock in milliseconds for the local Kinesis, with which records arrive hours ago."""

    def __init__(self) -> None:
        self.hours_ago = 0

    def __call__(self) -> int:
        return system_clock() - self.hours_ago * 3_600_000


def put_past(kinesis: Any, clock: PastClock, an_hour: int) -> int:
    """Put heartbeats of users who left long ago, before and after reshards; return the count."""
    users = [f"gone-{n:04}" for n in range(an_hour)]
    for hour in range(HOURS, 0, -1):
        clock.hours_ago = hour
        for stream in STREAMS:
            if hour == HOURS // 2:
                split_one(kinesis, stream)
            put(kinesis, stream, [user for user in users if stream_of(user, hour) == stream])
    clock.hours_ago = 0
    return HOURS * an_hour


def put(kinesis: Any, stream: str, users: Sequence[str]) -> None:
    """Put a heartbeat of each user. Refused records are put again."""
    waiting = [{"PartitionKey": user, "Data": b"heartbeat"} for user in users]
    while waiting:
        sent, rest = waiting[:AT_A_TIME], waiting[AT_A_TIME:]
        results = kinesis.put_records(StreamName=stream, Records=sent)["Records"]
        refused = [r for r, done in zip(sent, results, strict=True) if "ErrorCode" in done]
        waiting = refused + rest
        if refused:
            time.sleep(0.1)


class Crowd(threading.Thread):
    """The present users, and a record of every heartbeat that they sent."""

    def __init__(self, kinesis: Any, minute: float) -> None:
        super().__init__(name="users", daemon=True)
        self.failure: Exception | None = None
        self._kinesis = kinesis
        self._minute = minute
        self._lock = threading.Lock()
        self._beating: frozenset[str] = frozenset()
        self._sent: dict[str, list[Sent]] = {}
        self._stopping = threading.Event()

    @property
    def beating(self) -> frozenset[str]:
        """The present users."""
        return self._beating

    def come(self, users: Iterable[str]) -> None:
        self._beating |= frozenset(users)

    def go(self, users: Iterable[str]) -> None:
        self._beating -= frozenset(users)

    def sent_by(self, user: str) -> list[Sent]:
        with self._lock:
            return list(self._sent.get(user, ()))

    def stop(self) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        due, beat = time.monotonic(), 0
        try:
            while not self._stopping.wait(max(0.0, due - time.monotonic())):
                minute, slot = divmod(beat, SLOTS)
                users = [
                    user for user in sorted(self._beating) if sum(user.encode()) % SLOTS == slot
                ]
                before = system_clock()
                for stream in STREAMS:
                    put(self._kinesis, stream, [u for u in users if stream_of(u, minute) == stream])
                with self._lock:
                    for user in users:
                        self._sent.setdefault(user, []).append(Sent(before, system_clock()))
                due, beat = due + self._minute / SLOTS, beat + 1
        except Exception as error:  # noqa: BLE001 - the demo raises it
            self.failure = error
