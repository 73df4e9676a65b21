"""`SupervisorState`: the knowledge of a supervisor, and what each event changes in it. Pure.

The texts of notes, which are logged and are `FleetStatus.notes`, are at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparkinesis.errors import listed
from sparkinesis.status import FleetState, FleetStatus, ShardStatus, WorkerState
from sparkinesis.worker.supervision.control_messages import (
    Disconnected,
    Ended,
    Hello,
    Leaving,
    Raised,
    Report,
    ToSupervisor,
)
from sparkinesis.worker.supervision.gathered_reports import GatheredReports, WorkerReports
from sparkinesis.worker.supervision.reconciling import Action, Restarts, reconcile
from sparkinesis.worker.supervision.roster import Roster, Slot
from sparkinesis.worker.supervision.supervised import Supervised
from sparkinesis.worker.supervision.unread import ReportedStream

_LONG_WAIT = 10.0
"""Seconds that a task may wait for Spark before a note says so."""


@dataclass(frozen=True, slots=True)
class SupervisorState:
    """What a supervisor knows at one moment. Each event returns the state after it."""

    title: str
    """The name of the workers together, for the log."""
    supervised: Supervised[Any]
    """The application, which stays as it is."""
    shutdown_within: float
    """Seconds that the workers have for a shutdown."""
    roster: Roster
    reports: GatheredReports
    restarts: Restarts = field(default_factory=Restarts)
    are_all_graceful: bool = True
    """True while every worker that ended did so gracefully."""
    abandon_at: float | None = None
    """The time at which a shutdown cancels the remaining jobs."""
    noted_waiting: int = 0
    """The number of waiting workers in the last note about them."""
    unlogged: tuple[tuple[int, str], ...] = ()
    """The lines that the supervisor has not logged yet, each with its level."""

    def status(self, now: float) -> FleetStatus:
        """Return the fleet's status."""
        return self.reports.status(self.supervised.name, self.supervised.reads, self.roster, now)

    def note(self, text: str, level: int = logging.WARNING) -> SupervisorState:
        """Return a copy with another note, which is listed in the status and logged."""
        noted = replace(self, reports=self.reports.add_note(text))
        return noted._log(f"{self.title}: {text}", level)

    def _log(self, line: str, level: int) -> SupervisorState:
        return replace(self, unlogged=(*self.unlogged, (level, line)))

    # --- messages of workers

    def received(
        self, worker_id: str, message: ToSupervisor | Disconnected, now: float
    ) -> SupervisorState:
        """A worker has sent a message, or its connection was closed."""
        match message:
            case Hello():
                return self._joined(message, now)
            case Report():
                return self._reported(worker_id, message, now)
            case Leaving():
                roster = self.roster.leaving(worker_id, is_for_all=message.is_for_all)
                noted = self.note(f"Worker {worker_id} is shutting down: {message.why}")
                return replace(noted, roster=roster)
            case Ended():
                return self._ended(worker_id, message, now)
            case Disconnected():
                return self._disconnected(worker_id, now)
            case Raised():
                return self  # for the launcher

    def _joined(self, hello: Hello, now: float) -> SupervisorState:
        state = replace(self, reports=self.reports.add_hello(hello, now))
        if hello.worker_id not in self.roster.members:
            state = state.note(_joined(hello), logging.INFO)
        return replace(state, roster=self.roster.joined(hello, now))

    def _reported(self, worker_id: str, report: Report, now: float) -> SupervisorState:
        reports, failures = self.reports.add_report(worker_id, report, now)
        state = replace(
            self,
            reports=reports,
            roster=self.roster.heard(worker_id, now, is_running=report.is_running),
        )
        failing, recovered = reports.streams.news(self.reports.streams)
        if failing:
            state = state.note(_unreadable(worker_id, failing))
        if recovered:
            state = state.note(_readable(recovered), logging.INFO)
        for failure in failures if self.roster.rules.are_remote else ():
            line = f"{failure.what}, on worker {worker_id}: {failure.error}\n{failure.traceback}"
            state = state._log(line, logging.ERROR)
        return state

    def _ended(self, worker_id: str, message: Ended, now: float) -> SupervisorState:
        roster = self.roster.ended(worker_id, message, now)
        text = _ended(worker_id, message)
        state = self if text is None else self.note(text)
        return replace(
            state,
            are_all_graceful=self.are_all_graceful and message.was_graceful,
            roster=roster,
        )

    def _disconnected(self, worker_id: str, now: float) -> SupervisorState:
        state, member = self, self.roster.members.get(worker_id)
        if member is not None and member.state is not WorkerState.STANDBY:
            last = self.reports.workers[worker_id]
            state = self.note(_lost(last, now, has_shards=self.supervised.has_shards))
            state = replace(state, reports=state.reports.add_loss(worker_id))
        return replace(state, roster=self.roster.disconnected(worker_id, now))

    # --- other events

    def scaled(self, workers: int) -> SupervisorState:
        """Another number of workers is wanted."""
        noted = self.note(f"scaled to {workers} workers", logging.INFO)
        return replace(noted, roster=self.roster.scaled(workers))

    def shut_down(self, within: float) -> SupervisorState:
        """A shutdown was requested; ``within``: seconds that the workers have.

        Of several requests, the shortest time counts: they may come in any order. Workers that got
        a longer one get another order.
        """
        roster = self.roster.shut_down()
        if self.roster.state is FleetState.SHUTTING_DOWN:
            within = min(within, self.shutdown_within)
            if within < self.shutdown_within:
                for member in roster.members.values():
                    if member.state is WorkerState.LEAVING:
                        roster = roster.with_member(replace(member, state=WorkerState.RUNNING))
        return replace(self, shutdown_within=within, abandon_at=None, roster=roster)

    def job_ended(
        self, job: int, error: str | None, now: float, *, is_transient: bool = False
    ) -> SupervisorState:
        """A job has ended. ``is_transient``: a retry may succeed."""
        before = self.roster
        roster = before.job_ended(job, error, now, is_transient=is_transient)
        again = [slot for number, slot in roster.slots.items() if before.slots[number].job == job]
        state = replace(self, roster=roster)
        if not before.rules.are_remote:
            # An error that ends all is raised, and needs no note.
            if error is None or roster.error is not None:
                return state
            return state.note(
                _process_ended(error, again, now, has_shards=self.supervised.has_shards)
            )
        if before.error is None and roster.error is not None:
            return state.note(f"The first workers could not run, and the fleet fails: {error}")
        return state.note(_submitted_again(again, error, now)) if again else state

    def cannot_run(self, why: str) -> SupervisorState:
        """No worker can run or start from now on."""
        state = replace(self, roster=self.roster.shut_down(why))
        if not state.roster.rules.are_remote:
            return state
        return state.note(f"No worker can run any more: {why}")

    def decommissioned(self, worker_ids: Iterable[str]) -> SupervisorState:
        """Spark is decommissioning the executors of these workers."""
        state = self
        for worker_id in worker_ids:
            state = state.note(_decommissioned(self.reports.workers[worker_id].hello))
            state = replace(state, roster=state.roster.decommissioned(worker_id))
        return state

    # --- as time passes

    def checked_waiting(self, now: float) -> SupervisorState:
        """Note the workers that have waited for Spark for long, if they have become more."""
        if not self.roster.rules.are_remote:
            return self
        slots = self.roster.slots.values()
        waiting = sum(slot.is_waiting and slot.empty_since < now - _LONG_WAIT for slot in slots)
        state = self
        if waiting > self.noted_waiting:
            state = self.note(_waiting(waiting, len(slots)))
        return replace(state, noted_waiting=waiting)

    def checked_shutdown(self, now: float) -> SupervisorState:
        """Cancel the remaining jobs once a shutdown has taken too long."""
        roster = self.roster
        if roster.state is not FleetState.SHUTTING_DOWN or roster.is_abandoned:
            return self
        if self.abandon_at is None:
            patience = (
                self.shutdown_within + self.supervised.closes_within + roster.rules.lost_after
            )
            return replace(self, abandon_at=now + patience)
        if now < self.abandon_at:
            return self
        noted = self.note("The shutdown took too long: cancelling the remaining workers")
        return replace(noted, roster=roster.abandoned())

    def reconciled(self, now: float) -> tuple[SupervisorState, tuple[Action, ...]]:
        """Return the actions to take, in order, and the state after them."""
        roster, actions = reconcile(self.roster, now)
        if roster.rules.ends_are_seen:
            # The successor of a process, which may have its worker id, counts from 0.
            reports = self.reports.forget(self.reports.workers.keys() - roster.members.keys())
        else:
            reports = self.reports.retain(roster.members)
        state = replace(
            self,
            roster=roster,
            reports=reports,
            restarts=self.restarts.after(roster, actions),
        )
        return state, actions


