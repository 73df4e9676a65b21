"""An elastic pool of threads that runs steps: work that says by itself when it is to go on.

A worker has hundreds of shards, of which few have something to do at a time. So a shard holds a
thread only while one of its steps runs: a call of a record processor, or a call of the service.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from enum import Enum, auto

from sparkinesis.metrics.health.liveness import Part
from sparkinesis.metrics.health.signs import PATIENCE, QueueSign, detach
from sparkinesis.worker.retrieval.pool_growth import (
    FIRST_THREADS,
    JOIN,
    REFUSED,
    TICK,
    threads_to_add,
)

_log = logging.getLogger(__name__)

_KEEP = 10.0
"""Seconds after which a thread without work ends."""


class _State(Enum):
    WAITING = auto()
    """Until its time, or until it is woken."""
    READY = auto()
    """Due: it waits for a thread."""
    RUNNING = auto()
    ENDED = auto()


class Work:
    """One piece of work in a `StepPool`, whose steps never overlap. For any thread.

    run: takes one step; returns the seconds until the next one (0: at once; infinite: when it is
    woken), or None if it was the last one. An error ends the work; `run` reports it before.
    """

    def __init__(self, pool: StepPool, run: Callable[[], float | None], context: Context) -> None:
        self._pool = pool
        self._run = run
        self._context = context
        self._state = _State.WAITING
        self._is_woken = False
        self._is_patient = False
        """True if it is due by its time: it may wait for a thread that takes other such steps."""
        self._is_started = False
        self._due = math.inf
        self._ready_at = 0.0
        self._guest: Work | None = None
        """Work of another pool, whose next step this one's thread takes after the present step."""

    @property
    def has_ended(self) -> bool:
        """True after the last step, or an error."""
        return self._state is _State.ENDED

    def start(self) -> None:
        """Take the first step as soon as a thread is free.

        Raises RuntimeError if the operating system permits no thread at all.
        """
        self._pool._start(self)

    def wake(self, by: Work | None = None) -> None:
        """Take the next step now, or right after the present one. Does nothing before `start`.

        by: the work, of another pool, whose step makes this call. Its thread then takes the step
        that is woken, after its own: no other thread has to wake up for that. One thread of a pool
        at a time is lent so, as the step may take long.
        """
        self._pool._wake(self, by)


