"""Detects closed shards that do not end: their consumers would wait at the tip for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from sparkinesis.errors import SparkinesisError
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.shared_calls import MIN_INTERVAL, ShardListing
from sparkinesis.stream.reading.shard_end import WARN_AFTER, warn_missing_end

_log = logging.getLogger(__name__)

LOOK_AGAIN = 300.0
"""Seconds between two calls of ListShards while shards are at their tips."""

_NEVER = float("inf")


class ClosedShards:
    """Warns once of each closed shard that stays at its tip. For one thread.

    Kinesis ends closed shards, so with AWS's endpoint nothing is called. Behind an endpoint of the
    user's own there may be another server: ListShards is called, once for all shards.
    """

    def __init__(
        self, client: StreamClient, clock: Callable[[], float], phase: float = 0.0
    ) -> None:
        """``phase``: from 0 to 1; puts off the first call by this part of the pause.

        So the calls for many streams do not come at the same time.
        """
        self._first = WARN_AFTER + phase * LOOK_AGAIN
        self._client = client
        self._clock = clock
        self._listing = ShardListing(client, clock)
        self._looked_at: dict[str, float] = {}
        self._told: set[str] = set()

    def look(self, tips: Mapping[str, float]) -> float:
        """Check the shards that are due; return the seconds until the next check.

        tips: shards whose readers are at the tip, with the time since then (by the clock).
        """
        self._looked_at = {shard: at for shard, at in self._looked_at.items() if shard in tips}
        self._told &= tips.keys()
        if self._client.address.endpoint is None:
            return _NEVER
        due = {shard: self._due(shard, at) for shard, at in tips.items() if shard not in self._told}
        now = self._clock()
        if min(due.values(), default=_NEVER) > now:
            return min(due.values(), default=_NEVER) - now
        try:
            shards = self._listing.listed_since(now - WARN_AFTER / 2)
        except SparkinesisError as error:
            _log.info("Listing shards to find closed ones failed and will be retried: %s", error)
            return WARN_AFTER
        if shards is None:
            return MIN_INTERVAL
        closed = {shard.id for shard in shards if not shard.is_open}
        for shard_id, at in due.items():
            if shard_id not in closed:
                self._looked_at[shard_id] = now
            elif at <= now:
                self._told.add(shard_id)
                warn_missing_end(
                    self._client.address,
                    shard_id,
                    "Its child shards are not read until the server reports its end.",
                )
        return min((self._due(s, tips[s]) for s in due.keys() - self._told), default=_NEVER) - now

    def _due(self, shard_id: str, since: float) -> float:
        looked_at = self._looked_at.get(shard_id)
        return since + self._first if looked_at is None else looked_at + LOOK_AGAIN
