"""What workers of a fleet have reported, and the status that comes of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sparkinesis.fleet.channel.messages import Hello, Report
from sparkinesis.fleet.roster import Roster
from sparkinesis.fleet.status import FleetShard, FleetStatus, WorkerState, WorkerStatus
from sparkinesis.worker.reporting.failures import merge
from sparkinesis.worker.status import Failure, ShardStatus

NOTES = 20
"""Notes that are kept."""
FAILURES = 50
GONE = 20
"""Workers whose figures can be told from others', should they come back after all."""
_LATEST = 0.5
"""The weight of the latest report in a rate."""


@dataclass(frozen=True, slots=True)
class WorkerReports:
    """What one worker has told so far."""

    hello: Hello
    at: float
    """When its last report came; the driver's monotonic clock."""
    shards: tuple[ShardStatus, ...] = ()
    records: int = 0
    rate: float = 0.0
    """User records a second."""
    rates: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The same by shard."""
    failures: Mapping[str, Failure] = field(default_factory=lambda: MappingProxyType({}))

    def add_report(self, report: Report, now: float) -> WorkerReports:
        """With another report."""
        seconds = now - self.at
        before = {shard.shard_id: shard.records for shard in self.shards}

        def rate(old: float, more: int) -> float:
            if seconds <= 0:
                return old
            return (1 - _LATEST) * old + _LATEST * max(0, more) / seconds

        rates = {
            shard.shard_id: rate(
                self.rates.get(shard.shard_id, 0.0),
                shard.records - before.get(shard.shard_id, 0),
            )
            for shard in report.shards
        }
        return replace(
            self,
            at=now,
            shards=report.shards,
            records=report.records,
            rate=rate(self.rate, report.records - self.records),
            rates=rates,
            failures={**self.failures, **{each.fingerprint: each for each in report.failures}},
        )


@dataclass(frozen=True, slots=True)
class FleetReports:
    """All that workers have reported."""

    workers: Mapping[str, WorkerReports] = field(default_factory=lambda: MappingProxyType({}))
    gone: Mapping[str, WorkerReports] = field(default_factory=lambda: MappingProxyType({}))
    """The last workers that went, in that order."""
    past_failures: tuple[Failure, ...] = ()
    """Of those that went before."""
    past_records: int = 0
    notes: tuple[str, ...] = ()

    def add_hello(self, hello: Hello, now: float) -> FleetReports:
        key = hello.worker_id
        known = self.workers.get(key) or self.gone.get(key)
        reported = WorkerReports(hello, now) if known is None else replace(known, hello=hello)
        gone = {other: each for other, each in self.gone.items() if other != key}
        return replace(self, workers={**self.workers, key: reported}, gone=gone)

    def add_report(
        self, worker_id: str, report: Report, now: float
    ) -> tuple[FleetReports, list[Failure]]:
        """With another report; and the failures that no worker has met before."""
        known = self.workers.get(worker_id)
        if known is None:
            return self, []
        new = list(report.failures)
        if new:  # in most reports there are none, and all workers' are many
            seen = {failure.fingerprint for failure in self.failures}
            new = [failure for failure in new if failure.fingerprint not in seen]
        workers = {**self.workers, worker_id: known.add_report(report, now)}
        return replace(self, workers=workers), new

    def retain(self, worker_ids: Iterable[str]) -> FleetReports:
        """Without workers that are gone, but for their failures and figures."""
        kept = set(worker_ids)
        went = {key: each for key, each in self.workers.items() if key not in kept}
        if not went:
            return self
        gone = {**self.gone, **went}
        long_gone = [gone.pop(key) for key in list(gone)[:-GONE]]
        past = merge([self.past_failures, *(each.failures.values() for each in long_gone)])
        return replace(
            self,
            workers={key: each for key, each in self.workers.items() if key in kept},
            gone=gone,
            past_failures=past[-FAILURES:],
            past_records=self.past_records + sum(each.records for each in long_gone),
        )

    def add_note(self, text: str) -> FleetReports:
        return replace(self, notes=(*self.notes, text)[-NOTES:])

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Of all workers, each once."""
        return merge([self.past_failures, *(each.failures.values() for each in self._told)])

    @property
    def records(self) -> int:
        """User records processed so far, as far as was told."""
        return self.past_records + sum(each.records for each in self._told)

    @property
    def _told(self) -> list[WorkerReports]:
        return [*self.gone.values(), *self.workers.values()]

    def status(self, application: str, stream: str, roster: Roster, now: float) -> FleetStatus:
        """The fleet's status."""
        workers, shards = [], []
        for member in sorted(roster.members.values(), key=lambda m: (m.slot, m.joined)):
            reported = self.workers.get(member.worker_id)
            if reported is None:
                continue
            state = member.state if member.is_connected else WorkerState.LOST
            lags = [
                shard.millis_behind_latest
                for shard in reported.shards
                if shard.millis_behind_latest is not None
            ]
            workers.append(
                WorkerStatus(
                    member.worker_id,
                    state,
                    reported.hello.host,
                    reported.hello.pid,
                    len(reported.shards),
                    reported.records,
                    reported.rate,
                    max(lags, default=None),
                    now - member.heard,
                )
            )
            if state is not WorkerState.LOST:
                shards += [_shard(reported, shard) for shard in reported.shards]
        return FleetStatus(
            application,
            stream,
            roster.state,
            len(roster.slots),
            tuple(workers),
            tuple(sorted(shards, key=lambda shard: shard.shard_id)),
            self.failures,
            self.notes,
            self.records,
            roster.error,
        )


def _shard(reported: WorkerReports, shard: ShardStatus) -> FleetShard:
    return FleetShard(
        shard.shard_id,
        reported.hello.worker_id,
        shard.state,
        shard.millis_behind_latest,
        shard.records,
        reported.rates.get(shard.shard_id, 0.0),
        shard.processing_for,
    )
