"""An elastic pool of threads that runs steps. Each step says when the next one is due."""

# A worker has hundreds of shards, of which few have something to do at a time. With two threads for
# each shard, 1,000 idle shards took 2,000 threads; the pools take fewer than 64. A shard holds a
# thread only while one of its steps runs: a call of the service, or a call of a record processor.
# Either may block for as long as it likes. What must hold, and by what:
#
# - The steps of one work never overlap, and no wake is lost: a wake during a step is kept in
#   `_is_woken`, and has another step follow. All states change within the one lock.
# - No step waits for another that blocks: a step that has waited for a tick although this process
#   had CPU time shows that calls hold all threads, and one is added.
# - A burst takes few threads. A thousand shards that were due together took forty: beyond 20
#   threads a step now waits for 0.3 s before it gets one. And a process that lacked CPU time got
#   hundreds while the service stood still for a moment: if the thread that watches the time is late
#   itself, one thread in 0.1 s is added at most.
# - Steps that are due by their time are patient: one thread takes them one after the other, which
#   another joins every few ticks. A thread is rung for each of the other steps.
#
# A page wakes the consumer of its shard from within a step of the pool that fetches (`Work.wake`
# with ``by``), and the consumer's step is taken by that same thread, after its own: no other thread
# has to wake up for it. But the step may call a record processor, and take long. So a pool lends
# one thread at a time; if it lent each, slow record processors would hold the threads that fetch.

from __future__ import annotations

import heapq
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from enum import Enum, auto

from sparkinesis.metrics.health.liveness import PATIENCE, Part, QueueSign, detach
from sparkinesis.worker.retrieval.pool_threads import TICK, Bell, PoolThreads, TimeWatch

_log = logging.getLogger(__name__)

