"""Which workers a fleet has, which it should have, and what to do about it. Pure.

A fleet has a slot for each worker that is wanted; a slot has one Spark job of one task, so that
Spark's giving up on one of them ends no other worker. Facts come in by the methods that return a
new roster; `Roster.settle` compares them with what is wanted, and returns what is to be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from sparkinesis.worker.fleet.options import FleetOptions
from sparkinesis.worker.fleet.status import FleetState, WorkerState

_AT_WORK = frozenset({WorkerState.STARTING, WorkerState.RUNNING})


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit a slot's job."""

    slot: int
    submission: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a slot's job: no worker of it is known."""

    slot: int
    submission: int


@dataclass(frozen=True, slots=True)
class TellStart:
    worker_id: str


@dataclass(frozen=True, slots=True)
class TellWait:
    worker_id: str


@dataclass(frozen=True, slots=True)
class TellShutDown:
    worker_id: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection of a worker that has been silent for too long."""

    worker_id: str


Action: TypeAlias = Submit | Cancel | TellStart | TellWait | TellShutDown | Drop


@dataclass(frozen=True, slots=True)
class Member:
    """A worker that has joined. Instants are of the driver's monotonic clock."""

    worker_id: str
    slot: int
    joined: float
    heard: float
    state: WorkerState = WorkerState.STANDBY
    is_connected: bool = True
    is_told: bool = False
    """A standby that knows that it is one."""
    must_leave: bool = False
    """Its executor is being decommissioned, or its slot has another worker."""
    began: float | None = None
    """When it was first seen to run."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One worker that is wanted, or was."""

    number: int
    is_wanted: bool = True
    job: int | None = None
    """The submission that is under way."""
    submissions: int = 0
    has_joined: bool = False
    """A worker of this job has joined."""
    is_cancelled: bool = False
    has_left: bool = False
    """Its worker ended as it was told to, or went for a reason that is nobody's failure."""
    emptied: float = 0.0
    """When its last worker was gone."""
    retry_at: float = 0.0
    failures: int = 0
    """In a row."""


