"""The gauges of an application by its lease table and streams, for when no worker lives. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkinesis.metrics.catalogue import (
    SHARD_CHECKPOINT_AGE,
    SHARD_LAG,
    SHARD_OWNER,
    SHARD_UNREAD,
)
from sparkinesis.metrics.metrics import Sample
from sparkinesis.monitor.seen import SeenApplication
from sparkinesis.monitor.watched import counted_lag

Checkpoints = Mapping[str, tuple[object, float]]
"""By lease key: a checkpoint, and since when it stands still with records behind it."""


def checkpoints_after(before: Checkpoints, seen: SeenApplication) -> Checkpoints:
    """Return the checkpoints after another look; times are those of the watcher's clock."""
    found: dict[str, tuple[object, float]] = {}
    for one in seen.leases:
        at, key = one.lease.checkpoint, one.lease.key
        is_done = one.lag is not None and one.lag.millis_behind_latest == 0
        if key not in before or before[key][0] != at or is_done:
            found[key] = at, seen.watched.at
        else:
            found[key] = before[key]
    return found


def shard_gauges(
    seen: SeenApplication, checkpoints: Checkpoints, only_stream: str
) -> Iterator[Sample]:
    """Yield the gauges of each unfinished shard. ``only_stream``: that of leases that name none."""
    for one in seen.leases:
        lease = one.lease
        if lease.is_finished:
            continue
        labels = one.stream or only_stream, lease.shard_id
        measured = None if one.lag is None else one.lag.millis_behind_latest
        behind = counted_lag(measured, one.unread_for)
        if behind is not None:
            yield Sample(SHARD_LAG, labels, behind / 1000)
        if lease.actual_owner is not None:
            yield Sample(SHARD_OWNER, (*labels, lease.actual_owner), 1.0)
        yield Sample(SHARD_UNREAD, labels, one.unread_for or 0.0)
        if lease.key in checkpoints:
            yield Sample(SHARD_CHECKPOINT_AGE, labels, seen.watched.at - checkpoints[lease.key][1])
