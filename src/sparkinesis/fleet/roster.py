"""The workers that a fleet has and should have, and the actions that reconcile the two. Pure.

A fleet has a slot for each worker that it should have. Slots that are due together become the tasks
of one Spark job, so that Spark spreads them over the executors. Spark aborts a job, and kills all
its tasks, once one of them has failed ``spark.task.maxFailures`` times. So a task that has used up
all but two of its attempts only connects and ends, and its slot gets another job: failures never
add up to an abort, which would kill other workers. If one failure aborts a job, each slot has its
own job.

Events come in by methods that return a new roster; `Roster.reconcile` compares the result with what
is wanted, and returns the actions to take.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from sparkinesis.fleet.options import FleetOptions
from sparkinesis.status import FleetState, WorkerState
from sparkinesis.stream.calls.retry import exponential_backoff

_AT_WORK = frozenset({WorkerState.STARTING, WorkerState.RUNNING})


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a job with a task for each of these slots."""

    job: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a job whose tasks are not wanted and which has no connected worker."""

    job: int


@dataclass(frozen=True, slots=True)
class SendStart:
    worker_id: str


@dataclass(frozen=True, slots=True)
class SendWait:
    worker_id: str


@dataclass(frozen=True, slots=True)
class SendShutDown:
    worker_id: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection of a worker that has been silent for too long."""

    worker_id: str


Action: TypeAlias = Submit | Cancel | SendStart | SendWait | SendShutDown | Disconnect


@dataclass(frozen=True, slots=True)
class Member:
    """A worker that has joined. Instants are of the driver's monotonic clock."""

    worker_id: str
    slot: int
    job: int
    joined: float
    heard: float
    state: WorkerState = WorkerState.STANDBY
    is_connected: bool = True
    was_told_to_wait: bool = False
    """The worker was told to stay a standby."""
    must_leave: bool = False
    """True if Spark is decommissioning the worker's executor."""
    began: float | None = None
    """The time of the first report of a running worker."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one wanted worker."""

    number: int
    job: int | None = None
    """The job with the slot's task; None if the slot needs one."""
    has_joined: bool = False
    """A worker of this job has joined."""
    empty_since: float = 0.0
    """The time at which the slot lost its last worker."""
    retry_at: float = 0.0
    failures: int = 0
    """Consecutive failures."""

    @property
    def is_waiting(self) -> bool:
        """True if Spark has the slot's task, but no worker has joined from it."""
        return self.job is not None and not self.has_joined


@dataclass(frozen=True, slots=True)
class Job:
    """A Spark job that has not ended."""

    number: int
    has_joined: bool = False
    cancelled: float | None = None
    """The time of the last cancellation, which has no effect if Spark did not know the job yet."""
    empty_since: float = 0.0
    """The time at which the job's last worker disconnected."""


