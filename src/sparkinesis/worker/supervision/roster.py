"""The workers that a supervisor has and should have. Pure.

There is a slot for each worker that there should be. A launch, here called a job, fills one or
several slots: a Spark job has a task for each of its slots, and a worker process is a job of one.
Events come in by methods that return a new roster; `reconciling` finds the actions to take.
"""

# What must hold: every slot gets another job in the end, one worker of a slot works, and no worker
# that may hold leases is forgotten, or killed within its batch. The rules that look arbitrary:
#
# - Spark aborts a job, and kills all its tasks, once one of them has failed spark.task.maxFailures
#   times. So a task that has two attempts left only connects and ends, and its slot gets a job of
#   its own: failures never add up to an abort, which would kill other workers.
# - A slot without a job keeps its `retry_at`. It used to be vacated again at each turn once its
#   last worker was gone for long, which put its next job off for ever.
# - A worker whose connection breaks has `lost_after` seconds to come again, and so has its job,
#   even if neither is wanted any more: a worker that leaves may be finishing its batch, and a
#   cancellation kills it. A standby holds no leases, and is forgotten at once.
# - A job is cancelled again until it ends: a cancellation has no effect on a job that Spark does
#   not know yet.
# - The end of a job is not the end of its workers. Spark may lose an executor whose process lives
#   on, or the end of a job is known before the last message of its worker is read. So a shutdown
#   waits for connected workers, too (`has_none_left`). Before, a fleet had ended while such a
#   worker still held its leases.
# - Child processes differ (`ProcessRules`). Their supervisor sees each of them end, so silence
#   means nothing, and no worker comes back. Their backoffs depend on slot and program, because
#   programs of several machines that failed together must not start together.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from sparkinesis.status import FleetState, WorkerState
from sparkinesis.stream.calls.retry import exponential_backoff
from sparkinesis.worker.supervision.control_messages import Ended, Hello

_MISSED = 3
"""Heartbeat intervals after which a worker without a report counts as silent, or half of the time
after which it is lost, if that is longer."""
AT_WORK = frozenset({WorkerState.STARTING, WorkerState.RUNNING})
_GOLDEN = 0.618
"""The golden ratio's fraction: its multiples lie far from each other between 0 and 1."""


@dataclass(frozen=True, slots=True)
class Rules:
    """When a worker counts as lost, and when another one takes its place. In seconds.

    These are the rules for tasks of Spark; those for worker processes are `ProcessRules`.
    """

    heartbeat_interval: float
    lost_after: float
    first_backoff: float
    longest_backoff: float
    max_failures: int = 4
    """The failures of one task at which Spark aborts its job; of 1, each slot has its own job."""

    are_remote: ClassVar[bool] = True
    """The logs of workers lie elsewhere, and nobody awaits their end: what happens to them, and
    what they wait for, has to be noted and logged here."""
    ends_are_seen: ClassVar[bool] = False
    """A supervisor learns of each end of a worker. So a worker that is silent is not lost, and one
    that is gone does not come back."""
    run_this_program: ClassVar[bool] = False
    """The workers run the program of their supervisor: their errors are its own, at any time."""

    def backoff(self, slot: int, failures: int) -> float:
        """Return the seconds until a slot gets another job, after ``failures`` in a row."""
        del slot
        if not failures:
            return 0.0
        return exponential_backoff(self.first_backoff, self.longest_backoff, failures)


@dataclass(frozen=True, slots=True)
class ProcessRules(Rules):
    """The rules for child processes, each of which is a job of its own."""

    max_failures: int = 1
    phase: float = 0.0
    """A number from 0 to 1 that moves the backoffs: programs of several machines that failed
    together must not start together."""

    are_remote: ClassVar[bool] = False
    ends_are_seen: ClassVar[bool] = True
    run_this_program: ClassVar[bool] = True

    def backoff(self, slot: int, failures: int) -> float:
        pause = Rules.backoff(self, slot, failures)
        return pause * (0.5 + (self.phase + slot * _GOLDEN) % 1 / 2)


class Present(NamedTuple):
    """A worker that its supervisor has not seen end."""

    worker_id: str
    state: WorkerState
    heard: float
    """The time of its last message, by the supervisor's monotonic clock."""


@dataclass(frozen=True, slots=True)
class JoinedWorker:
    """A worker that has joined. Instants are of the supervisor's monotonic clock."""

    worker_id: str
    slot: int
    job: int
    joined: float
    heard: float
    state: WorkerState = WorkerState.STANDBY
    is_connected: bool = True
    was_told_to_wait: bool = False
    """The worker was ordered to stay a standby."""
    must_leave: bool = False
    """True if the worker has to run elsewhere: Spark is decommissioning its executor."""
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
        """True if the slot has a job, but no worker has joined from it."""
        return self.job is not None and not self.has_joined


