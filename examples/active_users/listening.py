"""Who fell silent: the rule of both applications of record processors, in one worker or a fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from examples.active_users.board import evicted_at


class Listening:
    """To which shards somebody listens, since when, and how far each was read.

    For one thread. Times are epoch seconds.
    """

    def __init__(self, silence: float, clock: Callable[[], float]) -> None:
        self._silence = silence
        self._clock = clock
        self._since = clock()
        self._read_until: dict[str, float] = {}
        """By shard: nobody is silent because a shard was not read."""

    def begin(self, shard: str) -> None:
        self._since = self._clock()
        self._read_until[shard] = self._since

    def end(self, shard: str) -> None:
        """Its users are heard from another shard soon, or by another worker."""
        self._read_until.pop(shard, None)
        self._since = self._clock()

    def read(self, shard: str, until: float) -> None:
        self._read_until[shard] = until

    def silent(self, heard: Mapping[str, float]) -> list[str]:
        """Those of the users to evict. ``heard``: when each was heard last."""
        if not self._read_until:
            return []
        read_until = min(self._read_until.values())
        return [
            user
            for user, at in heard.items()
            if evicted_at(at, self._since, self._silence) < read_until
        ]
