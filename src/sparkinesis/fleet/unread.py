"""The shards of a fleet that no live worker reads, and for how long. Pure.

Two sources say so. A worker that is heard of no longer has read its shards up to its last report.
And each live worker reports which leases have no live owner by the lease table: owners outside of
the fleet count as well. For the first moments after a worker's death, only the driver knows of it;
once the table would show an unread shard, the table's word counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sparkinesis.fleet.channel.messages import Report
from sparkinesis.fleet.status import UnreadShard

MOST = 200
"""The most unread shards that one report lists."""


def longest(unread: Mapping[str, float] | None) -> dict[str, float] | None:
    """Return the shards that have been unread for longest, at most `MOST`; None for None."""
    if unread is None:
        return None
    return dict(sorted(unread.items(), key=lambda each: (-each[1], each[0]))[:MOST])


@dataclass(frozen=True, slots=True)
class LastRead:
    """The last report of a worker that read a shard."""

    worker_id: str
    at: float
    """The time of the report, by the driver's monotonic clock."""
    millis_behind_latest: int | None


@dataclass(frozen=True, slots=True)
class ShardWatch:
    """What the driver knows of shards that may be unread."""

    settled_after: float = 15.0
    """Seconds after which the lease table shows that a worker has died."""
    last_read: Mapping[str, LastRead] = field(default_factory=lambda: MappingProxyType({}))
    """The last report on each shard, by shard id, unless its worker has released it since."""
    unread: Mapping[str, tuple[float, Mapping[str, float]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The unread shards by each worker's last look at the lease table, and the report's time."""

    def add_report(self, worker_id: str, report: Report, now: float) -> ShardWatch:
        """Return a copy with another report."""
        listed = {shard.shard_id: shard for shard in report.shards}
        kept = {
            shard_id: last
            for shard_id, last in self.last_read.items()
            # If the reporting worker has released a shard, the lease table knows of it.
            if (shard_id in listed or last.worker_id != worker_id)
            and not self._is_settled(shard_id, last, report, now)
        }
        read = {
            shard_id: LastRead(worker_id, now, shard.millis_behind_latest)
            for shard_id, shard in listed.items()
        }
        unread = {key: seen for key, seen in self.unread.items() if key != worker_id}
        if report.unread is not None:
            unread[worker_id] = now, report.unread
        return replace(self, last_read={**kept, **read}, unread=unread)

    def forget(self, worker_ids: Iterable[str]) -> ShardWatch:
        """Return a copy without these workers' looks at the lease table."""
        gone = set(worker_ids)
        kept = {key: seen for key, seen in self.unread.items() if key not in gone}
        return replace(self, unread=kept)

    def _is_settled(self, shard_id: str, last: LastRead, report: Report, now: float) -> bool:
        """Return True if the table shows that the shard is finished, or read by another worker."""
        is_old = now - last.at > self.settled_after
        return is_old and report.unread is not None and shard_id not in report.unread

    def shards(self, live: Iterable[str], now: float) -> tuple[UnreadShard, ...]:
        """Return the unread shards, by shard id. ``live``: workers whose last report is recent."""
        live = set(live)
        waits: dict[str, float] = {}
        for worker_id, (at, unread) in self.unread.items():
            if worker_id in live:
                for shard_id, seconds in unread.items():
                    waits[shard_id] = max(waits.get(shard_id, 0.0), seconds + now - at)
        for shard_id, last in self.last_read.items():
            if last.worker_id in live:
                waits.pop(shard_id, None)
            else:
                behind = (last.millis_behind_latest or 0) / 1000
                waits[shard_id] = max(waits.get(shard_id, 0.0), behind + now - last.at)
        last_workers = {shard_id: last.worker_id for shard_id, last in self.last_read.items()}
        return tuple(
            UnreadShard(shard_id, last_workers.get(shard_id), round(seconds * 1000))
            for shard_id, seconds in sorted(waits.items())
        )
