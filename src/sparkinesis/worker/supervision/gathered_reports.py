"""The reports of several workers, and the status of all that is computed from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from sparkinesis.metrics.tally import GatheredSeries
from sparkinesis.status import (
    Failure,
    FleetShard,
    FleetStatus,
    ShardStatus,
    WorkerState,
    WorkerStatus,
)
from sparkinesis.worker.lifecycle.streams.stream_config import name_streams
from sparkinesis.worker.reporting.failures import merge
from sparkinesis.worker.supervision.control_messages import Hello, Report
from sparkinesis.worker.supervision.roster import Roster
from sparkinesis.worker.supervision.unread import (
    LastRead,
    StreamWatch,
    last_reads,
    lease_of,
    unread_shards,
)

NOTES = 20
"""The most notes that are kept."""
FAILURES = 50
"""The most failures of removed workers that are kept."""
DEPARTED = 20
"""The most departed workers whose figures are kept, in case they reconnect."""
_LATEST = 0.5
"""The weight of the latest report in a rate."""
NOTHING = Report((), 0)
"""The report of a worker that has not started."""


@dataclass(frozen=True, slots=True)
class WorkerReports:
    """The reports of one worker so far."""

    hello: Hello
    at: float
    """The time of the last report, by the supervisor's monotonic clock."""
    report: Report = NOTHING
    """The last report."""
    rate: float = 0.0
    """User records a second."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """User records a second, by lease key."""
    failures: Mapping[str, Failure] = field(default_factory=dict)

    def add_report(self, report: Report, now: float) -> WorkerReports:
        """Return a copy with another report added."""
        seconds = now - self.at
        before = {lease_of(shard): shard.records for shard in self.report.shards}

        def rate(old: float, more: int) -> float:
            if seconds <= 0:
                return old
            return (1 - _LATEST) * old + _LATEST * max(0, more) / seconds

        rates = {
            lease: rate(self.rates.get(lease, 0.0), shard.records - before.get(lease, 0))
            for shard in report.shards
            for lease in [lease_of(shard)]
        }
        return replace(
            self,
            at=now,
            report=report,
            rate=rate(self.rate, report.records - self.report.records),
            rates=rates,
            failures={**self.failures, **{each.fingerprint: each for each in report.failures}},
        )


@dataclass(frozen=True, slots=True)
class GatheredReports:
    """The reports of all workers."""

    settled_after: float = 15.0
    """Seconds after which the lease table shows that a worker has died."""
    workers: Mapping[str, WorkerReports] = field(default_factory=dict)
    departed: Mapping[str, WorkerReports] = field(default_factory=dict)
    """The workers that departed last, in that order."""
    past_failures: tuple[Failure, ...] = ()
    """The failures of workers that departed earlier."""
    past_records: int = 0
    last_read: Mapping[str, LastRead] = field(default_factory=dict)
    """The last report on each shard, by lease key, unless its worker has released it since."""
    streams: StreamWatch = field(default_factory=StreamWatch)
    series: GatheredSeries = field(default_factory=GatheredSeries)
    lost: frozenset[str] = frozenset()
    """The ids of the workers that were lost, and have not connected again."""
    past_lost: int = 0
    """The number of lost workers that departed earlier."""
    notes: tuple[str, ...] = ()

    def add_hello(self, hello: Hello, now: float) -> GatheredReports:
        key = hello.worker_id
        known = self.workers.get(key) or self.departed.get(key)
        reported = WorkerReports(hello, now) if known is None else replace(known, hello=hello)
        departed = {other: each for other, each in self.departed.items() if other != key}
        return replace(
            self,
            workers={**self.workers, key: reported},
            departed=departed,
            lost=self.lost - {key},
        )

    def add_loss(self, worker_id: str) -> GatheredReports:
        """Return a copy in which a worker, which has not ended, is lost."""
        return replace(self, lost=self.lost | {worker_id})

    def add_report(
        self, worker_id: str, report: Report, now: float
    ) -> tuple[GatheredReports, list[Failure]]:
        """Return a copy with another report, and its failures that no worker reported before."""
        known = self.workers.get(worker_id)
        if known is None:
            return self, []
        new = list(report.failures)
        if new:  # rare, and collecting the failures of all workers is slow
            seen = {failure.fingerprint for failure in self.failures}
            new = [failure for failure in new if failure.fingerprint not in seen]
        after = replace(
            self,
            workers={**self.workers, worker_id: known.add_report(report, now)},
            last_read=last_reads(self.last_read, worker_id, report, now, self.settled_after),
            streams=self.streams.add_report(worker_id, report.streams, now),
            series=self.series.add(worker_id, report.series),
        )
        return after, new

    def retain(self, worker_ids: Iterable[str]) -> GatheredReports:
        """Return a copy in which all other workers have departed, but keep their figures."""
        kept = set(worker_ids)
        leaving = {key: each for key, each in self.workers.items() if key not in kept}
        if not leaving:
            return self
        departed = {**self.departed, **leaving}
        after = replace(
            self,
            workers={key: each for key, each in self.workers.items() if key in kept},
            departed=departed,
            streams=self.streams.forget(leaving),
            series=self.series.retain(kept),
        )
        return after.forget(list(departed)[:-DEPARTED])

    def forget(self, worker_ids: Iterable[str]) -> GatheredReports:
        """Return a copy in which these workers count in the totals only: they do not come back."""
        gone = set(worker_ids)
        if not gone:
            return self
        known = {**self.departed, **self.workers}
        forgotten = [known[key] for key in known if key in gone]
        past = merge([self.past_failures, *(each.failures.values() for each in forgotten)])
        return replace(
            self,
            workers={key: each for key, each in self.workers.items() if key not in gone},
            departed={key: each for key, each in self.departed.items() if key not in gone},
            past_failures=past[-FAILURES:],
            past_records=self.past_records + sum(each.report.records for each in forgotten),
            lost=self.lost - gone,
            past_lost=self.past_lost + len(self.lost & gone),
            streams=self.streams.forget(gone),
        )

    def add_note(self, text: str) -> GatheredReports:
        return replace(self, notes=(*self.notes, text)[-NOTES:])

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures of all workers, each once."""
        return merge([self.past_failures, *(each.failures.values() for each in self._kept)])

    @property
    def records(self) -> int:
        """User records processed so far, as reported."""
        return self.past_records + sum(each.report.records for each in self._kept)

    def live(self, roster: Roster, now: float) -> set[str]:
        """Return the workers whose last report is recent."""
        silent_after = roster.silent_after
        return {
            one.worker_id
            for one in roster.present()
            if one.state is not WorkerState.LOST
            and (reported := self.workers.get(one.worker_id)) is not None
            and now - reported.at <= silent_after
        }

    @property
    def _kept(self) -> list[WorkerReports]:
        return [*self.departed.values(), *self.workers.values()]

    def status(self, application: str, stream: str, roster: Roster, now: float) -> FleetStatus:
        """Return the status of all. ``stream``: the names of the streams, as far as known."""
        workers, read = [], []
        live = self.live(roster, now)
        scans = {key: (self.workers[key].at, self.workers[key].report.unread or {}) for key in live}
        unread = tuple(
            each if each.stream else msgspec.structs.replace(each, stream=stream)
            for each in unread_shards(scans, self.last_read, now)
        )
        for worker_id, state, heard in roster.present():
            reported = self.workers.get(worker_id)
            if reported is None:
                continue
            report = reported.report
            is_live = worker_id in live
            mine = [each for each in unread if each.last_worker_id == worker_id]
            lags = [
                shard.millis_behind_latest
                for shard in (report.shards if is_live else mine)
                if shard.millis_behind_latest is not None
            ]
            workers.append(
                WorkerStatus(
                    worker_id=worker_id,
                    state=state,
                    host=reported.hello.host,
                    pid=reported.hello.pid,
                    shards=len(report.shards),
                    records=report.records,
                    records_per_second=reported.rate,
                    millis_behind_latest=max(lags, default=None),
                    heard_ago=now - heard,
                    problem=report.problem,
                    not_live=report.not_live,
                    not_ready=report.not_ready,
                )
            )
            if is_live:
                read += [_shard(reported, shard) for shard in report.shards]
        shards = tuple(sorted(read, key=lambda shard: (shard.stream, shard.lease)))
        streams = self.streams.streams(shards, unread, now)
        return FleetStatus(
            application=application,
            stream=name_streams([each.stream for each in streams]) if streams else stream,
            state=roster.state,
            wanted=len(roster.slots),
            workers=tuple(workers),
            shards=shards,
            failures=self.failures,
            notes=self.notes,
            records=self.records,
            error=roster.error,
            waiting=roster.waiting,
            unread=unread,
            lost_workers=self.past_lost + len(self.lost),
            streams=streams,
        )


def _shard(reported: WorkerReports, shard: ShardStatus) -> FleetShard:
    return FleetShard(
        shard_id=shard.shard_id,
        worker_id=reported.hello.worker_id,
        state=shard.state,
        millis_behind_latest=shard.millis_behind_latest,
        records=shard.records,
        records_per_second=reported.rates.get(lease_of(shard), 0.0),
        processing_for=shard.processing_for,
        stream=shard.stream,
        lease=lease_of(shard),
        standing_for=shard.standing_for,
        standing_because=shard.standing_because,
    )