_IN_HAND = "the records that it had in hand are delivered again once their holds end"
"""What becomes of the records of a queue."""


def _joined(hello: Hello) -> str:
    return f"worker {hello.worker_id} of slot {hello.slot} has joined from {hello.host}"


def _decommissioned(hello: Hello) -> str:
    return (
        f"The executor of worker {hello.worker_id} on {hello.host} is being decommissioned: the "
        "worker moves to another one"
    )


def _waiting(count: int, wanted: int) -> str:
    who = f"{count} of {wanted} workers" if count < wanted else f"No worker runs yet: all {wanted}"
    text = (
        f"{who} still wait for Spark to run their tasks. Each worker needs a free core "
        "(spark.task.cpus) for as long as the fleet runs: add cores or executors, end other jobs, "
        "or scale the fleet down"
    )
    if count < wanted:
        return text
    # A worker that cannot connect looks like one that Spark has not started.
    return (
        f"{text}. If Spark runs the tasks already, its executors cannot reach this program: set "
        "host, bind and port of FleetOptions"
    )


def _lost(reported: WorkerReports, now: float, *, has_shards: bool = True) -> str:
    hello, report = reported.hello, reported.report
    if not has_shards:
        what = f"counted {report.records:,} records; {_IN_HAND}"
    elif not report.shards:
        what = "listed no shards"
    else:
        what = (
            f"listed {listed(map(_shard, report.shards))}: other workers resume them once its "
            "leases are released or have expired"
        )
    return (
        f"Lost worker {hello.worker_id} on {hello.host}; its last report, "
        f"{now - reported.at:.1f} s ago, {what}. Records that it processed after that report are "
        "not counted"
    )


