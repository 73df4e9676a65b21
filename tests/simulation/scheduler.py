"""Cooperative tasks in virtual time: one runs at a time, and a seed decides which is next.

A task is a greenlet that runs until it parks: nothing else happens meanwhile, and no time passes.
When no task can run, time jumps to the next timer. Tasks belong to processes, which can be killed
and paused as an operating system would: without a word, between any two of its steps.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

import greenlet

_TIMER = Callable[[], object]


class Killed(BaseException):
    """Ends the tasks of a world that is over; every further operation of theirs raises it."""


class Process:
    """A group of tasks that lives and dies as one, with a monotonic clock of its own."""

    def __init__(self, scheduler: Scheduler, name: str, clock_offset: float) -> None:
        self.name = name
        self.tasks: set[Task] = set()
        """The tasks that have not ended; for a killed process, those that it had."""
        self.is_killed = False
        self.is_paused = False
        self._scheduler = scheduler
        self._clock_offset = clock_offset
        self._held_back: list[Task] = []

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def is_alive(self) -> bool:
        return not self.is_killed and bool(self.tasks)

    def monotonic(self) -> float:
        """The monotonic clock in seconds; each process has another origin."""
        return self._scheduler.now + self._clock_offset

    def stood_still(self, seconds: float) -> None:
        """Stops its own clock for so long, like a suspended machine."""
        self._clock_offset -= seconds

    def kill(self) -> None:
        """Stops all its tasks for good. Requests that were sent still arrive."""
        self.is_killed = True

    def pause(self) -> None:
        """Stops its tasks while time passes."""
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held_back, self._held_back = self._held_back, []
        for task in held_back:
            self._scheduler.make_ready(task)

    def hold_back(self, task: Task) -> None:
        self._held_back.append(task)


class Task:
    """One thread of control of a process."""

    __slots__ = (
        "control",
        "has_ended",
        "has_timed_out",
        "is_parked",
        "name",
        "process",
        "thread",
        "waits",
    )

    def __init__(self, process: Process, name: str) -> None:
        self.name = name
        self.process = process
        self.has_ended = False
        self.thread: Any = None
        """The simulated thread, for the primitives."""
        self.control: Any = None
        """Its greenlet."""
        self.is_parked = False
        self.has_timed_out = False
        self.waits = 0
        """The number of the present wait: the timer of an earlier wait must not end it."""


class Scheduler:
    """All tasks, timers and processes of one world; its randomness, and its time.

    preempt: how likely a task is to let others run at a place where it need not wait.
    """

    def __init__(self, seed: int, *, preempt: float = 0.0, start: float = 0.0) -> None:
        self.rng = random.Random(seed)
        self.now = start
        """Virtual seconds."""
        self.current: Task | None = None
        self.has_ended = False
        self.failures: list[tuple[Task, BaseException]] = []
        """Errors that ended a task; no task of the package should raise."""
        self._preempt = preempt
        self._random = self.rng.random
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, _TIMER]] = []
        self._count = 0
        self._tasks: list[Task] = []
        self._hub = greenlet.getcurrent()

    # --- what the world does

    def process(self, name: str) -> Process:
        return Process(self, name, self.rng.uniform(0.0, 100_000.0))

    def spawn(self, process: Process, name: str, run: Callable[[], object]) -> Task:
        """Creates a task, which begins at its turn."""
        if self.has_ended:
            raise Killed
        task = Task(process, name)
        task.control = greenlet.greenlet(lambda: self._run_task(task, run), self._hub)
        process.tasks.add(task)
        self._tasks.append(task)
        self._ready.append(task)
        return task

    def at(self, instant: float, call: _TIMER) -> None:
        """Schedules a call at an instant, outside of all tasks. The call must not park."""
        self._count += 1
        heapq.heappush(self._timers, (instant, self._count, call))

    def run_until(self, instant: float) -> None:
        """Runs everything that is due by then."""
        ready, timers = self._ready, self._timers
        while True:
            while ready:
                task = self._pick(ready)
                process = task.process
                if process.is_killed:
                    continue
                if process.is_paused:
                    process.hold_back(task)
                    continue
                self.current = task
                task.control.switch()
                self.current = None
            if not timers or timers[0][0] > instant:
                self.now = max(self.now, instant)
                return
            due, _, call = heapq.heappop(timers)
            self.now = max(self.now, due)
            call()

    def _pick(self, ready: list[Task]) -> Task:
        last = len(ready) - 1
        if last:
            index = int(self._random() * (last + 1))
            ready[index], ready[last] = ready[last], ready[index]
        return ready.pop()

    def end(self) -> None:
        """Ends every task, so that nothing of this world is left."""
        self.has_ended = True
        for task in self._tasks:
            if task.control:  # begun, and not ended
                self.current = task
                task.control.throw(Killed)
        self.current = None
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()

    # --- what tasks do

    def park(self, timeout: float | None = None) -> bool:
        """Lets others run until this task is woken, or for ``timeout`` seconds.

        Returns True if the task was woken.
        """
        task = self._running()
        task.waits += 1
        task.is_parked = True
        task.has_timed_out = False
        if timeout is not None:
            waits = task.waits
            self.at(self.now + timeout, lambda: self._time_out(task, waits))
        self._switch()
        return not task.has_timed_out

    def pause(self) -> None:
        """Lets others run, and resumes at this task's turn."""
        self._ready.append(self._running())
        self._switch()

    def maybe_pause(self) -> None:
        """Calls `pause` with the probability ``preempt``."""
        if self.has_ended:
            raise Killed
        if self._preempt and self.current is not None and self._random() < self._preempt:
            self.pause()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.park(seconds)
        else:
            self.pause()

    def wake(self, task: Task) -> None:
        """Makes a parked task ready; does nothing for other tasks."""
        if task.is_parked:
            task.is_parked = False
            self._ready.append(task)

    def make_ready(self, task: Task) -> None:
        self._ready.append(task)

    def _running(self) -> Task:
        if self.has_ended:
            raise Killed
        assert self.current is not None, "only a task can wait"
        return self.current

    def _switch(self) -> None:
        self._hub.switch()
        if self.has_ended:
            raise Killed

    def _time_out(self, task: Task, waits: int) -> None:
        if task.is_parked and task.waits == waits:
            task.has_timed_out = True
            self.wake(task)

    def _run_task(self, task: Task, run: Callable[[], object]) -> None:
        try:
            run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - told by the world
            self.failures.append((task, error))
        finally:
            task.has_ended = True
            task.process.tasks.discard(task)
