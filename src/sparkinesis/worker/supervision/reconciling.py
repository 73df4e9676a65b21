"""The actions that reconcile a roster with what is wanted, and the restarts among them. Pure.

Slots that are due together become the tasks of one Spark job, so that Spark spreads them over the
executors. If one failure aborts a job, each slot has its own job, and so has each process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sparkinesis.status import FleetState, WorkerState
from sparkinesis.worker.supervision.roster import AT_WORK, Job, JoinedWorker, Roster, Slot


@dataclass(frozen=True, slots=True)
class Submit:
    """Launch a job that fills these slots."""

    job: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a job that is not wanted and has no connected worker, or any job that takes too long."""

    job: int
    at_once: bool = False
    """Its workers have had their time for a graceful end."""


@dataclass(frozen=True, slots=True)
class _ForWorker:
    worker_id: str


class SendStart(_ForWorker):
    """Order a worker to start."""


class SendWait(_ForWorker):
    """Order a worker to stand by."""


class SendShutDown(_ForWorker):
    """Order a worker to shut down."""


class Disconnect(_ForWorker):
    """Close the connection of a worker that has been silent for too long."""


Action: TypeAlias = Submit | Cancel | SendStart | SendWait | SendShutDown | Disconnect


def reconcile(roster: Roster, now: float) -> tuple[Roster, tuple[Action, ...]]:
    """Return the actions to take, in order, and the roster after them."""
    plan = _Plan(roster, now)
    if not roster.rules.ends_are_seen:
        plan.drop_silent()
    for number in sorted(plan.roster.slots):
        plan.staff(plan.roster.slots[number])
    plan.dismiss_unwanted()
    plan.submit_due()
    for job in plan.roster.jobs.values():
        plan.cancel_unwanted(job)
    roster = plan.roster
    if roster.state is FleetState.SHUTTING_DOWN and roster.has_none_left():
        roster = replace(
            roster, state=FleetState.ENDED if roster.error is None else FleetState.FAILED
        )
    return roster, tuple(plan.actions)


class _Plan:
    """The actions so far, and the roster after them."""

    def __init__(self, roster: Roster, now: float) -> None:
        self.roster = roster
        self.now = now
        self.actions: list[Action] = []

    def drop_silent(self) -> None:
        """Disconnect workers that are silent; forget those that have not reconnected."""
        for member in self.roster.members.values():
            if self.now - member.heard < self.roster.rules.lost_after:
                continue
            if member.is_connected:
                self.actions.append(Disconnect(member.worker_id))
                self.roster = self.roster.mark_disconnected(member, self.now)
            else:
                self.roster = self.roster.without_member(member.worker_id, self.now)

    def staff(self, slot: Slot) -> None:
        """Keep one worker of a slot at work; order the others to stand by."""
        known = [
            m for m in self.roster.members.values() if m.slot == slot.number and m.job == slot.job
        ]
        here = sorted((m for m in known if m.is_connected), key=lambda member: member.joined)
        at_work = [m for m in here if m.state in AT_WORK]
        # Spark knows only the later worker of two: it started that one after losing the other.
        keep = [m for m in at_work if not m.must_leave][-1:]
        for member in at_work:
            if member not in keep:
                self._shut_down(member)
        for member in (m for m in here if m.state is WorkerState.STANDBY):
            if not keep:
                keep = [member]
                self.actions.append(SendStart(member.worker_id))
                self._change(replace(member, state=WorkerState.STARTING))
            elif not member.was_told_to_wait:
                self.actions.append(SendWait(member.worker_id))
                self._change(replace(member, was_told_to_wait=True))
        patience = 2 * self.roster.rules.lost_after
        is_late = slot.has_joined and self.now - slot.empty_since >= patience
        if is_late and not known:
            # Spark has not run the task again: it must have ended without reporting its end.
            self.roster = self.roster.without_job(slot, self.now, is_failure=True)

    def dismiss_unwanted(self) -> None:
        """Shut down workers whose slot was removed or has another job."""
        # A leaving worker that is disconnected may be finishing its batch.
        busy_tasks = {
            (m.job, m.slot)
            for m in self.roster.members.values()
            if m.state is WorkerState.LEAVING or (m.is_connected and m.state in AT_WORK)
        }
        for member in self.roster.connected():
            slot = self.roster.slots.get(member.slot)
            if member.state is WorkerState.LEAVING or (slot and slot.job == member.job):
                continue
            if member.state is WorkerState.STANDBY and (member.job, member.slot) in busy_tasks:
                continue  # if this copy of the task ended, Spark would kill the other, busy copy
            self._shut_down(member)

    def submit_due(self) -> None:
        """Submit jobs for the slots whose backoff is over."""
        roster = self.roster
        if roster.state is not FleetState.RUNNING:
            return
        due = [
            slot
            for _, slot in sorted(roster.slots.items())
            if slot.job is None and slot.retry_at <= self.now
        ]
        together = [due] if roster.rules.max_failures > 1 else [[slot] for slot in due]
        for slots in filter(None, together):
            self.roster = self.roster.with_submitted(slots, self.now)
            numbers = tuple(slot.number for slot in slots)
            self.actions.append(Submit(self.roster.submitted, numbers))

    def cancel_unwanted(self, job: Job) -> None:
        """Cancel a job that has neither a wanted slot nor a connected worker."""
        roster, now = self.roster, self.now
        if job.cancelled is not None and now - job.cancelled < roster.rules.heartbeat_interval:
            return
        is_wanted = any(slot.job == job.number for slot in roster.slots.values())
        has_worker = any(member.job == job.number for member in roster.connected())
        if not roster.is_abandoned:
            if is_wanted or has_worker:
                return
            if job.has_joined and now - job.empty_since < roster.rules.lost_after:
                return  # its tasks are ending
        self.actions.append(Cancel(job.number, at_once=roster.is_abandoned))
        self.roster = roster.with_job(replace(job, cancelled=now))

    def _shut_down(self, member: JoinedWorker) -> None:
        self.actions.append(SendShutDown(member.worker_id))
        self._change(replace(member, state=WorkerState.LEAVING))

    def _change(self, member: JoinedWorker) -> None:
        self.roster = self.roster.with_member(member)


@dataclass(frozen=True, slots=True)
class Restarts:
    """The restarts so far, and the last beginning in each slot, so that the next one counts.

    A slot gets another job when its job has ended, and Spark may run the task of a job again.
    """

    count: int = 0
    submitted: frozenset[int] = frozenset()
    """The slots that have had a job."""
    begun: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    """The job and the worker that began last in a slot."""

    def after(self, roster: Roster, actions: Iterable[Action]) -> Restarts:
        """Return what has begun after these actions.

        roster: as it is after the actions. A slot that is removed is forgotten.
        """
        submitted = set(self.submitted & roster.slots.keys())
        begun = {slot: last for slot, last in self.begun.items() if slot in submitted}
        again = 0
        for action in actions:
            if isinstance(action, Submit):
                again += len(submitted.intersection(action.slots))
                submitted.update(action.slots)
            elif isinstance(action, SendStart):
                member = roster.members[action.worker_id]
                job, worker_id = begun.get(member.slot, (None, None))
                # The first worker of another job came with that job. A start may be said twice.
                again += job == member.job and worker_id != member.worker_id
                begun[member.slot] = member.job, member.worker_id
        return Restarts(self.count + again, frozenset(submitted), begun)
