"""The streams of an application, as its workers report them. Pure.

A worker reports its streams when one has come, gone, failed or recovered. The supervisor keeps
the last report of each: which streams there are, and who cannot read which of them. What is counted
by stream comes from the shards.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparkinesis.status import FleetShard, FleetStream, StreamStatus, UnreadShard
from sparkinesis.stream.address import StreamIdentifier

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
    """What the supervisor knows of the streams."""

    reports: Mapping[str, tuple[float, tuple[StreamStatus, ...]]] = field(default_factory=dict)
    """The last report of each worker, and its time by the supervisor's monotonic clock."""
    known: Mapping[StreamKey, ReportedStream] = field(default_factory=dict)
    """The streams, in the order of the application."""
    failing: Mapping[StreamKey, ReportedStream] = field(default_factory=dict)
    """The streams that became unreadable, and of which no report has said since that all workers
    can read them; as they were then."""

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
        told: dict[StreamKey, list[tuple[str, float, StreamStatus]]] = defaultdict(list)
        for worker_id, (at, streams) in reports.items():
            names: Counter[str] = Counter()
            for one in streams:
                told[one.stream, names[one.stream]].append((worker_id, at, one))
                names[one.stream] += 1
        known = {key: _known(key[0], each) for key, each in told.items()}
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


def _known(stream: str, told: Sequence[tuple[str, float, StreamStatus]]) -> ReportedStream:
    identifiers = {one.identifier for _, _, one in told if one.identifier is not None}
    failing = sorted(
        (at - (one.failing_for or 0.0), worker_id, one.problem)
        for worker_id, at, one in told
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
        one.stream,
        one.identifiers[-1] if one.identifiers else None,
        len({shard.lease for shard in shards}),
        len(unread),
        sum(shard.records_per_second for shard in shards),
        max(lags, default=None),
        one.problem,
        None if one.failing_since is None else now - one.failing_since,
        one.failing_on,
    )