def _ended(worker_id: str, message: Ended) -> str | None:
    """Describe the end of a worker; None for a regular one."""
    if message.error is not None:
        return f"Worker {worker_id} ended with an error: {message.error}"
    if not message.was_graceful:
        return (
            f"Worker {worker_id} did not shut down in time: records that it had not "
            "finished are processed again"
        )
    return None


def _submitted_again(slots: Sequence[Slot], error: str | None, now: float) -> str:
    """Describe the resubmission of slots whose job has ended."""
    numbers = ", ".join(str(slot.number) for slot in slots)
    pause = min(slot.retry_at for slot in slots) - now
    return (
        f"The job of slot{'s' if len(slots) > 1 else ''} {numbers} has ended and is submitted "
        f"again in {pause:.1f} s: {error or 'its workers have shut down'}"
    )


def _process_ended(
    error: str, again: Sequence[Slot], now: float, *, has_shards: bool = True
) -> str:
    """Describe the end of a worker process. again: its slot, if another one takes its place."""
    if not again:
        return error
    pause = again[0].retry_at - now
    left = "its shards are read on from their checkpoints" if has_shards else _IN_HAND
    return (
        f"{error}. Another process takes its place {f'in {pause:.1f} s' if pause else 'now'}; "
        f"{left}"
    )


def _unreadable(worker_id: str, streams: Sequence[ReportedStream]) -> str:
    """Describe streams that have become unreadable."""
    why = streams[0].problem
    if len(streams) > 1:
        why = f"{_names(streams)}. The reason for the first: {why}"
        what = f"{len(streams)} streams"
    else:
        what = f"stream {streams[0].stream}"
    return (
        f"Worker {worker_id} cannot read {what} now, and tries again; the other streams are not "
        f"affected: {why}"
    )


def _readable(streams: Sequence[ReportedStream]) -> str:
    """Describe streams that all workers can read again."""
    return f"All workers can read stream{'s' if len(streams) > 1 else ''} {_names(streams)} now"


def _names(streams: Sequence[ReportedStream]) -> str:
    return listed(one.stream for one in streams)


def _shard(shard: ShardStatus) -> str:
    if shard.lease in {"", shard.shard_id}:
        return shard.shard_id
    return f"{shard.shard_id} of {shard.stream}"