@dataclass(frozen=True, slots=True)
class Job:
    """A Spark job, or a worker process, that has not ended."""

    number: int
    has_joined: bool = False
    cancelled: float | None = None
    """The time of the last cancellation. It has no effect on a job that Spark did not know yet."""
    empty_since: float = 0.0
    """The time at which the job's last worker disconnected."""


@dataclass(frozen=True, slots=True)
class Roster:
    """The slots, jobs and workers at one moment."""

    rules: Rules
    slots: Mapping[int, Slot] = field(default_factory=dict)
    """The slots of all wanted workers."""
    jobs: Mapping[int, Job] = field(default_factory=dict)
    members: Mapping[str, JoinedWorker] = field(default_factory=dict)
    state: FleetState = FleetState.RUNNING
    submitted: int = 0
    """The number of jobs submitted so far."""
    has_started: bool = False
    """True once a worker has run, or a child process has joined: from then on, jobs that fail are
    retried."""
    is_abandoned: bool = False
    """The shutdown took too long: all jobs are cancelled."""
    error: str | None = None
    """The reason why no worker can run."""

    @property
    def waiting(self) -> int:
        """The number of slots whose job has been submitted, but whose worker has not joined."""
        return sum(slot.is_waiting for slot in self.slots.values())

    @property
    def silent_after(self) -> float:
        """Seconds after which a worker without a report counts as silent."""
        return max(_MISSED * self.rules.heartbeat_interval, self.rules.lost_after / 2)

    def present(self) -> list[Present]:
        """Return the workers that have not ended, by slot."""
        members = sorted(self.members.values(), key=lambda one: (one.slot, one.joined))
        return [
            Present(one.worker_id, one.state if one.is_connected else WorkerState.LOST, one.heard)
            for one in members
        ]

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
        ranked = sorted(slots.values(), key=lambda slot: (self.has_worker(slot), -slot.number))
        for slot in ranked[: max(0, len(slots) - workers)]:
            del slots[slot.number]
        return replace(self, slots=slots)

    def shut_down(self, error: str | None = None) -> Roster:
        """A shutdown was requested; ``error``: why no worker can run, if that is the reason."""
        if self.state.is_over:
            return self
        error = self.error or error
        return replace(self, slots={}, state=FleetState.SHUTTING_DOWN, error=error)

    def failed(self, error: str) -> Roster:
        """The supervisor has failed; not even a graceful shutdown is possible."""
        return replace(self, slots={}, state=FleetState.FAILED, error=self.error or error)

    def abandoned(self) -> Roster:
        """The shutdown has taken too long: the remaining jobs are cancelled."""
        return replace(self, is_abandoned=True)

    def joined(self, hello: Hello, now: float) -> Roster:
        """A worker has connected or reconnected.

        The worker's own state counts: the last message to it may have been lost.
        """
        state = WorkerState.RUNNING if hello.is_running else WorkerState.STANDBY
        if hello.is_leaving:
            state = WorkerState.LEAVING
        job = hello.job
        known = self.members.get(hello.worker_id)
        if known is not None:
            return self.with_member(
                replace(known, state=state, is_connected=True, was_told_to_wait=False, heard=now)
            )
        roster = self.with_member(JoinedWorker(hello.worker_id, hello.slot, job, now, now, state))
        if self.rules.run_this_program:
            roster = replace(roster, has_started=True)  # it can be imported
        if job in self.jobs:
            roster = roster.with_job(replace(self.jobs[job], has_joined=True))
        mine = self.slots.get(hello.slot)
        if mine is None or mine.job != job:
            return roster
        is_last_try = hello.attempt >= max(1, self.rules.max_failures - 2)
        if is_last_try and not hello.is_running and not self.has_worker(mine):
            return roster.without_job(mine, now, is_failure=True)
        return roster.with_slot(replace(mine, has_joined=True))

    def heard(self, worker_id: str, now: float, *, is_running: bool) -> Roster:
        """A worker has reported."""
        member = self.members.get(worker_id)
        if member is None:
            return self
        member = replace(member, heard=now)
        roster = self
        if is_running and member.state in AT_WORK:
            began = now if member.began is None else member.began
            member = replace(member, state=WorkerState.RUNNING, began=began)
            slot = self.slots.get(member.slot)
            if slot is not None and slot.failures and now - began > self.rules.longest_backoff:
                roster = roster.with_slot(replace(slot, failures=0))
            roster = replace(roster, has_started=True)
        return roster.with_member(member)

    def leaving(self, worker_id: str, *, is_for_all: bool) -> Roster:
        """A worker is shutting down on its own initiative."""
        member = self.members.get(worker_id)
        roster = self
        if member is not None:
            roster = roster.with_member(replace(member, state=WorkerState.LEAVING))
        return roster.shut_down() if is_for_all else roster

    def decommissioned(self, worker_id: str) -> Roster:
        """Spark is decommissioning a worker's executor: the worker has to run on another one."""
        member = self.members.get(worker_id)
        return self if member is None else self.with_member(replace(member, must_leave=True))

    def ended(self, worker_id: str, message: Ended, now: float) -> Roster:
        """A worker has sent its last message: its task ends."""
        member, error = self.members.get(worker_id), message.error
        if member is None:
            return self
        roster = self.without_member(worker_id, now)
        is_running = self.state is FleetState.RUNNING
        is_ours = is_running and (self.rules.run_this_program or message.is_for_all)
        ends_all = not self.has_started or is_ours
        if error is not None and not message.is_transient and ends_all:
            return roster.shut_down(error)
        slot = roster.slots.get(member.slot)
        if slot is None or slot.job != member.job or roster.has_worker(slot):
            return roster
        is_leaving = member.state is WorkerState.LEAVING
        return roster.without_job(slot, now, is_failure=error is not None or not is_leaving)

    def disconnected(self, worker_id: str, now: float) -> Roster:
        """A worker's connection has broken; the worker may reconnect."""
        member = self.members.get(worker_id)
        if member is None:
            return self
        if member.state is WorkerState.STANDBY:
            return self.without_member(worker_id, now)  # a standby holds no leases
        return self.mark_disconnected(member, now)

    def job_ended(
        self, job: int, error: str | None, now: float, *, is_transient: bool = False
    ) -> Roster:
        """A job has ended; ``error``: None for a success. is_transient: a retry may succeed."""
        if job not in self.jobs:
            return self
        roster = replace(self, jobs={n: each for n, each in self.jobs.items() if n != job})
        for member in self.members.values():
            if member.job == job and not member.is_connected:
                roster = roster.without_member(member.worker_id, now)
        mine = [slot for slot in roster.slots.values() if slot.job == job]
        if error is not None and mine and not is_transient and not self.has_started:
            return roster.shut_down(error)
        for slot in mine:
            roster = roster.without_job(slot, now, is_failure=True)
        return roster

    # --- changes, for events and `reconciling`

    def with_submitted(self, slots: Sequence[Slot], now: float) -> Roster:
        """Give slots a new job."""
        job = self.submitted + 1
        given = {
            slot.number: replace(slot, job=job, has_joined=False, empty_since=now) for slot in slots
        }
        jobs = {**self.jobs, job: Job(job, empty_since=now)}
        return replace(self, slots={**self.slots, **given}, jobs=jobs, submitted=job)

    def without_job(self, slot: Slot, now: float, *, is_failure: bool) -> Roster:
        """Take the job from a slot without a worker; it gets another one after a backoff."""
        failures = slot.failures + 1 if is_failure else 0
        pause = self.rules.backoff(slot.number, failures)
        return self.with_slot(
            replace(slot, job=None, has_joined=False, failures=failures, retry_at=now + pause)
        )

    def with_member(self, member: JoinedWorker) -> Roster:
        return replace(self, members={**self.members, member.worker_id: member})

    def without_member(self, worker_id: str, now: float) -> Roster:
        gone = self.members[worker_id]
        members = {key: member for key, member in self.members.items() if key != worker_id}
        roster = replace(self, members=members)
        slot, job = self.slots.get(gone.slot), self.jobs.get(gone.job)
        if slot is not None and slot.job == gone.job:
            roster = roster.with_slot(replace(slot, empty_since=now))
        if job is not None and gone.is_connected:
            roster = roster.with_job(replace(job, empty_since=now))
        return roster

    def mark_disconnected(self, member: JoinedWorker, now: float) -> Roster:
        """Mark a worker as disconnected; it has ``lost_after`` seconds to reconnect."""
        roster = self.with_member(replace(member, is_connected=False, heard=now))
        job = self.jobs.get(member.job)
        return roster if job is None else roster.with_job(replace(job, empty_since=now))

    def with_slot(self, slot: Slot) -> Roster:
        return replace(self, slots={**self.slots, slot.number: slot})

    def with_job(self, job: Job) -> Roster:
        return replace(self, jobs={**self.jobs, job.number: job})

    # --- questions

    def next_action_at(self, now: float) -> float:
        """Return the time of the next action if no event comes before."""
        due = [now + self.rules.heartbeat_interval]
        due += [slot.retry_at for slot in self.slots.values() if slot.job is None]
        return min(due)

    def connected(self) -> list[JoinedWorker]:
        return [member for member in self.members.values() if member.is_connected]

    def has_none_left(self) -> bool:
        """Return True if a shutdown has nothing more to wait for.

        A connected worker counts even if its job has ended: Spark may have lost it while it lives
        on with its leases, or its last message is on its way.
        """
        return not self.jobs and (self.is_abandoned or not self.connected())

    def has_worker(self, slot: Slot) -> bool:
        """Return True if a worker of the slot's job works or is ready to."""
        return any(
            m.slot == slot.number and m.job == slot.job and m.state is not WorkerState.LEAVING
            for m in self.connected()
        )