@dataclass(frozen=True, slots=True)
class Roster:
    """A fleet's slots and workers at one moment."""

    options: FleetOptions
    slots: Mapping[int, Slot] = field(default_factory=lambda: MappingProxyType({}))
    members: Mapping[str, Member] = field(default_factory=lambda: MappingProxyType({}))
    state: FleetState = FleetState.RUNNING
    has_started: bool = False
    """Some worker has run: what ends others from here on is worth another try."""
    is_abandoned: bool = False
    """A shutdown took too long: jobs are cancelled."""
    error: str | None = None
    """Why the fleet fails."""

    # --- what happens

    def scaled(self, workers: int) -> Roster:
        """So many workers are wanted from here on."""
        if self.state is not FleetState.RUNNING:
            return self
        wanted = [slot for slot in self.slots.values() if slot.is_wanted]
        slots = dict(self.slots)
        free = (number for number in range(len(slots) + workers) if number not in self.slots)
        for number in sorted(free)[: max(0, workers - len(wanted))]:
            slots[number] = Slot(number)
        # Those without a worker go first, then the latest.
        ranked = sorted(wanted, key=lambda slot: (bool(self._at_work(slot.number)), -slot.number))
        for slot in ranked[: max(0, len(wanted) - workers)]:
            slots[slot.number] = replace(slot, is_wanted=False)
        return replace(self, slots=slots)

    def shut_down(self, error: str | None = None) -> Roster:
        """No worker is wanted any more; ``error``: since the fleet has failed."""
        if self.state in {FleetState.ENDED, FleetState.FAILED}:
            return self
        slots = {number: replace(slot, is_wanted=False) for number, slot in self.slots.items()}
        return replace(self, slots=slots, state=FleetState.SHUTTING_DOWN, error=self.error or error)

    def abandoned(self) -> Roster:
        """The shutdown takes too long: cancel what is left."""
        return replace(self, is_abandoned=True)

    def joined(self, worker_id: str, slot: int, now: float, *, is_running: bool) -> Roster:
        """A worker has connected, for the first time or again."""
        known = self.members.get(worker_id)
        if known is not None:
            return self._with(replace(known, is_connected=True, heard=now))
        state = WorkerState.RUNNING if is_running else WorkerState.STANDBY
        roster = self._with(Member(worker_id, slot, now, now, state))
        if slot in self.slots:
            roster = roster._with_slot(replace(self.slots[slot], has_joined=True))
        return roster

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
        return roster._with(member)

    def leaving(self, worker_id: str, *, is_for_all: bool) -> Roster:
        """A worker shuts down without having been told to."""
        member = self.members.get(worker_id)
        roster = self
        if member is not None:
            roster = roster._with(replace(member, state=WorkerState.LEAVING))
        return roster.shut_down() if is_for_all else roster

    def moved(self, worker_id: str) -> Roster:
        """A worker's executor is to go: it has to run elsewhere."""
        member = self.members.get(worker_id)
        return self if member is None else self._with(replace(member, must_leave=True))

    def ended(self, worker_id: str, error: str | None, now: float) -> Roster:
        """A worker has said its last word."""
        member = self.members.get(worker_id)
        if member is None:
            return self
        roster = self._without(worker_id, now)
        slot = roster.slots.get(member.slot)
        if slot is not None and error is None and member.state is WorkerState.LEAVING:
            roster = roster._with_slot(replace(slot, has_left=True))
        if error is not None and not self.has_started:
            return roster.shut_down(error)
        return roster

    def disconnected(self, worker_id: str, now: float) -> Roster:
        """A worker's connection has broken; it may come again."""
        member = self.members.get(worker_id)
        if member is None:
            return self
        if member.state is WorkerState.STANDBY:
            return self._without(worker_id, now)  # it has nothing to lose
        return self._with(replace(member, is_connected=False, heard=now))

    def job_ended(self, slot: int, submission: int, error: str | None, now: float) -> Roster:
        """Spark is done with a slot's job, well (no ``error``) or not."""
        ended = self.slots.get(slot)
        if ended is None or ended.job != submission:
            return self
        roster = self
        for member in self.members.values():
            if member.slot == slot and not member.is_connected:
                roster = roster._without(member.worker_id, now)
        failures = 0 if ended.has_left else ended.failures + 1
        pause = backoff(self.options, failures)
        roster = roster._with_slot(
            replace(ended, job=None, failures=failures, retry_at=now + pause, emptied=now)
        )
        if error is not None and ended.is_wanted and not self.has_started:
            return roster.shut_down(error)
        return roster

    # --- what to do

    def settle(self, now: float) -> tuple[Roster, tuple[Action, ...]]:
        """The roster once these actions are taken, in this order."""
        actions: list[Action] = []
        roster = self
        for member in self.members.values():
            if now - member.heard < self.options.lost_after:
                continue
            if member.is_connected:
                actions.append(Drop(member.worker_id))
                roster = roster._with(replace(member, is_connected=False))
            else:
                roster = roster._without(member.worker_id, now)
        for number in sorted(roster.slots):
            roster = roster._settle_workers(number, actions)
            roster = roster._settle_job(number, now, actions)
        for member in roster.members.values():
            is_leaving = member.state is WorkerState.LEAVING
            if member.slot not in roster.slots and member.is_connected and not is_leaving:
                # It was lost when its slot was given up.
                actions.append(TellShutDown(member.worker_id))
                roster = roster._with(replace(member, state=WorkerState.LEAVING))
        if roster.state is FleetState.SHUTTING_DOWN and not roster.slots:
            state = FleetState.ENDED if roster.error is None else FleetState.FAILED
            roster = replace(roster, state=state)
        return roster, tuple(actions)

    def next_at(self, now: float) -> float:
        """When `settle` has something to do again if nothing happens; an instant."""
        due = [now + self.options.heartbeat_interval]
        due += [
            slot.retry_at for slot in self.slots.values() if slot.is_wanted and slot.job is None
        ]
        return min(due)

    def _settle_workers(self, number: int, actions: list[Action]) -> Roster:
        slot = self.slots[number]
        here = sorted(
            (m for m in self.members.values() if m.slot == number and m.is_connected),
            key=lambda member: member.joined,
        )
        roster = self
        at_work = [m for m in here if m.state in _AT_WORK]
        # Of two, Spark knows the later one only: it began it since it had lost the other.
        keep = [m for m in at_work if not m.must_leave][-1:] if slot.is_wanted else []
        for member in at_work:
            if member not in keep:
                actions.append(TellShutDown(member.worker_id))
                roster = roster._with(replace(member, state=WorkerState.LEAVING))
        is_busy = any(m not in keep for m in at_work) or any(
            m.state is WorkerState.LEAVING for m in here
        )
        for member in (m for m in here if m.state is WorkerState.STANDBY):
            if slot.is_wanted and not keep and not member.must_leave:
                keep = [member]
                actions.append(TellStart(member.worker_id))
                roster = roster._with(replace(member, state=WorkerState.STARTING))
            elif member.must_leave or (not slot.is_wanted and not is_busy):
                actions.append(TellShutDown(member.worker_id))
                roster = roster._with(replace(member, state=WorkerState.LEAVING))
            elif not member.is_told:
                actions.append(TellWait(member.worker_id))
                roster = roster._with(replace(member, is_told=True))
        return roster

    def _settle_job(self, number: int, now: float, actions: list[Action]) -> Roster:
        slot = self.slots[number]
        if slot.is_wanted:
            if slot.job is not None or now < slot.retry_at:
                return self
            submission = slot.submissions + 1
            actions.append(Submit(number, submission))
            return self._with_slot(
                replace(
                    slot,
                    job=submission,
                    submissions=submission,
                    has_joined=False,
                    has_left=False,
                    is_cancelled=False,
                    emptied=now,
                )
            )
        if slot.job is None:
            slots = {n: other for n, other in self.slots.items() if n != number}
            return replace(self, slots=slots)
        if slot.is_cancelled or (self._connected(number) and not self.is_abandoned):
            return self
        is_overdue = now - slot.emptied >= self.options.lost_after
        if self.is_abandoned or not slot.has_joined or is_overdue:
            actions.append(Cancel(number, slot.job))
            return self._with_slot(replace(slot, is_cancelled=True))
        return self

    def _connected(self, slot: int) -> bool:
        return any(m.slot == slot and m.is_connected for m in self.members.values())

    def _at_work(self, slot: int) -> bool:
        return any(
            m.slot == slot and m.is_connected and m.state in _AT_WORK for m in self.members.values()
        )

    def _with(self, member: Member) -> Roster:
        return replace(self, members={**self.members, member.worker_id: member})

    def _without(self, worker_id: str, now: float) -> Roster:
        members = {key: member for key, member in self.members.items() if key != worker_id}
        roster = replace(self, members=members)
        slot = self.slots.get(self.members[worker_id].slot)
        if slot is not None and not roster._connected(slot.number):
            roster = roster._with_slot(replace(slot, emptied=now))
        return roster

    def _with_slot(self, slot: Slot) -> Roster:
        return replace(self, slots={**self.slots, slot.number: slot})


def backoff(options: FleetOptions, failures: int) -> float:
    """Seconds until a slot's job is submitted again, after so many failures in a row."""
    if not failures:
        return 0.0
    return float(min(options.longest_backoff, options.first_backoff * 2.0 ** min(failures - 1, 30)))
