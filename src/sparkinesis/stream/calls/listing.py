"""One ListShards call for many threads that ask at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.shard import Shard

MIN_INTERVAL = 1.0
"""Seconds between two calls: a reshard may end all shards of a stream in a few seconds."""


class ShardListing:
    """The shards of a stream, listed by one call for all threads that share this object.

    clock: monotonic, in seconds; the instants of the methods are instants of this clock.
    """

    def __init__(self, client: StreamClient, clock: Callable[[], float]) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._shards: Sequence[Shard] = ()
        self._listed_at = float("-inf")
        self._asked_at = float("-inf")

    def listed_since(self, instant: float) -> Sequence[Shard] | None:
        """Return all shards, as listed at ``instant`` or later; None if it is too soon for a call.

        Raises the errors of `StreamClient`.
        """
        with self._lock:
            if self._listed_at >= instant:
                return self._shards
            now = self._clock()
            if now - self._asked_at < MIN_INTERVAL:
                return None
            self._asked_at = now
            self._shards, _ = self._client.list_shards()
            self._listed_at = now
            return self._shards