@dataclass(frozen=True, slots=True)
class Roster:
    """A fleet's slots, jobs and workers at one moment."""

    options: FleetOptions
    max_failures: int = 4
    """The failures of one task at which Spark aborts its job."""
    slots: Mapping[int, Slot] = field(default_factory=lambda: MappingProxyType({}))
    """The slots of all wanted workers."""
    jobs: Mapping[int, Job] = field(default_factory=lambda: MappingProxyType({}))
    members: Mapping[str, Member] = field(default_factory=lambda: MappingProxyType({}))
    state: FleetState = FleetState.RUNNING
    submitted: int = 0
    """The number of jobs submitted so far."""
    has_started: bool = False
    """True once a worker has run: from then on, failures are retried."""
    is_abandoned: bool = False
    """The shutdown took too long: all jobs are cancelled."""
    error: str | None = None
    """The reason of the fleet's failure."""

    @property
    def waiting(self) -> int:
        """The number of slots whose task has been submitted, but has not begun."""
        return sum(slot.is_waiting for slot in self.slots.values())

    # --- events

    def scaled(self, workers: int) -> Roster:
        """The number of wanted workers has changed."""
        if self.state is not FleetState.RUNNING:
            return self
        slots = dict(self.slots)
        free = (number for number in range(len(slots) + workers) if number not in slots)
        for number in sorted(free)[: max(0, workers - len(slots))]:
            slots[number] = Slot(number)
        # Slots without a worker are removed first, then those with the highest numbers.
        ranked = sorted(slots.values(), key=lambda slot: (self._has_worker(slot), -slot.number))
        for slot in ranked[: max(0, len(slots) - workers)]:
            del slots[slot.number]
        return replace(self, slots=slots)

    def shut_down(self, error: str | None = None) -> Roster:
        """A shutdown was requested; ``error``: the fleet's failure, if that is the reason."""
        if self.state.is_over:
            return self
        error = self.error or error
        return replace(self, slots={}, state=FleetState.SHUTTING_DOWN, error=error)

    def failed(self, error: str) -> Roster:
        """The fleet's thread has failed; not even a graceful shutdown is possible."""
        return replace(self, slots={}, state=FleetState.FAILED, error=self.error or error)

    def abandoned(self) -> Roster:
        """The shutdown has taken too long: the remaining jobs are cancelled."""
        return replace(self, is_abandoned=True)

    def joined(
        self,
        worker_id: str,
        slot: int,
        job: int,
        now: float,
        *,
        attempt: int = 0,
        is_running: bool = False,
        is_leaving: bool = False,
    ) -> Roster:
        """A worker has connected or reconnected. ``attempt``: its task's attempt number, from 0.

        The worker's own state counts: the last message to it may have been lost.
        """
        state = WorkerState.RUNNING if is_running else WorkerState.STANDBY
        if is_leaving:
            state = WorkerState.LEAVING
        known = self.members.get(worker_id)
        if known is not None:
            return self._with_member(
                replace(known, state=state, is_connected=True, was_told_to_wait=False, heard=now)
            )
        roster = self._with_member(Member(worker_id, slot, job, now, now, state))
        if job in self.jobs:
            roster = roster._with_job(replace(self.jobs[job], has_joined=True))
        mine = self.slots.get(slot)
        if mine is None or mine.job != job:
            return roster
        is_last_try = attempt >= max(1, self.max_failures - 2)
        if is_last_try and not is_running and not self._has_worker(mine):
            return roster._without_job(mine, now, is_failure=True)
        return roster._with_slot(replace(mine, has_joined=True))

    def heard(self, worker_id: str, now: float, *, is_running: bool) -> Roster:
        """A worker has reported."""
        member = self.members.get(worker_id)
        if member is None:
            return self
        member = replace(member, heard=now)
        roster = self
        if is_running and member.state in _AT_WORK:
            began = now if member.began is None else member.began
            member = replace(member, state=WorkerState.RUNNING, began=began)
            slot = self.slots.get(member.slot)
            if slot is not None and slot.failures and now - began > self.options.longest_backoff:
                roster = roster._with_slot(replace(slot, failures=0))
            roster = replace(roster, has_started=True)
        return roster._with_member(member)

    def leaving(self, worker_id: str, *, is_for_all: bool) -> Roster:
        """A worker is shutting down on its own initiative."""
        member = self.members.get(worker_id)
        roster = self
        if member is not None:
            roster = roster._with_member(replace(member, state=WorkerState.LEAVING))
        return roster.shut_down() if is_for_all else roster

    def decommissioned(self, worker_id: str) -> Roster:
        """Spark is decommissioning a worker's executor: the worker has to run on another one."""
        member = self.members.get(worker_id)
        return self if member is None else self._with_member(replace(member, must_leave=True))

    def ended(
        self, worker_id: str, error: str | None, now: float, *, is_transient: bool = False
    ) -> Roster:
        """A worker has sent its last message: its task ends."""
        member = self.members.get(worker_id)
        if member is None:
            return self
        if error is not None and not is_transient and not self.has_started:
            return self._without_member(worker_id, now).shut_down(error)
        roster = self._without_member(worker_id, now)
        slot = roster.slots.get(member.slot)
        if slot is None or slot.job != member.job or roster._has_worker(slot):
            return roster
        is_leaving = member.state is WorkerState.LEAVING
        return roster._without_job(slot, now, is_failure=error is not None or not is_leaving)

    def disconnected(self, worker_id: str, now: float) -> Roster:
        """A worker's connection has broken; the worker may reconnect."""
        member = self.members.get(worker_id)
        if member is None:
            return self
        if member.state is WorkerState.STANDBY:
            return self._without_member(worker_id, now)  # a standby holds no leases
        return self._mark_disconnected(member, now)

    def job_ended(self, job: int, error: str | None, now: float) -> Roster:
        """A Spark job has ended; ``error``: None for a success."""
        if job not in self.jobs:
            return self
        roster = replace(self, jobs={n: each for n, each in self.jobs.items() if n != job})
        for member in self.members.values():
            if member.job == job and not member.is_connected:
                roster = roster._without_member(member.worker_id, now)
        mine = [slot for slot in roster.slots.values() if slot.job == job]
        if error is not None and mine and not self.has_started:
            return roster.shut_down(error)
        for slot in mine:
            roster = roster._without_job(slot, now, is_failure=True)
        return roster

    # --- actions

    def reconcile(self, now: float) -> tuple[Roster, tuple[Action, ...]]:
        """Return the actions to take, in order, and the roster after them."""
        actions: list[Action] = []
        roster = self._without_silent(now, actions)
        for number in sorted(roster.slots):
            roster = roster._reconcile_slot(number, now, actions)
        roster = roster._dismiss_unwanted(actions)
        due = [s for _, s in sorted(roster.slots.items()) if s.job is None and s.retry_at <= now]
        if roster.state is FleetState.RUNNING:
            together = [due] if self.max_failures > 1 else [[slot] for slot in due]
            for slots in filter(None, together):
                roster = roster._submit(slots, now, actions)
        for job in roster.jobs.values():
            roster = roster._reconcile_job(job, now, actions)
        if roster.state is FleetState.SHUTTING_DOWN and roster._has_none_left():
            state = FleetState.ENDED if roster.error is None else FleetState.FAILED
            roster = replace(roster, state=state)
        return roster, tuple(actions)

    def next_action_at(self, now: float) -> float:
        """Return the time of the next `reconcile` if no event comes before."""
        due = [now + self.options.heartbeat_interval]
        due += [slot.retry_at for slot in self.slots.values() if slot.job is None]
        return min(due)

    def _without_silent(self, now: float, actions: list[Action]) -> Roster:
        roster = self
        for member in self.members.values():
            if now - member.heard < self.options.lost_after:
                continue
            if member.is_connected:
                actions.append(Disconnect(member.worker_id))
                roster = roster._mark_disconnected(member, now)
            else:
                roster = roster._without_member(member.worker_id, now)
        return roster

    def _reconcile_slot(self, number: int, now: float, actions: list[Action]) -> Roster:
        """Keep one worker of a slot at work; order the others to stand by."""
        slot = self.slots[number]
        here = [m for m in self._connected() if m.slot == number and m.job == slot.job]
        here.sort(key=lambda member: member.joined)
        roster = self
        at_work = [m for m in here if m.state in _AT_WORK]
        # Spark knows only the later worker of two: it started that one after losing the other.
        keep = [m for m in at_work if not m.must_leave][-1:]
        for member in at_work:
            if member not in keep:
                actions.append(SendShutDown(member.worker_id))
                roster = roster._with_member(replace(member, state=WorkerState.LEAVING))
        for member in (m for m in here if m.state is WorkerState.STANDBY):
            if not keep:
                keep = [member]
                actions.append(SendStart(member.worker_id))
                roster = roster._with_member(replace(member, state=WorkerState.STARTING))
            elif not member.was_told_to_wait:
                actions.append(SendWait(member.worker_id))
                roster = roster._with_member(replace(member, was_told_to_wait=True))
        patience = 2 * self.options.lost_after
        if slot.has_joined and not roster._has_member(slot) and now - slot.empty_since >= patience:
            # Spark has not run the task again: it must have ended without reporting its end.
            return roster._without_job(slot, now, is_failure=True)
        return roster

    def _dismiss_unwanted(self, actions: list[Action]) -> Roster:
        """Shut down workers whose slot was removed or has another job."""
        roster = self
        # A leaving worker that is disconnected may be finishing its batch.
        busy_tasks = {
            (m.job, m.slot)
            for m in self.members.values()
            if m.state is WorkerState.LEAVING or (m.is_connected and m.state in _AT_WORK)
        }
        for member in self._connected():
            slot = self.slots.get(member.slot)
            if member.state is WorkerState.LEAVING or (slot and slot.job == member.job):
                continue
            if member.state is WorkerState.STANDBY and (member.job, member.slot) in busy_tasks:
                continue  # if this copy of the task ended, Spark would kill the other, busy copy
            actions.append(SendShutDown(member.worker_id))
            roster = roster._with_member(replace(member, state=WorkerState.LEAVING))
        return roster

    def _submit(self, due: list[Slot], now: float, actions: list[Action]) -> Roster:
        job = self.submitted + 1
        actions.append(Submit(job, tuple(slot.number for slot in due)))
        slots = {
            slot.number: replace(slot, job=job, has_joined=False, empty_since=now) for slot in due
        }
        jobs = {**self.jobs, job: Job(job, empty_since=now)}
        return replace(self, slots={**self.slots, **slots}, jobs=jobs, submitted=job)

    def _reconcile_job(self, job: Job, now: float, actions: list[Action]) -> Roster:
        pause = self.options.heartbeat_interval
        if job.cancelled is not None and now - job.cancelled < pause:
            return self
        is_wanted = any(slot.job == job.number for slot in self.slots.values())
        has_worker = any(member.job == job.number for member in self._connected())
        if not self.is_abandoned:
            if is_wanted or has_worker:
                return self
            if job.has_joined and now - job.empty_since < self.options.lost_after:
                return self  # its tasks are ending
        actions.append(Cancel(job.number))
        return self._with_job(replace(job, cancelled=now))

    def _without_job(self, slot: Slot, now: float, *, is_failure: bool) -> Roster:
        """Take the job from a slot without a worker; it gets another one after a backoff."""
        failures = slot.failures + 1 if is_failure else 0
        pause = backoff(self.options, failures)
        return self._with_slot(
            replace(slot, job=None, has_joined=False, failures=failures, retry_at=now + pause)
        )

    def _connected(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_connected]

    def _has_none_left(self) -> bool:
        """Return True if a shutdown has nothing more to wait for.

        A connected worker counts even if its job has ended: Spark may have lost it while it lives
        on with its leases, or its last message is on its way.
        """
        return not self.jobs and (self.is_abandoned or not self._connected())

    def _has_worker(self, slot: Slot) -> bool:
        """Return True if a worker of the slot's job works or is ready to."""
        return any(
            m.slot == slot.number and m.job == slot.job and m.state is not WorkerState.LEAVING
            for m in self._connected()
        )

    def _has_member(self, slot: Slot) -> bool:
        """Return True if the slot's job has a worker, connected or not."""
        return any(m.slot == slot.number and m.job == slot.job for m in self.members.values())

    def _with_member(self, member: Member) -> Roster:
        return replace(self, members={**self.members, member.worker_id: member})

    def _without_member(self, worker_id: str, now: float) -> Roster:
        gone = self.members[worker_id]
        members = {key: member for key, member in self.members.items() if key != worker_id}
        roster = replace(self, members=members)
        slot, job = self.slots.get(gone.slot), self.jobs.get(gone.job)
        if slot is not None and slot.job == gone.job:
            roster = roster._with_slot(replace(slot, empty_since=now))
        if job is not None and gone.is_connected:
            roster = roster._with_job(replace(job, empty_since=now))
        return roster

    def _mark_disconnected(self, member: Member, now: float) -> Roster:
        """Mark a worker as disconnected; it has ``lost_after`` seconds to reconnect."""
        roster = self._with_member(replace(member, is_connected=False, heard=now))
        job = self.jobs.get(member.job)
        return roster if job is None else roster._with_job(replace(job, empty_since=now))

    def _with_slot(self, slot: Slot) -> Roster:
        return replace(self, slots={**self.slots, slot.number: slot})

    def _with_job(self, job: Job) -> Roster:
        return replace(self, jobs={**self.jobs, job.number: job})


def backoff(options: FleetOptions, failures: int) -> float:
    """Return the seconds until a slot gets another job, after this many consecutive failures."""
    if not failures:
        return 0.0
    return exponential_backoff(options.first_backoff, options.longest_backoff, failures)
