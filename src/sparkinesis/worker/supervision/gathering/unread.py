"""The shards that no live worker reads, and for how long. Pure.

Two sources say so. A worker that is heard of no longer has read its shards up to its last report.
And each live worker reports which leases have no live owner by the lease table: other owners
count as well. For the first moments after a worker's death, only the supervisor knows of it;
once the table would show an unread shard, the table's word counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparkinesis.lease.lease import parse_lease_key
from sparkinesis.status import ShardStatus, UnreadShard
from sparkinesis.worker.supervision.messages import Report


@dataclass(frozen=True, slots=True)
class LastRead:
    """The last report of a worker that read a shard."""

    worker_id: str
    at: float
    """The time of the report, by the supervisor's monotonic clock."""
    millis_behind_latest: int | None


def last_reads(
    before: Mapping[str, LastRead],
    worker_id: str,
    report: Report,
    now: float,
    settled_after: float,
) -> dict[str, LastRead]:
    """Return the last report on each shard, by lease key, after another report.

    A shard that its worker has released is left out: the lease table knows of it.
    before: the same before it. settled_after: seconds after which the table shows that a worker has
    died.
    """
    listed = {lease_of(shard): shard for shard in report.shards}

    def is_settled(lease: str, last: LastRead) -> bool:
        """Return True if the table shows that the shard is finished, or read by another worker."""
        is_old = now - last.at > settled_after
        return is_old and report.unread is not None and lease not in report.unread

    kept = {
        lease: last
        for lease, last in before.items()
        if (lease in listed or last.worker_id != worker_id) and not is_settled(lease, last)
    }
    read = {
        lease: LastRead(worker_id, now, shard.millis_behind_latest)
        for lease, shard in listed.items()
    }
    return {**kept, **read}


def unread_shards(
    looks: Mapping[str, tuple[float, Mapping[str, float]]],
    last_read: Mapping[str, LastRead],
    now: float,
) -> tuple[UnreadShard, ...]:
    """Return the unread shards, by lease key.

    looks: the unread shards by the last look at the lease table of each worker whose last report is
    recent, and the report's time.
    """
    waits: dict[str, float] = {}
    for at, unread in looks.values():
        for lease, seconds in unread.items():
            waits[lease] = max(waits.get(lease, 0.0), seconds + now - at)
    for lease, last in last_read.items():
        if last.worker_id in looks:
            waits.pop(lease, None)
        else:
            behind = (last.millis_behind_latest or 0) / 1000
            waits[lease] = max(waits.get(lease, 0.0), behind + now - last.at)
    return tuple(
        _unread_shard(lease, last_read.get(lease), round(seconds * 1000))
        for lease, seconds in sorted(waits.items())
    )


def lease_of(shard: ShardStatus) -> str:
    """Return the key of a shard's lease, which tells it from shards of other streams."""
    return shard.lease or shard.shard_id


def _unread_shard(lease: str, last: LastRead | None, millis: int) -> UnreadShard:
    try:
        stream, shard_id = parse_lease_key(lease)
    except ValueError:
        stream, shard_id = None, lease
    last_worker = None if last is None else last.worker_id
    return UnreadShard(shard_id, last_worker, millis, stream.name if stream else "", lease)
