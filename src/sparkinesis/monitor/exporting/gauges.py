"""The gauges of an application by its lease table and streams, for when no worker lives. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sparkinesis.metrics.catalogue import (
    SHARD_CHECKPOINT_AGE,
    SHARD_LAG,
    SHARD_OWNER,
    SHARD_UNREAD,
)
from sparkinesis.metrics.metrics import Sample
from sparkinesis.monitor.lags import Lag
from sparkinesis.monitor.streams import shown_names
from sparkinesis.monitor.watched import WatchedTable, counted_lag


@dataclass(frozen=True, slots=True)
class CheckpointWatch:
    """Since when each checkpoint stands still although there are records behind it."""

    since: Mapping[str, tuple[object, float]] = field(default_factory=lambda: MappingProxyType({}))
    """The checkpoint, and the time by the watcher's clock, by lease key."""

    def after_look(self, watched: WatchedTable, lags: Mapping[str, Lag]) -> CheckpointWatch:
        """Return the watch after another scan of the table."""
        since = {}
        for lease in watched.leases:
            before = self.since.get(lease.key)
            lag = lags.get(lease.key)
            is_done = lag is not None and lag.millis_behind_latest == 0
            if before is None or before[0] != lease.checkpoint or is_done:
                before = lease.checkpoint, watched.at
            since[lease.key] = before
        return CheckpointWatch(since)


def shard_gauges(
    watched: WatchedTable,
    lags: Mapping[str, Lag],
    checkpoints: CheckpointWatch,
    unread: Mapping[str, float],
    only_stream: str,
) -> Iterator[Sample]:
    """Yield the gauges of each unfinished shard.

    unread: for how many seconds no live worker has read a shard, by lease key. only_stream: the
    stream of leases that name none.
    """
    names = shown_names(watched.streams)
    for lease in watched.leases:
        if lease.is_finished:
            continue
        key = lease.key
        labels = (names[lease.stream] if lease.stream else only_stream, lease.shard_id)
        lag = lags.get(key)
        measured = None if lag is None else lag.millis_behind_latest
        behind = counted_lag(measured, unread.get(key))
        if behind is not None:
            yield Sample(SHARD_LAG, labels, behind / 1000)
        if lease.actual_owner is not None:
            yield Sample(SHARD_OWNER, (*labels, lease.actual_owner), 1.0)
        yield Sample(SHARD_UNREAD, labels, unread.get(key, 0.0))
        if key in checkpoints.since:
            yield Sample(SHARD_CHECKPOINT_AGE, labels, watched.at - checkpoints.since[key][1])
