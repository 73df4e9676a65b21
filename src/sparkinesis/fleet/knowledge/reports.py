"""The reports of a fleet's workers, and the fleet's status that is computed from them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sparkinesis.fleet.channel.messages import Hello, Report
from sparkinesis.fleet.knowledge.roster import Roster
from sparkinesis.fleet.knowledge.series import FleetSeries
from sparkinesis.fleet.knowledge.streams import StreamWatch
from sparkinesis.fleet.knowledge.unread import LastRead, last_reads, lease_of, unread_shards
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

NOTES = 20
"""The most notes that are kept."""
FAILURES = 50
"""The most failures of removed workers that are kept."""
DEPARTED = 20
"""The most departed workers whose figures are kept, in case they reconnect."""
_MISSED = 3
"""Heartbeat intervals after which a worker without a report counts as silent, or half of the time
after which it is lost, if that is longer."""
_LATEST = 0.5
"""The weight of the latest report in a rate."""
NOTHING = Report((), 0)
"""The report of a worker that has not started."""


@dataclass(frozen=True, slots=True)
class WorkerReports:
    """The reports of one worker so far."""

    hello: Hello
    at: float
    """The time of the last report, by the driver's monotonic clock."""
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
class FleetReports:
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
    series: FleetSeries = field(default_factory=FleetSeries)
    lost: frozenset[str] = frozenset()
    """The ids of the workers that were lost, and have not connected again."""
    past_lost: int = 0
    """The number of lost workers that departed earlier."""
    notes: tuple[str, ...] = ()

    def add_hello(self, hello: Hello, now: float) -> FleetReports:
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

    def add_loss(self, worker_id: str) -> FleetReports:
        """Return a copy without the connection to a worker that has not ended."""
        return replace(self, lost=self.lost | {worker_id})

    def add_report(
        self, worker_id: str, report: Report, now: float
    ) -> tuple[FleetReports, list[Failure]]:
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

    def retain(self, worker_ids: Iterable[str]) -> FleetReports:
        """Return a copy in which all other workers have departed, but keep their figures."""
        kept = set(worker_ids)
        leaving = {key: each for key, each in self.workers.items() if key not in kept}
        if not leaving:
            return self
        departed = {**self.departed, **leaving}
        gone = {key: departed.pop(key) for key in list(departed)[:-DEPARTED]}
        forgotten = list(gone.values())
        past = merge([self.past_failures, *(each.failures.values() for each in forgotten)])
        return replace(
            self,
            workers={key: each for key, each in self.workers.items() if key in kept},
            departed=departed,
            past_failures=past[-FAILURES:],
            past_records=self.past_records + sum(each.report.records for each in forgotten),
            lost=self.lost - gone.keys(),
            past_lost=self.past_lost + len(self.lost & gone.keys()),
            streams=self.streams.forget(leaving),
            series=self.series.retain(kept),
        )

    def add_note(self, text: str) -> FleetReports:
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
        options = roster.options
        silent_after = max(_MISSED * options.heartbeat_interval, options.lost_after / 2)
        return {
            key
            for key, each in self.workers.items()
            if now - each.at <= silent_after
            and (member := roster.members.get(key)) is not None
            and member.is_connected
        }

    @property
    def _kept(self) -> list[WorkerReports]:
        return [*self.departed.values(), *self.workers.values()]

    def status(self, application: str, stream: str, roster: Roster, now: float) -> FleetStatus:
        """Compute the fleet's status. ``stream``: the names of the streams, as far as known."""
        workers, read = [], []
        live = self.live(roster, now)
        looks = {key: (self.workers[key].at, self.workers[key].report.unread or {}) for key in live}
        unread = tuple(
            each if each.stream else replace(each, stream=stream)
            for each in unread_shards(looks, self.last_read, now)
        )
        for member in sorted(roster.members.values(), key=lambda m: (m.slot, m.joined)):
            reported = self.workers.get(member.worker_id)
            if reported is None:
                continue
            report = reported.report
            state = member.state if member.is_connected else WorkerState.LOST
            is_live = member.worker_id in live
            mine = [each for each in unread if each.last_worker_id == member.worker_id]
            lags = [
                shard.millis_behind_latest
                for shard in (report.shards if is_live else mine)
                if shard.millis_behind_latest is not None
            ]
            workers.append(
                WorkerStatus(
                    member.worker_id,
                    state,
                    reported.hello.host,
                    reported.hello.pid,
                    len(report.shards),
                    report.records,
                    reported.rate,
                    max(lags, default=None),
                    now - member.heard,
                    report.problem,
                    report.not_live,
                    report.not_ready,
                )
            )
            if is_live:
                read += [_shard(reported, shard) for shard in report.shards]
        shards = tuple(sorted(read, key=lambda shard: (shard.stream, shard.lease)))
        streams = self.streams.streams(shards, unread, now)
        return FleetStatus(
            application,
            name_streams([each.stream for each in streams]) if streams else stream,
            roster.state,
            len(roster.slots),
            tuple(workers),
            shards,
            self.failures,
            self.notes,
            self.records,
            roster.error,
            roster.waiting,
            unread,
            self.past_lost + len(self.lost),
            streams,
        )


def _shard(reported: WorkerReports, shard: ShardStatus) -> FleetShard:
    return FleetShard(
        shard.shard_id,
        reported.hello.worker_id,
        shard.state,
        shard.millis_behind_latest,
        shard.records,
        reported.rates.get(lease_of(shard), 0.0),
        shard.processing_for,
        shard.stream,
        lease_of(shard),
    )
