"""Closed shards that do not end: their consumers would wait at the tip for ever."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from sparkinesis.errors import SparkinesisError
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.calls.shared_calls import MIN_INTERVAL, ShardListing
from sparkinesis.stream.reading.shard_end import WARN_AFTER, warn_missing_end

_log = logging.getLogger(__name__)

CHECK_AGAIN = 300.0
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
        self._first = WARN_AFTER + phase * CHECK_AGAIN
        self._client = client
        self._clock = clock
        self._listing = ShardListing(client, clock)
        self._checked_at: dict[str, float] = {}
        self._warned: set[str] = set()

    def check(self, tips: Mapping[str, float]) -> float:
        """Check the shards that are due; return the seconds until the next check.

        tips: shards whose readers are at the tip, with the time since then (by the clock).
        """
        self._checked_at = {shard: at for shard, at in self._checked_at.items() if shard in tips}
        self._warned &= tips.keys()
        if self._client.address.endpoint is None:
            return _NEVER
        due = {
            shard: self._due(shard, at) for shard, at in tips.items() if shard not in self._warned
        }
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
                self._checked_at[shard_id] = now
            elif at <= now:
                self._warned.add(shard_id)
                warn_missing_end(
                    self._client.address,
                    shard_id,
                    "Its child shards are not read until the server reports its end.",
                )
        return min((self._due(s, tips[s]) for s in due.keys() - self._warned), default=_NEVER) - now

    def _due(self, shard_id: str, since: float) -> float:
        checked_at = self._checked_at.get(shard_id)
        return since + self._first if checked_at is None else checked_at + CHECK_AGAIN
