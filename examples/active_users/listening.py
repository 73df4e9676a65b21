"""The rule that finds silent users, for record processors in one worker or in a fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from examples.active_users.board import evicted_at


class ShardName(NamedTuple):
    """The shard of a stream."""

    stream: str
    id: str


class Listening:
    """The shards that are being read, since when, and how far.

    Not for several threads. Times are epoch seconds.
    """

    def __init__(self, silence: float, clock: Callable[[], float]) -> None:
        self._silence = silence
        self._clock = clock
        self._since = clock()
        self._read_until: dict[ShardName, float] = {}
        """By shard. A user is not silent while a shard is unread."""

    def begin(self, shard: ShardName) -> None:
        self._since = self._clock()
        self._read_until[shard] = self._since

    def end(self, shard: ShardName) -> None:
        """Forget a shard: its users continue in another shard, or at another worker."""
        self._read_until.pop(shard, None)
        self._since = self._clock()

    def read(self, shard: ShardName, until: float) -> None:
        self._read_until[shard] = until

    def silent(self, heard: Mapping[str, float]) -> list[str]:
        """The users to evict. ``heard``: the time of each user's last heartbeat."""
        if not self._read_until:
            return []
        read_until = min(self._read_until.values())
        return [
            user
            for user, at in heard.items()
            if evicted_at(at, self._since, self._silence) < read_until
        ]
