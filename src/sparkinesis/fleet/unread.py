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
from sparkinesis.lease.lease import parse_lease_key
from sparkinesis.status import ShardStatus, UnreadShard

MOST = 200
"""The most unread shards that one report lists."""


def longest(unread: Mapping[str, float] | None) -> dict[str, float] | None:
    """Return the shards that have been unread for longest, at most `MOST`, by lease key.

    None for None.
    """
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
    """The last report on each shard, by lease key, unless its worker has released it since."""
    unread: Mapping[str, tuple[float, Mapping[str, float]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """The unread shards, by lease key, by each worker's last look at the lease table, and the
    report's time."""

    def add_report(self, worker_id: str, report: Report, now: float) -> ShardWatch:
        """Return a copy with another report."""
        listed = {lease_of(shard): shard for shard in report.shards}
        kept = {
            lease: last
            for lease, last in self.last_read.items()
            # If the reporting worker has released a shard, the lease table knows of it.
            if (lease in listed or last.worker_id != worker_id)
            and not self._is_settled(lease, last, report, now)
        }
        read = {
            lease: LastRead(worker_id, now, shard.millis_behind_latest)
            for lease, shard in listed.items()
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

    def _is_settled(self, lease: str, last: LastRead, report: Report, now: float) -> bool:
        """Return True if the table shows that the shard is finished, or read by another worker."""
        is_old = now - last.at > self.settled_after
        return is_old and report.unread is not None and lease not in report.unread

    def shards(self, live: Iterable[str], now: float) -> tuple[UnreadShard, ...]:
        """Return the unread shards, by lease key. ``live``: workers whose last report is recent."""
        live = set(live)
        waits: dict[str, float] = {}
        for worker_id, (at, unread) in self.unread.items():
            if worker_id in live:
                for lease, seconds in unread.items():
                    waits[lease] = max(waits.get(lease, 0.0), seconds + now - at)
        for lease, last in self.last_read.items():
            if last.worker_id in live:
                waits.pop(lease, None)
            else:
                behind = (last.millis_behind_latest or 0) / 1000
                waits[lease] = max(waits.get(lease, 0.0), behind + now - last.at)
        last_workers = {lease: last.worker_id for lease, last in self.last_read.items()}
        return tuple(
            _unread_shard(lease, last_workers.get(lease), round(seconds * 1000))
            for lease, seconds in sorted(waits.items())
        )


def lease_of(shard: ShardStatus) -> str:
    """Return the key of a shard's lease, which tells it from shards of other streams."""
    return shard.lease or shard.shard_id


def _unread_shard(lease: str, last_worker: str | None, millis: int) -> UnreadShard:
    try:
        stream, shard_id = parse_lease_key(lease)
    except ValueError:
        stream, shard_id = None, lease
    return UnreadShard(shard_id, last_worker, millis, stream.name if stream else "", lease)