class StepPool:
    """Runs steps in as many threads as they hold at a time. For any thread.

    A thread is added when a step has waited a moment although this process had CPU time: the
    threads are held by calls that block. So a short step needs no thread of its own, and no step
    waits for another that blocks for long. Threads end after some seconds without work; the last
    ones when the pool is closed and all its work has ended.

    Steps that are due by their time are taken one after the other by one thread, which another
    joins every few ticks. Steps that were woken, or go on at once, get a thread each.

    Of the threads without work, the one that had work last is used: its memory is warm, and the
    others may end.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._ready: deque[Work] = deque()
        self._impatient = 0
        """The number of those that do not wait for a thread."""
        self._timers: list[tuple[float, int, Work]] = []
        """A heap. An entry counts only while the work's ``_due`` is this instant."""
        self._pushed = 0
        self._idle: list[_Bell] = []
        """Threads without work; the last one had work last."""
        self._summoned = 0
        """Threads that were rung for, and have not looked for work yet."""
        self._idents: set[int] = set()
        self._made = 0
        self.threads = 0
        """The number of threads now, without the one that watches the time."""
        self.unfinished = 0
        """The amount of work that was started and has not ended."""
        self._dispatcher = _Bell()
        self._added_at = -math.inf
        """The time at which the last thread was added."""
        self._refused_until = -math.inf
        """The time until which no thread is added, after the operating system has refused one."""
        self._wakes_at = math.inf
        """The time at which the dispatcher looks again, if nobody rings before."""
        self._dispatching: threading.Thread | None = None
        self._is_lending = False
        """True while a thread takes the step of another pool's work, or is about to."""
        self._away = 0
        """Steps that threads of other pools take, or are about to."""
        self._taken = 0
        """Steps that have begun."""
        self._progress = QueueSign(clock)
        self._is_closed = False

    def new_work(
        self, run: Callable[[], float | None], prepare: Callable[[], object] | None = None
    ) -> Work:
        """Return work that is to be started. Each step runs in a copy of the present context.

        prepare: called once within this copy, for example to name the work in log lines.
        """
        context = copy_context()
        context.run(detach)
        if prepare is not None:
            context.run(prepare)
        return Work(self, run, context)

    def runs_here(self) -> bool:
        """Return True in a thread of this pool."""
        return threading.get_ident() in self._idents

    def part(self, name: str) -> Part:
        """Return the pool as a part of a process that must go on. For one thread at a time.

        It stands still if no step begins although some are due, or if nobody watches the time.
        Steps that block, and an operating system that permits no more threads, are no matter of it.
        Takes no lock: the thread that has it may be what stands still.
        """
        is_blocked = self._clock() < self._refused_until
        taken = None if is_blocked or not self._ready else self._taken
        due = min(self._progress.due(taken), self._wakes_at + PATIENCE)
        watch = self._dispatching
        is_dead = watch is not None and not watch.is_alive() and self.unfinished > 0
        return Part(name, due, is_dead)

    @property
    def is_at_work(self) -> bool:
        """True while a step is being taken, or could be taken now."""
        with self._lock:
            is_busy = len(self._idle) + self._summoned < self.threads
            return bool(self._ready or self._away) or is_busy

    def look_at_time(self) -> None:
        """Begin the steps that are due by the clock, which somebody has moved."""
        with self._lock:
            self._begin_due(self._clock())
        self._dispatcher.ring()

    def close(self) -> None:
        """Have the threads end as soon as all work has ended."""
        with self._lock:
            self._is_closed = True
            self._end_if_over()

    # --- the states of work

    def _start(self, work: Work) -> None:
        with self._lock:
            if work._is_started:
                return
            if self._dispatching is None:
                self._dispatching = self._spawn(self._dispatch, "watch")
            work._is_started = True
            self.unfinished += 1
            self._make_ready(work)
            self._summon()

    def _wake(self, work: Work, by: Work | None) -> None:
        with self._lock:
            if work._state is _State.RUNNING:
                work._is_woken = True
            elif work._state is _State.WAITING and work._is_started:
                if by is not None and by._pool._lends_to(self):
                    work._state, work._due = _State.READY, math.inf
                    by._guest = work
                    self._away += 1
                else:
                    self._make_ready(work)
                    self._summon()

    def _lends_to(self, other: StepPool) -> bool:
        """Lend the present thread, from the end of its step on, if no other is lent."""
        if self is other:
            return False
        with self._lock:
            is_free = not self._is_lending
            self._is_lending = True
        return is_free

    def _make_ready(self, work: Work, *, is_patient: bool = False) -> None:
        work._state = _State.READY
        work._is_patient = is_patient
        work._due = math.inf
        work._ready_at = self._clock()
        self._impatient += not is_patient
        self._ready.append(work)

    def _take_ready(self) -> Work:
        """Take the step that is ready for longest; have another thread take those in a hurry."""
        work = self._ready.popleft()
        work._state = _State.RUNNING
        self._taken += 1
        self._impatient -= not work._is_patient
        if self._impatient:
            self._summon()
        elif self._ready:
            self._look_at(self._clock() + JOIN)
        return work

    def _summon(self) -> None:
        """Have a thread look for work, if there is work that nobody looks for already."""
        if not self._ready or self._summoned:
            return
        if self._idle:
            self._summoned += 1
            self._idle.pop().ring()
        elif self.threads < FIRST_THREADS and self._clock() >= self._refused_until:
            self._add_thread()
        else:
            self._look_at(self._clock() + TICK)

    def _finished(self, work: Work, pause: float | None) -> None:
        """Note that a step was taken; within the lock."""
        if pause is None:
            work._state = _State.ENDED
            self.unfinished -= 1
            self._end_if_over()
        elif work._is_woken or pause <= 0:
            work._is_woken = False
            self._make_ready(work)
        else:
            work._state = _State.WAITING
            if pause < math.inf:
                work._due = self._clock() + pause
                self._pushed += 1
                heapq.heappush(self._timers, (work._due, self._pushed, work))
                self._look_at(work._due)

    def _end_if_over(self) -> None:
        if self._is_closed and not self.unfinished:
            self._dispatcher.ring()
            while self._idle:
                self._summoned += 1
                self._idle.pop().ring()

    # --- the threads that take steps

    def _add_thread(self) -> None:
        try:
            self._spawn(self._run_thread, str(self._made + 1))
        except RuntimeError as error:
            # The limit of the machine or the container. The dispatcher tries again.
            _log.warning(
                "%s has %d threads, and no other can start: %s", self._name, self.threads, error
            )
            self._refused_until = self._clock() + REFUSED
            self._look_at(self._refused_until)
            return
        self._added_at = self._clock()
        self._made += 1
        self.threads += 1
        self._summoned += 1

    def _spawn(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=f"{self._name}-{name}", daemon=True)
        thread.start()
        return thread

    def _run_thread(self) -> None:
        bell = _Bell()
        me = threading.get_ident()
        self._idents.add(me)
        is_summoned = True
        work: Work | None = None
        pause: float | None = None
        while True:
            guest: Work | None = None
            with self._lock:
                if is_summoned:
                    self._summoned -= 1
                    is_summoned = False
                if work is not None:
                    self._finished(work, pause)
                    guest, work._guest = work._guest, None
                    work = None
                if guest is not None:
                    self._summon()
                elif self._ready:
                    work = self._take_ready()
                elif self._is_closed and not self.unfinished:
                    break
                else:
                    self._idle.append(bell)
            if guest is not None:
                guest._pool._take_away(guest, me)
                with self._lock:
                    self._is_lending = False
            elif work is not None:
                pause = self._take(work)
            else:
                is_summoned = True
                if not bell.wait(_KEEP):
                    with self._lock:
                        if bell in self._idle:
                            self._idle.remove(bell)
                            break
                    bell.wait()  # somebody rings right now
        with self._lock:
            self.threads -= 1
            self._idents.discard(me)

    def _take_away(self, work: Work, me: int) -> None:
        """Take a step in the thread ``me`` of another pool."""
        with self._lock:
            self._idents.add(me)
            work._state = _State.RUNNING
            self._taken += 1
        pause = self._take(work)
        with self._lock:
            self._idents.discard(me)
            self._away -= 1
            self._finished(work, pause)
            self._summon()

    def _take(self, work: Work) -> float | None:
        try:
            return work._context.run(work._run)
        except BaseException as error:  # noqa: BLE001 - or the thread would be lost to the others
            self._failed(error)
            return None

    def _failed(self, error: BaseException) -> None:
        """Report an error that the work itself should have handled."""
        _log.error("A step of %s ended with an error.", self._name, exc_info=error)

    # --- the thread that watches the time

    def _look_at(self, instant: float) -> None:
        """Have the dispatcher look at an instant at the latest."""
        if instant < self._wakes_at - TICK:
            self._wakes_at = instant
            self._dispatcher.ring()

    def _dispatch(self) -> None:
        """Make steps ready when they are due, and add threads."""
        while True:
            with self._lock:
                if self._is_closed and not self.unfinished:
                    return
                now = self._clock()
                late = now - self._wakes_at
                self._begin_due(now)
                self._add_threads(now, is_on_time=late < TICK / 2)
                self._wakes_at = max(self._next_look(now), now + TICK)
                pause = self._wakes_at - now
            self._dispatcher.wait(None if pause == math.inf else pause)

    def _begin_due(self, now: float) -> None:
        timers = self._timers
        while timers and timers[0][0] <= now:
            due, _, work = heapq.heappop(timers)
            if work._due == due:
                self._make_ready(work, is_patient=True)
        if self._ready:
            self._summon()

    def _next_look(self, now: float) -> float:
        timers = self._timers
        while timers and timers[0][2]._due != timers[0][0]:
            heapq.heappop(timers)  # the step was woken before
        due = timers[0][0] if timers else math.inf
        if len(self._ready) <= self._summoned:
            return due  # each of those that are ready has a thread that looks for it
        return min(due, now + (TICK if self._impatient else JOIN))

    def _add_threads(self, now: float, *, is_on_time: bool) -> None:
        """Add threads for steps that wait, if the present threads are held by calls that block."""
        if not self._ready or self._idle or self._summoned or now < self._refused_until:
            return
        count = threads_to_add(
            self.threads,
            (now - work._ready_at for work in self._ready),
            added_ago=now - self._added_at,
            is_on_time=is_on_time,
        )
        for _ in range(count):
            if now >= self._refused_until:
                self._add_thread()


class _Bell:
    """Wakes one waiting thread. A ring before the wait counts; two of them count once."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has rung already
            self._silent.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a ring; return False if none came within so many seconds."""
        return self._silent.acquire(timeout=-1 if timeout is None else timeout)
