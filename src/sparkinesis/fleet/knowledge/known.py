"""`Known`: what the driver knows of its fleet, and what each event changes in it. Pure."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from sparkinesis.fleet.channel.control_server import Disconnected
from sparkinesis.fleet.channel.messages import Hello, ToDriver
from sparkinesis.fleet.knowledge import notes
from sparkinesis.fleet.knowledge.reconciling import Action, reconcile
from sparkinesis.fleet.knowledge.restarts import Restarts
from sparkinesis.fleet.knowledge.roster import Roster
from sparkinesis.status import FleetState, FleetStatus, WorkerState
from sparkinesis.worker.crew.gathering.reports import CrewReports
from sparkinesis.worker.crew.messages import Ended, Leaving, Report

_LONG_WAIT = 10.0
"""Seconds that a task may wait for Spark before a note says so."""


@dataclass(frozen=True, slots=True)
class Known:
    """The driver's knowledge at one moment. Each event returns the knowledge after it."""

    application: str
    stream: str
    """The names of the streams, as far as known."""
    shutdown_within: float
    """Seconds that the workers have for a shutdown."""
    roster: Roster
    reports: CrewReports[Hello]
    restarts: Restarts = field(default_factory=Restarts)
    restarted: int = 0
    """The number of restarts so far."""
    are_all_graceful: bool = True
    """True while every worker that ended did so gracefully."""
    abandon_at: float | None = None
    """The time at which a shutdown cancels the remaining jobs."""
    noted_waiting: int = 0
    """The number of waiting workers in the last note about them."""
    unlogged: tuple[tuple[int, str], ...] = ()
    """The lines that the driver has not logged yet, each with its level."""

    def status(self, now: float) -> FleetStatus:
        """Return the fleet's status."""
        return self.reports.status(self.application, self.stream, self.roster, now)

    def note(self, text: str, level: int = logging.WARNING) -> Known:
        """Return a copy with another note, which is listed in the status and logged."""
        noted = replace(self, reports=self.reports.add_note(text))
        return noted._log(f"Fleet of {self.application}: {text}", level)

    def _log(self, line: str, level: int) -> Known:
        return replace(self, unlogged=(*self.unlogged, (level, line)))

    # --- messages of workers

    def received(self, worker_id: str, message: ToDriver | Disconnected, now: float) -> Known:
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

    def _joined(self, hello: Hello, now: float) -> Known:
        known = replace(self, reports=self.reports.add_hello(hello, now))
        if hello.worker_id not in self.roster.members:
            known = known.note(notes.joined(hello), logging.INFO)
        return replace(known, roster=self.roster.joined(hello, now))

    def _reported(self, worker_id: str, report: Report, now: float) -> Known:
        reports, failures = self.reports.add_report(worker_id, report, now)
        known = replace(
            self,
            reports=reports,
            roster=self.roster.heard(worker_id, now, is_running=report.is_running),
        )
        failing, recovered = reports.streams.news(self.reports.streams)
        if failing:
            known = known.note(notes.unreadable(worker_id, failing))
        if recovered:
            known = known.note(notes.readable(recovered), logging.INFO)
        for failure in failures:
            line = f"{failure.what}, on worker {worker_id}: {failure.error}\n{failure.traceback}"
            known = known._log(line, logging.ERROR)
        return known

    def _ended(self, worker_id: str, message: Ended, now: float) -> Known:
        text = notes.ended(worker_id, message)
        known = self if text is None else self.note(text)
        return replace(
            known,
            are_all_graceful=self.are_all_graceful and message.was_graceful,
            roster=self.roster.ended(worker_id, message, now),
        )

    def _disconnected(self, worker_id: str, now: float) -> Known:
        known, member = self, self.roster.members.get(worker_id)
        if member is not None and member.state is not WorkerState.STANDBY:
            known = self.note(notes.lost(self.reports.workers[worker_id], now))
            known = replace(known, reports=known.reports.add_loss(worker_id))
        return replace(known, roster=self.roster.disconnected(worker_id, now))

    # --- other events

    def scaled(self, workers: int) -> Known:
        """Another number of workers is wanted."""
        noted = self.note(f"scaled to {workers} workers", logging.INFO)
        return replace(noted, roster=self.roster.scaled(workers))

    def shut_down(self, within: float) -> Known:
        """A shutdown was requested; ``within``: seconds that the workers have.

        Of several requests, the shortest time counts: they may come in any order. Workers that were
        told of a longer one are told again.
        """
        roster = self.roster.shut_down()
        if self.roster.state is FleetState.SHUTTING_DOWN:
            within = min(within, self.shutdown_within)
            if within < self.shutdown_within:
                for member in roster.members.values():
                    if member.state is WorkerState.LEAVING:
                        roster = roster.with_member(replace(member, state=WorkerState.RUNNING))
        return replace(self, shutdown_within=within, abandon_at=None, roster=roster)

    def job_ended(self, job: int, error: str | None, now: float, *, is_stopped: bool) -> Known:
        """A Spark job has ended. ``is_stopped``: the Spark session was stopped while it ran."""
        known, before = self, self.roster
        if is_stopped:
            why = (
                "the Spark session was stopped, or its Spark Connect server has ended. Call the "
                "fleet's shutdown() before spark.stop(); after the end of a server, start the "
                "program again: it goes on from the checkpoints"
            )
            known = known.note(f"No worker can run any more: {why}")
            before = before.shut_down(why)
        roster = before.job_ended(job, error, now)
        if before.error is None and roster.error is not None:
            known = known.note(f"The first workers could not run, and the fleet fails: {error}")
        again = [
            slot
            for number, slot in roster.slots.items()
            if slot.job is None and before.slots[number].job == job
        ]
        if again:
            known = known.note(notes.submitted_again(again, error, now))
        return replace(known, roster=roster)

    def decommissioned(self, worker_ids: Iterable[str]) -> Known:
        """Spark is decommissioning the executors of these workers."""
        known = self
        for worker_id in worker_ids:
            known = known.note(notes.decommissioned(self.reports.workers[worker_id].hello))
            known = replace(known, roster=known.roster.decommissioned(worker_id))
        return known

    # --- as time passes

    def looked_at_waiting(self, now: float) -> Known:
        """Note the workers that have waited for Spark for long, if they have become more."""
        slots = self.roster.slots.values()
        waiting = sum(slot.is_waiting and slot.empty_since < now - _LONG_WAIT for slot in slots)
        known = self
        if waiting > self.noted_waiting:
            known = self.note(notes.waiting(waiting, len(slots)))
        return replace(known, noted_waiting=waiting)

    def looked_at_shutdown(self, now: float) -> Known:
        """Cancel the remaining jobs once a shutdown has taken too long."""
        roster = self.roster
        if roster.state is not FleetState.SHUTTING_DOWN or roster.is_abandoned:
            return self
        if self.abandon_at is None:
            patience = self.shutdown_within + roster.options.lost_after
            return replace(self, abandon_at=now + patience)
        if now < self.abandon_at:
            return self
        noted = self.note("The shutdown took too long: cancelling the remaining workers")
        return replace(noted, roster=roster.abandoned())

    def reconciled(self, now: float) -> tuple[Known, tuple[Action, ...]]:
        """Return the actions to take, in order, and the knowledge after them."""
        roster, actions = reconcile(self.roster, now)
        restarts, again = self.restarts.after(roster, actions)
        reports = self.reports.retain(roster.members)
        known = replace(
            self,
            roster=roster,
            reports=reports,
            restarts=restarts,
            restarted=self.restarted + again,
        )
        return known, actions