JOIN = 0.012
"""Seconds that a step which is due by its time waits for the thread that takes others of its kind,
before another thread joins. An idle shard's poll may be that late."""

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
        that is woken, after its own, unless another thread of its pool is lent already.
        """
        self._pool._wake(self, by)


class StepPool:
    """Runs steps in as many threads as they hold at a time, until it is closed. For any thread."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        """Guards all that follows, and the states of work."""
        self._ready = _ReadySteps()
        self._timers = _Timers()
        self._threads = PoolThreads(name, clock, self._run_thread)
        self._watch = TimeWatch()
        self.unfinished = 0
        """The amount of work that was started and has not ended."""
        self._is_lending = False
        """True while a thread takes the step of another pool's work, or is about to."""
        self._away = 0
        """Steps that threads of other pools take, or are about to."""
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
        return self._threads.is_here()

    @property
    def threads(self) -> int:
        """The number of threads now, without the one that watches the time."""
        return self._threads.count

    def part(self, name: str) -> Part:
        """Return the pool as a part of a process that must go on. For one thread at a time.

        It stands still if no step begins although some are due, or if its watch has died; not
        if steps block, nor if the operating system permits no more threads. Takes no lock: the
        thread that holds it may be what stands still.
        """
        taken = None if self._threads.is_refused or not self._ready else self._ready.taken
        due = min(self._progress.due(taken), self._watch.wakes_at + PATIENCE)
        return Part(name, due, self._watch.is_dead and self.unfinished > 0)

    @property
    def is_at_work(self) -> bool:
        """True while a step is being taken, or could be taken now."""
        with self._lock:
            return bool(self._ready or self._away) or self._threads.is_busy

    def look_at_time(self) -> None:
        """Begin the steps that are due by the clock, after a test has moved it."""
        with self._lock:
            self._begin_due(self._clock())
        self._watch.bell.ring()

    def close(self) -> None:
        """Have the threads end as soon as all work has ended."""
        with self._lock:
            self._is_closed = True
            self._end_if_over()

    # --- the states of work, within the lock

    def _start(self, work: Work) -> None:
        with self._lock:
            if work._is_started:
                return
            if self._watch.thread is None:
                self._watch.thread = self._threads.start(self._watch_time, "watch")
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
        self._ready.add(work)

    def _take_ready(self) -> Work:
        """Take the step that is ready for longest; summon a thread for the impatient ones."""
        work = self._ready.take()
        work._state = _State.RUNNING
        if self._ready.impatient:
            self._summon()
        elif self._ready:
            self._wake_by(self._clock() + JOIN)
        return work

    def _summon(self) -> None:
        """Have a thread look for work, if a step is ready."""
        if self._ready and (again_at := self._threads.summon()) < math.inf:
            self._wake_by(again_at)

    def _finished(self, work: Work, pause: float | None) -> None:
        """Note that a step was taken."""
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
                self._timers.add(work)
                self._wake_by(work._due)

    def _end_if_over(self) -> None:
        if self._is_closed and not self.unfinished:
            self._watch.bell.ring()
            self._threads.dismiss()

    # --- the threads that take steps

    def _run_thread(self) -> None:
        bell = Bell()
        threads = self._threads
        threads.enter()
        is_summoned = True
        work: Work | None = None
        pause: float | None = None
        while True:
            guest: Work | None = None
            with self._lock:
                if is_summoned:
                    threads.summoned -= 1
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
                    threads.rest(bell)
            if guest is not None:
                guest._pool._take_as_guest(guest)
                with self._lock:
                    self._is_lending = False
            elif work is not None:
                pause = self._take(work)
            else:
                is_summoned = True
                if not bell.wait(_KEEP):
                    with self._lock:
                        if threads.may_end(bell):
                            break
                    bell.wait()  # it is rung for right now
        with self._lock:
            threads.retire()

    def _take_as_guest(self, work: Work) -> None:
        """Take a step in the present thread, which is another pool's."""
        with self._lock:
            self._threads.enter()
            work._state = _State.RUNNING
            self._ready.taken += 1
        pause = self._take(work)
        with self._lock:
            self._threads.leave()
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

    def _wake_by(self, instant: float) -> None:
        """Have the watch wake by ``instant``."""
        watch = self._watch
        if instant < watch.wakes_at - TICK:
            watch.wakes_at = instant
            watch.bell.ring()

    def _watch_time(self) -> None:
        """Make steps ready when they are due, and add threads."""
        watch = self._watch
        while True:
            with self._lock:
                if self._is_closed and not self.unfinished:
                    return
                now = self._clock()
                late = now - watch.wakes_at
                self._begin_due(now)
                if self._ready:
                    waits = (now - work._ready_at for work in self._ready)
                    self._threads.grow(waits, is_on_time=late < TICK / 2)
                watch.wakes_at = max(self._next_due(now), now + TICK)
                pause = watch.wakes_at - now
            watch.bell.wait(None if pause == math.inf else pause)

    def _begin_due(self, now: float) -> None:
        for work in self._timers.pop_due(now):
            self._make_ready(work, is_patient=True)
        self._summon()

    def _next_due(self, now: float) -> float:
        due = self._timers.next()
        if len(self._ready) <= self._threads.summoned:
            return due  # each of those that are ready has a thread that looks for it
        return min(due, now + (TICK if self._ready.impatient else JOIN))


class _ReadySteps(deque[Work]):
    """The work whose next step waits for a thread; the one that has waited longest comes first."""

    impatient = 0
    """The number of those that need a thread of their own."""
    taken = 0
    """Steps that have begun."""

    def add(self, work: Work) -> None:
        self.impatient += not work._is_patient
        self.append(work)

    def take(self) -> Work:
        work = self.popleft()
        self.impatient -= not work._is_patient
        self.taken += 1
        return work


class _Timers:
    """The work whose next step has a time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Work]] = []
        """An entry counts only while the work's ``_due`` is this instant."""
        self._added = 0

    def add(self, work: Work) -> None:
        self._added += 1
        heapq.heappush(self._heap, (work._due, self._added, work))

    def pop_due(self, now: float) -> Iterator[Work]:
        while self._heap and self._heap[0][0] <= now:
            due, _, work = heapq.heappop(self._heap)
            if work._due == due:
                yield work

    def next(self) -> float:
        """Return the time of the first step; infinite if there is none."""
        heap = self._heap
        while heap and heap[0][2]._due != heap[0][0]:
            heapq.heappop(heap)  # the step was woken before
        return heap[0][0] if heap else math.inf
