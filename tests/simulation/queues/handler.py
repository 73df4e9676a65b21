"""The application's handler, which behaves as a history says, and the journal of its calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from sparkinesis.queue.record import QueueRecord
from sparkinesis.worker.dead_letters.targets import FailedRecords
from tests.simulation.coroutines import Pauses
from tests.simulation.queues.history import Behaviour
from tests.simulation.scheduler import Killed, Process, Scheduler

_SLICE = 5.0
"""Seconds after which a handler that takes long looks about."""
_TOLD_WITHIN = 15.0
"""Seconds from the end of a hold until its handler is told: a call without an answer may last."""

_GIVES_UP = 0.2
"""How likely a handler ends when it finds that a record is no longer held."""


class SimulatedFailureError(Exception):
    """An error that a simulated handler raises."""


@dataclass(eq=False)
class Run:
    """One user record in one call of the handler."""

    process: Process
    name: str
    record: QueueRecord
    began: float
    ended: float | None = None
    outcome: str = "running"
    """Then ``done``, ``failed`` or ``cancelled``."""
    by_hand: str | None = None
    """How the handler settled the record before its end."""

    @property
    def handle(self) -> str:
        return self.record._received.receipt_handle

    @property
    def is_over(self) -> bool:
        return self.ended is not None or self.process.is_killed

    @property
    def was_told(self) -> bool:
        """True if the product has let the record go: told its handler, and stopped extending it."""
        return self.record._held.is_let_go


@dataclass(eq=False)
class Journal:
    """All calls of handlers."""

    scheduler: Scheduler
    runs: list[Run] = field(default_factory=list)
    of_handle: dict[str, dict[int, Run]] = field(default_factory=lambda: defaultdict(dict))
    """By receipt handle and sub-sequence number."""
    of_record: dict[str, list[Run]] = field(default_factory=lambda: defaultdict(list))
    done: set[str] = field(default_factory=set)
    """The user records that a call has returned for."""
    dead: set[str] = field(default_factory=set)
    """Those that a target of dead letters has stored."""
    wrong: list[str] = field(default_factory=list)
    """What was seen at once to be wrong, by the invariant's name."""
    behaviour: Behaviour = field(default_factory=Behaviour)
    woke: dict[Process, float] = field(default_factory=dict)
    """When a process that slept has woken last."""

    def slept(self, process: Process, since: float) -> bool:
        return self.woke.get(process, float("-inf")) >= since

    # --- the handler

    def handler(self, *, takes_batch: bool, is_async: bool) -> Callable[[Any], Any]:
        def steps(given: Any) -> Generator[float, None, object]:
            failed = yield from self._steps(given if takes_batch else [given])
            return failed if takes_batch else None

        def plain(given: Any) -> object:
            running = steps(given)
            while True:
                try:
                    seconds = next(running)
                except StopIteration as end:
                    return end.value
                self.scheduler.sleep(seconds)

        async def coroutine(given: Any) -> object:
            return await Pauses(steps(given))

        return coroutine if is_async else plain

    def _steps(self, records: list[QueueRecord]) -> Generator[float, None, list[QueueRecord]]:
        rng, behaviour = self.scheduler.rng, self.behaviour
        runs = [self._begin(record) for record in records]
        failed: list[Run] = [run for run in runs if self._is_poisoned(run)]
        try:
            seconds = rng.uniform(0.0, 0.06)
            if rng.random() < behaviour.hang:
                seconds = rng.uniform(40.0, 90.0)
            elif rng.random() < behaviour.slow:
                seconds = rng.uniform(1.0, 25.0)
            settles_at = seconds / 2 if rng.random() < behaviour.by_hand else float("-inf")
            while seconds > 0:
                yield min(seconds, _SLICE)
                seconds -= _SLICE
                is_lost = not all(run.record.is_held for run in runs)
                if seconds > 0 and is_lost and rng.random() < _GIVES_UP:
                    raise SimulatedFailureError("others have the record")
                if seconds <= settles_at:
                    settles_at = float("-inf")
                    self._settle(rng.choice(runs))
            if rng.random() < behaviour.fail or (failed and len(runs) == 1):
                raise SimulatedFailureError("simulated")
            if len(runs) > 1:  # a batch names those that fail
                failed += [run for run in runs if rng.random() < behaviour.fail]
        except SimulatedFailureError:
            self._end(runs, runs)
            raise
        except BaseException as error:
            if not isinstance(error, Killed | GeneratorExit):
                self._end(runs, runs, "cancelled")
            raise
        self._end(runs, failed)
        return [run.record for run in failed]

    def _begin(self, record: QueueRecord) -> Run:
        task, now = self.scheduler.current, self.scheduler.now
        assert task is not None
        run = Run(task.process, record.data.split()[0].decode(), record, now)
        # A process that wakes between the look and the call cannot know.
        if not record.is_held and not self.slept(run.process, now):
            self.wrong.append(f"one_at_a_time: {run.name} begins at {now:.3f}, and is not held")
        self.runs.append(run)
        self.of_handle[run.handle][record.sub_sequence_number] = run
        self.of_record[record.record_id].append(run)
        return run

    def _end(self, runs: list[Run], failed: list[Run], outcome: str = "failed") -> None:
        now = self.scheduler.now
        for run in runs:
            run.ended, run.outcome = now, outcome if run in failed else "done"
            if run.outcome == "done":
                self.done.add(run.name)
            late = run.process.monotonic() - run.record._held.until
            # One that has woken a moment ago did not come to look at its deadlines.
            was_asleep = self.slept(run.process, now - _TOLD_WITHIN)
            if late > _TOLD_WITHIN and not (run.was_told or run.by_hand or was_asleep):
                self.wrong.append(
                    f"extended_or_let_go: the hold of {run.name} ended {late:.1f} s before "
                    f"{now:.3f}, and its handler was not told"
                )

    def _settle(self, run: Run) -> None:
        how = self.scheduler.rng.choice(("ack", "retry_in", "release"))
        seconds = (self.scheduler.rng.randint(0, 20),) if how == "retry_in" else ()
        run.by_hand = how
        if not getattr(run.record, how)(*seconds):
            run.by_hand = None

    def _is_poisoned(self, run: Run) -> bool:
        poison = self.behaviour.poison
        return poison is not None and int(run.name[1:]) % poison == poison - 1

    def take_dead(self, failed: FailedRecords) -> None:
        """The target of dead letters."""
        if self.scheduler.rng.random() < self.behaviour.fail:
            raise SimulatedFailureError("the target")
        for record in failed.batch.records:
            self.dead.add(record.data.split()[0].decode())
