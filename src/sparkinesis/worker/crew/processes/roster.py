"""The worker processes that there are and should be. Pure.

Each wanted process has a slot. Events come in by methods that return a new roster; `actions` finds
what is to be done. A process that ends without an order is started again, ever later if it does so
again and again. An error that each worker would meet ends all of them.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from sparkinesis.status import FleetState, WorkerState
from sparkinesis.stream.calls.retry import exponential_backoff
from sparkinesis.worker.crew.gathering.reports import Present
from sparkinesis.worker.crew.messages import Ended, Introduction, Leaving, Raised

UNGUARDED = 113
"""The exit code of a process that would start workers while it imports its main module."""
FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 60.0
"""Seconds until a process is started again: after a first failure, and at most."""
SETTLED = 60.0
"""Seconds of life after which the end of a process is a first failure again."""
SILENT_AFTER = 10.0
"""Seconds without a report, of which there is one each second, after which a worker is silent."""
KILL_AFTER = 10.0
"""Seconds that a process has to end once the time for its shutdown is up; then it is killed."""


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of one worker process. Instants are of the supervisor's monotonic clock."""

    number: int
    """From 1."""
    is_alive: bool = False
    """A process was started, and has not ended."""
    since: float = -math.inf
    """The time at which the process was started."""
    worker: Introduction | None = None
    """Who the process is; None until it says so."""
    heard: float = -math.inf
    """The time of its last message."""
    is_running: bool = False
    """Its worker has started and takes leases."""
    is_leaving: bool = False
    """Its worker shuts down on its own initiative."""
    error: Raised | None = None
    """The error that ended the worker, as the process has told it."""
    ended: Ended | None = None
    """The last message of the process."""
    was_killed: bool = False
    """The supervisor has killed the process."""
    failures: int = 0
    """Consecutive failures."""
    retry_at: float = -math.inf
    """The time at which the next process is due."""

    @property
    def worker_state(self) -> WorkerState:
        """The state of its worker, as far as the process has told it."""
        if self.is_leaving or self.ended is not None:
            return WorkerState.LEAVING
        return WorkerState.RUNNING if self.is_running else WorkerState.STARTING

    @property
    def name(self) -> str:
        """The worker's id, or the place if it is not known."""
        return f"process {self.number}" if self.worker is None else self.worker.worker_id


@dataclass(frozen=True, slots=True)
class Fatal:
    """Why no worker can run: the supervisor raises it."""

    text: str
    raised: Raised | None = None
    """The error of the worker that met it."""
    is_unguarded: bool = False
    """The program starts workers when it is imported."""


