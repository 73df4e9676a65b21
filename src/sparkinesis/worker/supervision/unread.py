"""The shards that no live worker reads, and the streams that some workers cannot read. Pure.

Two sources name unread shards. A worker that has become silent has read its shards up to its last
report. And each live worker reports which leases have no live owner by the lease table: other
owners count as well. For the first moments after a worker's death, only the supervisor knows of it;
once the table would show an unread shard, the table counts.

A worker reports its streams when one has come, gone, failed or recovered. The supervisor keeps the
last report of each worker: which streams there are, and which workers cannot read them. Shards have
the counts by stream.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparkinesis.lease.lease import parse_lease_key
from sparkinesis.status import FleetShard, FleetStream, ShardStatus, StreamStatus, UnreadShard
from sparkinesis.stream.address import StreamIdentifier
from sparkinesis.worker.supervision.control_messages import Report


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
    scans: Mapping[str, tuple[float, Mapping[str, float]]],
    last_read: Mapping[str, LastRead],
    now: float,
) -> tuple[UnreadShard, ...]:
    """Return the unread shards, by lease key.

    scans: the unread shards by the last scan of the lease table of each worker whose last report is
    recent, and the report's time.
    """
    waits: dict[str, float] = {}
    for at, unread in scans.values():
        for lease, seconds in unread.items():
            waits[lease] = max(waits.get(lease, 0.0), seconds + now - at)
    for lease, last in last_read.items():
        if last.worker_id in scans:
            waits.pop(lease, None)
        else:
            behind = (last.millis_behind_latest or 0) / 1000
            waits[lease] = max(waits.get(lease, 0.0), behind + now - last.at)
    return tuple(
        _unread_shard(lease, last_read.get(lease), round(seconds * 1000))
        for lease, seconds in sorted(waits.items())
    )


def lease_of(shard: ShardStatus) -> str:
    """Return the key of a shard's lease, which distinguishes shards of several streams."""
    return shard.lease or shard.shard_id


def _unread_shard(lease: str, last: LastRead | None, millis: int) -> UnreadShard:
    try:
        stream, shard_id = parse_lease_key(lease)
    except ValueError:
        stream, shard_id = None, lease
    last_worker = None if last is None else last.worker_id
    name = stream.name if stream else ""
    return UnreadShard(shard_id, last_worker, millis, stream=name, lease=lease)


StreamKey = tuple[str, int]
"""A stream's name or ARN as the application gives it, and how many of this name precede it: two
streams of one name may be in two regions."""


@dataclass(frozen=True, slots=True)
class ReportedStream:
    """A stream, by the last reports of all workers."""

    stream: str
    identifiers: tuple[str, ...]
    """The identifiers by which workers know the stream, the newest last: one of them may not have
    noticed yet that the stream was made anew."""
    problem: str | None
    """The reason of the worker that has failed for longest."""
    failing_since: float | None
    """By the supervisor's monotonic clock."""
    failing_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamWatch:
    """The streams, by the last report of each worker."""

    reports: Mapping[str, tuple[float, tuple[StreamStatus, ...]]] = field(default_factory=dict)
    """The last report of each worker, and its time by the supervisor's monotonic clock."""
    known: Mapping[StreamKey, ReportedStream] = field(default_factory=dict)
    """The streams, in the order of the application."""
    failing: Mapping[StreamKey, ReportedStream] = field(default_factory=dict)
    """The streams that became unreadable, as they were then, until a report says that all workers
    can read them."""

    def add_report(
        self, worker_id: str, streams: tuple[StreamStatus, ...] | None, now: float
    ) -> StreamWatch:
        """Return a copy with another report; None: nothing has changed for this worker."""
        if streams is None:
            return self
        watch = self._with({**self.reports, worker_id: (now, streams)})
        failing = {key: one for key, one in watch.known.items() if one.problem is not None}
        before = {key: one for key, one in self.failing.items() if key in failing}
        return replace(watch, failing={**failing, **before})

    def forget(self, worker_ids: Iterable[str]) -> StreamWatch:
        """Return a copy without the reports of these workers."""
        gone = self.reports.keys() & set(worker_ids)
        if not gone:
            return self
        return self._with({key: each for key, each in self.reports.items() if key not in gone})

    def _with(self, reports: Mapping[str, tuple[float, tuple[StreamStatus, ...]]]) -> StreamWatch:
        reported: dict[StreamKey, list[tuple[str, float, StreamStatus]]] = defaultdict(list)
        for worker_id, (at, streams) in reports.items():
            names: Counter[str] = Counter()
            for one in streams:
                reported[one.stream, names[one.stream]].append((worker_id, at, one))
                names[one.stream] += 1
        known = {key: _known(key[0], each) for key, each in reported.items()}
        return replace(self, reports=reports, known=known)

    def news(self, before: StreamWatch) -> tuple[list[ReportedStream], list[ReportedStream]]:
        """Return the streams that have become unreadable, and those that all workers read again."""
        failing = [one for key, one in self.failing.items() if key not in before.failing]
        recovered = before.failing.keys() - self.failing.keys()
        return failing, [one for key, one in self.known.items() if key in recovered]

    def streams(
        self, shards: Sequence[FleetShard], unread: Sequence[UnreadShard], now: float
    ) -> tuple[FleetStream, ...]:
        """Return the streams with the totals of their shards."""
        if not self.known:
            return ()
        read: dict[str, list[FleetShard]] = defaultdict(list)
        left: dict[str, list[UnreadShard]] = defaultdict(list)
        for shard in shards:
            read[shard.lease.rpartition(":")[0]].append(shard)
        for waiting in unread:
            left[waiting.lease.rpartition(":")[0]].append(waiting)
        return tuple(
            _totals(
                one,
                [shard for identifier in one.identifiers for shard in read.get(identifier, ())],
                [shard for identifier in one.identifiers for shard in left.get(identifier, ())],
                now,
            )
            for one in self.known.values()
        )


def _known(stream: str, reported: Sequence[tuple[str, float, StreamStatus]]) -> ReportedStream:
    identifiers = {one.identifier for _, _, one in reported if one.identifier is not None}
    failing = sorted(
        (at - (one.failing_for or 0.0), worker_id, one.problem)
        for worker_id, at, one in reported
        if one.problem is not None
    )
    since, _, problem = failing[0] if failing else (None, "", None)
    return ReportedStream(
        stream,
        tuple(sorted(identifiers, key=_epoch)),
        problem,
        since,
        tuple(worker_id for _, worker_id, _ in failing),
    )


def _epoch(identifier: str) -> tuple[int, str]:
    try:
        return StreamIdentifier.parse(identifier).creation_epoch, identifier
    except ValueError:
        return 0, identifier


def _totals(
    one: ReportedStream, shards: Sequence[FleetShard], unread: Sequence[UnreadShard], now: float
) -> FleetStream:
    lags = [s.millis_behind_latest for s in shards if s.millis_behind_latest is not None]
    lags += [shard.millis_behind_latest for shard in unread]
    return FleetStream(
        stream=one.stream,
        identifier=one.identifiers[-1] if one.identifiers else None,
        shards=len({shard.lease for shard in shards}),
        unread=len(unread),
        records_per_second=sum(shard.records_per_second for shard in shards),
        millis_behind_latest=max(lags, default=None),
        problem=one.problem,
        failing_for=None if one.failing_since is None else now - one.failing_since,
        failing_on=one.failing_on,
    )
