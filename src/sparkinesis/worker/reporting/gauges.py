"""The gauges of a worker: what it holds, how far behind it is, and what it has not checkpointed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from sparkinesis.lease.lease import leases_by_stream
from sparkinesis.lease.rules.audit import audits
from sparkinesis.lease.rules.observations import Snapshot
from sparkinesis.metrics.catalogue import (
    APPLICATION_LAG,
    APPLICATION_PAGE_LAG,
    BYTES_HELD,
    CHECKPOINT_AGE,
    EVENT_LOOP_LAG,
    LAG,
    LEADER,
    LEASES_EXPIRED,
    LEASES_HELD,
    LEASES_TOTAL,
    LEASES_UNREAD,
    PAGE_LAG,
    PAUSED_AGE,
    PROCESSING_FOR,
    STANDING_AGE,
    STREAM_UNREADABLE,
    STREAMS,
    STREAMS_FORMER,
    TABLE_UNSEEN,
    WORKERS,
)
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import Sample
from sparkinesis.status import ShardStatus


class LeaseCounts(msgspec.Struct, frozen=True):
    """The state of the lease table as of one scan, in numbers."""

    total: int
    """The leases of unfinished shards."""
    expired: int
    workers: int
    """The workers that own leases of unfinished shards."""
    is_leader: bool
    """True if this worker leads on one of the streams at least."""


class StreamCounts(msgspec.Struct, frozen=True):
    """The streams of an application of several, in numbers."""

    active: int
    """The streams that the application is to read."""
    former: int
    """The streams that have left it and still have leases."""
    unreadable: Mapping[str, float]
    """The seconds for which a stream cannot be read, by its name."""


class WorkerSnapshot(msgspec.Struct, frozen=True):
    """The present state of a worker, from which its gauges are made."""

    shards: Sequence[ShardStatus]
    bytes_held: int
    leases_held: int
    leases: LeaseCounts | None
    """None before the first scan of the lease table."""
    unread: int | None
    """The number of shards that no live worker reads; None if that is not known now."""
    unseen_for: float = 0.0
    """Seconds since the worker has seen the whole lease table, or since its start."""
    streams: StreamCounts | None = None
    """None for an application of one stream."""
    event_loop_lag: float | None = None
    """The seconds that the event loop takes to answer; None without coroutines."""


class WorkerGauges:
    """Reads the gauges of a worker. A `ReadGauges`."""

    def __init__(
        self,
        worker_id: str,
        snapshot: Callable[[], Snapshot],
        worker: Callable[[LeaseCounts | None], WorkerSnapshot],
    ) -> None:
        self._worker_id = worker_id
        self._snapshot = snapshot
        self._worker = worker
        self._counted: tuple[Snapshot, LeaseCounts | None] | None = None
        """The last snapshot, counted: a large table is not counted for each scrape."""

    def __call__(self) -> list[Sample]:
        seen = self._snapshot()
        counted = self._counted
        if counted is None or counted[0] is not seen:
            counted = self._counted = seen, lease_counts(seen, self._worker_id)
        return samples_of(self._worker(counted[1]))


def lease_counts(seen: Snapshot, worker_id: str) -> LeaseCounts | None:
    """Return the numbers of a snapshot; None if there was no scan yet. Pure."""
    if seen.at is None:
        return None
    unfinished = [lease for lease in seen.leases if not lease.is_finished]
    owners = {lease.actual_owner for lease in unfinished} - {None}
    return LeaseCounts(
        total=len(unfinished),
        expired=sum(lease.key in seen.expired for lease in unfinished),
        workers=len(owners),
        is_leader=worker_id in owners
        and any(audits(worker_id, own, seen) for own in leases_by_stream(unfinished).values()),
    )


def samples_of(worker: WorkerSnapshot) -> list[Sample]:
    """Return the gauges of a worker. Pure."""
    lags = [one.millis_behind_latest for one in worker.shards]
    known = [lag / 1000 for lag in lags if lag is not None]
    pages = [one.page_millis_behind_latest for one in worker.shards]
    values: dict[Metric, float | None] = {
        BYTES_HELD: worker.bytes_held,
        LEASES_HELD: worker.leases_held,
        TABLE_UNSEEN: worker.unseen_for,
        APPLICATION_LAG: max(known, default=None),
        APPLICATION_PAGE_LAG: max((ms / 1000 for ms in pages if ms is not None), default=None),
        LEASES_UNREAD: worker.unread,
        EVENT_LOOP_LAG: worker.event_loop_lag,
    }
    found = list(_shards(worker.shards))
    if (leases := worker.leases) is not None:
        values |= {
            LEASES_TOTAL: leases.total,
            LEASES_EXPIRED: leases.expired,
            WORKERS: leases.workers,
            LEADER: float(leases.is_leader),
        }
    if (streams := worker.streams) is not None:
        values |= {STREAMS: streams.active, STREAMS_FORMER: streams.former}
        found += [
            Sample(STREAM_UNREADABLE, (name,), age) for name, age in streams.unreadable.items()
        ]
    found += [Sample(metric, (), value) for metric, value in values.items() if value is not None]
    return found


def _shards(shards: Sequence[ShardStatus]) -> Iterator[Sample]:
    """Yield the gauges of shards.

    Two streams of an application may have the same name, in two accounts: of two shards with the
    same labels, the worse value counts, so that no series is there twice.
    """
    worst: dict[tuple[Metric, str, str], float] = {}
    for one in shards:
        lag, page_lag = one.millis_behind_latest, one.page_millis_behind_latest
        for metric, value in (
            (LAG, None if lag is None else lag / 1000),
            (PAGE_LAG, None if page_lag is None else page_lag / 1000),
            (STANDING_AGE, one.standing_for),
            (PROCESSING_FOR, one.processing_for or 0.0),
            (CHECKPOINT_AGE, one.checkpoint_age),
            (PAUSED_AGE, one.paused_for),
        ):
            if value is not None:
                key = (metric, one.stream, one.shard_id)
                worst[key] = max(value, worst.get(key, 0.0))
    for (metric, stream, shard_id), value in worst.items():
        yield Sample(metric, (stream, shard_id), value)