@dataclass(frozen=True, slots=True)
class StartProcess:
    """Start a process for a slot."""

    slot: int


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the process of a slot."""

    slot: int


Action: TypeAlias = StartProcess | Kill


@dataclass(frozen=True, slots=True)
class Roster:
    """All slots at one moment."""

    slots: Mapping[int, Slot]
    state: FleetState = FleetState.RUNNING
    fatal: Fatal | None = None
    has_started: bool = False
    """True once a process has told who it is: the program can be imported."""
    are_all_graceful: bool = True
    """True while every process that was to end has done so in time."""
    kill_at: float = math.inf
    """The time at which the processes that are left are killed."""
    notes: tuple[str, ...] = ()
    """What to log, oldest first."""
    restarts: int = 0

    @classmethod
    def of(cls, count: int) -> Roster:
        """Return the roster of so many wanted processes, of which none has been started."""
        return cls({number: Slot(number) for number in range(1, count + 1)})

    # --- events

    def started(self, number: int, now: float) -> Roster:
        """A process was started."""
        slot = self.slots[number]
        again = slot.since > -math.inf
        fresh = Slot(number, is_alive=True, since=now, failures=slot.failures)
        return replace(self._with(fresh), restarts=self.restarts + again)

    def not_started(self, number: int, error: str, now: float, draw: float) -> Roster:
        """A process could not be started, as memory or processes have run out; see `died`."""
        slot = self.slots[number]
        failures = slot.failures + 1
        pause = _pause(failures, draw)
        return self._with(replace(slot, failures=failures, retry_at=now + pause))._note(
            f"Worker process {number} could not be started: {error}. Another try follows in "
            f"{pause:.1f} s"
        )

    def introduced(self, number: int, worker: Introduction, now: float) -> Roster:
        """A process has told who it is: its worker starts."""
        told = replace(self.slots[number], worker=worker, heard=now)
        return replace(self._with(told), has_started=True)

    def reported(self, number: int, now: float, *, is_running: bool) -> Roster:
        """A worker has reported."""
        return self._with(replace(self.slots[number], heard=now, is_running=is_running))

    def left(self, number: int, leaving: Leaving, now: float, within: float) -> Roster:
        """A worker shuts down on its own initiative; ``within``: seconds that the others have."""
        roster = self._with(replace(self.slots[number], is_leaving=True))
        roster = roster._note(f"Worker {roster.slots[number].name} shuts down: {leaving.why}")
        return roster.shut_down(now, within) if leaving.is_for_all else roster

    def failed(self, number: int, error: Raised) -> Roster:
        """A process has told the error that ends its worker."""
        return self._with(replace(self.slots[number], error=error))

    def ended(self, number: int, ended: Ended) -> Roster:
        """A process has said its last word."""
        return self._with(replace(self.slots[number], ended=ended))

    def died(self, number: int, code: int | None, now: float, within: float, draw: float) -> Roster:
        """A process has ended; ``code``: as multiprocessing gives it, None if it is not known.

        within: seconds that the others have, if they have to end. draw: a random number from 0 to
        1, which keeps processes that failed together from starting together.
        """
        slot = self.slots[number]
        after = replace(slot, is_alive=False)
        if self.state is not FleetState.RUNNING:
            was_graceful = slot.ended is not None and slot.ended.was_graceful
            roster = self._with(after)
            if not was_graceful:
                roster = roster._note(f"{_who(slot)} {how_it_ended(slot, code)}")
            return replace(roster, are_all_graceful=self.are_all_graceful and was_graceful)
        if (fatal := self._fatal(slot, code)) is not None:
            return replace(self._with(after), fatal=fatal).shut_down(now, within)
        is_failure = slot.ended is None or slot.ended.error is not None
        failures = (0 if now - slot.since >= SETTLED else slot.failures) + 1 if is_failure else 0
        pause = _pause(failures, draw)
        after = replace(after, failures=failures, retry_at=now + pause)
        when = f"in {pause:.1f} s" if pause else "now"
        return self._with(after)._note(
            f"{_who(slot)} {how_it_ended(slot, code)}. Another process takes its place {when}; its "
            "shards are read on from their checkpoints"
        )

    def _fatal(self, slot: Slot, code: int | None) -> Fatal | None:
        """Return why all others must end, too: none of them could do better."""
        if slot.ended is not None and slot.ended.error is not None and not slot.ended.is_transient:
            return Fatal(slot.ended.error, slot.error)
        if code == UNGUARDED and slot.worker is None:
            return Fatal("", is_unguarded=True)
        if not self.has_started and code is not None and code > 0:
            return Fatal(
                f"The first worker process {how_it_ended(slot, code)} before it could start a "
                "worker. A process imports the program's main module first: its output says why "
                "that failed"
            )
        return None

    def killed(self, number: int) -> Roster:
        """The supervisor has killed a process."""
        return self._with(replace(self.slots[number], was_killed=True))

    def shut_down(self, now: float, within: float) -> Roster:
        """All processes are told to end within so many seconds; the earliest end counts."""
        kill_at = min(self.kill_at, now + within + KILL_AFTER)
        return replace(self, state=FleetState.SHUTTING_DOWN, kill_at=kill_at)

    def noted(self) -> Roster:
        """The notes were logged."""
        return replace(self, notes=())

    # --- looks

    @property
    def wanted(self) -> int:
        """The number of workers that there should be."""
        return len(self.slots)

    @property
    def waiting(self) -> int:
        """The number of wanted processes that are not there, or have not said who they are."""
        if self.state is not FleetState.RUNNING:
            return 0
        return sum(not slot.is_alive or slot.worker is None for slot in self.slots.values())

    @property
    def error(self) -> str | None:
        """Why no worker can run; None if nothing is known to prevent it."""
        return None if self.fatal is None else self.fatal.text

    @property
    def silent_after(self) -> float:
        """Seconds after which a worker without a report counts as silent."""
        return SILENT_AFTER

    def present(self) -> list[Present]:
        """Return the workers whose process has not ended, by slot."""
        return [
            Present(slot.worker.worker_id, slot.worker_state, slot.heard)
            for slot in self.slots.values()
            if slot.is_alive and slot.worker is not None
        ]

    def actions(self, now: float) -> list[Action]:
        """Return what is to be done now."""
        if self.state is FleetState.RUNNING:
            idle = [slot for slot in self.slots.values() if not slot.is_alive]
            return [StartProcess(slot.number) for slot in idle if slot.retry_at <= now]
        if now < self.kill_at:
            return []
        return [Kill(slot.number) for slot in self._overdue]

    def next_action_at(self) -> float:
        """Return the time of the next action if no event comes before; infinite without one."""
        if self.state is FleetState.RUNNING:
            idle = [slot.retry_at for slot in self.slots.values() if not slot.is_alive]
            return min(idle, default=math.inf)
        return self.kill_at if self._overdue else math.inf

    @property
    def _overdue(self) -> list[Slot]:
        """The slots whose process is killed at `kill_at`, unless it ends before."""
        return [slot for slot in self.slots.values() if slot.is_alive and not slot.was_killed]

    def within(self, now: float) -> float:
        """Return the seconds that processes have for a graceful end, at least 0."""
        return max(0.0, self.kill_at - KILL_AFTER - now)

    @property
    def is_over(self) -> bool:
        """True once a shutdown has nothing more to wait for."""
        alive = any(slot.is_alive for slot in self.slots.values())
        return self.state is not FleetState.RUNNING and not alive

    def _with(self, slot: Slot) -> Roster:
        return replace(self, slots={**self.slots, slot.number: slot})

    def _note(self, text: str) -> Roster:
        return replace(self, notes=(*self.notes, text))


def how_it_ended(slot: Slot, code: int | None) -> str:
    """Return how a process has ended, as the end of a sentence."""
    if slot.ended is not None and slot.ended.error is not None:
        return f"has ended with an error: {slot.ended.error}"
    if code is not None and code < 0:
        advice = " (Linux does so when memory runs out)" if -code == signal.SIGKILL else ""
        return f"was killed by {_signal(-code)}{advice}"
    if code:
        return f"has ended with exit code {code}; its output on stderr may say why"
    if slot.ended is None:
        return "has ended without a word"
    return "has shut down" if slot.ended.was_graceful else "did not shut down in time"


def _pause(failures: int, draw: float) -> float:
    """Return the seconds until a process is started again after so many failures."""
    if not failures:
        return 0.0
    return exponential_backoff(FIRST_BACKOFF, LONGEST_BACKOFF, failures) * (0.5 + draw / 2)


def _who(slot: Slot) -> str:
    if slot.worker is None:
        return f"Worker process {slot.number}"
    return f"Worker {slot.worker.worker_id} (process {slot.number}, pid {slot.worker.pid})"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
