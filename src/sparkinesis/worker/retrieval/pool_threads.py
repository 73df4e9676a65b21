"""The threads of a pool: those without work, and when another one is added."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable, Iterator

_log = logging.getLogger(__name__)

_FIRST_THREADS = 2
"""Threads that are started as soon as they are needed; further ones only after a wait."""

_REFUSED = 1.0
"""Seconds until the next attempt, after the operating system has refused a thread."""

TICK = 0.004
"""Seconds. Steps that are due within one tick begin together, and a step waits that long for a
thread before one is added."""

_STARVED = 0.1
"""Seconds after which a waiting step has a thread added even though this process lacks CPU time,
and between two such threads."""

_PATIENCE = ((20, TICK), (40, 0.3), (math.inf, 1.0))
"""The seconds that a step waits for a thread before one is added, while there are fewer threads
than this. On an overloaded machine, more threads make each call slower; and a thousand shards that
are due at once, as at the start, need no thread each: 20 threads take their steps within that
time. 40 threads serve a thousand calls a second of 30 ms each."""


class PoolThreads:
    """The threads of one pool. Within the pool's lock, except `is_here`.

    Of the threads without work, the one that had work last is used: its memory is warm, and the
    others may end.
    """

    def __init__(self, name: str, clock: Callable[[], float], run: Callable[[], None]) -> None:
        """``run``: what each thread runs; it begins with `enter`, and ends with `retire`."""
        self.count = 0
        """The number of threads now."""
        self.summoned = 0
        """Threads that were rung for, and have not looked for work yet."""
        self._name = name
        self._clock = clock
        self._run = run
        self._idle: list[Bell] = []
        """Threads without work; the last one had work last."""
        self._idents: set[int] = set()
        self._made = 0
        self._added_at = -math.inf
        """The time at which the last thread was added."""
        self._refused_until = -math.inf
        """The time until which no thread is added, after the operating system has refused one."""

    @property
    def is_busy(self) -> bool:
        """True while a thread takes a step."""
        return len(self._idle) + self.summoned < self.count

    @property
    def is_refused(self) -> bool:
        """True for a moment after the operating system has refused a thread."""
        return self._clock() < self._refused_until

    def is_here(self) -> bool:
        """Return True in a thread of this pool, or in one that is lent to it. For any thread."""
        return threading.get_ident() in self._idents

    def summon(self) -> float:
        """Have a thread look for work, unless one is about to.

        Returns the time at which to try again if none could be summoned; else infinity.
        """
        if self.summoned:
            return math.inf
        if self._idle:
            self.summoned += 1
            self._idle.pop().ring()
            return math.inf
        if self.count < _FIRST_THREADS and not self.is_refused:
            return math.inf if self._add() else self._refused_until
        return self._clock() + TICK

    def grow(self, waits: Iterator[float], *, is_on_time: bool) -> None:
        """Add threads for steps that wait, if the present threads are held by calls that block.

        waits, is_on_time: see `threads_to_add`.
        """
        if self._idle or self.summoned or self.is_refused:
            return
        added_ago = self._clock() - self._added_at
        for _ in range(threads_to_add(self.count, waits, added_ago, is_on_time=is_on_time)):
            if not self._add():
                return

    def dismiss(self) -> None:
        """Have all threads without work look, and find that the pool is closed."""
        while self._idle:
            self.summoned += 1
            self._idle.pop().ring()

    def start(self, run: Callable[[], None], name: str) -> threading.Thread:
        """Start a thread for something else than steps. Raises RuntimeError if none can start."""
        thread = threading.Thread(target=run, name=f"{self._name}-{name}", daemon=True)
        thread.start()
        return thread

    def _add(self) -> bool:
        try:
            self.start(self._run, str(self._made + 1))
        except RuntimeError as error:
            # The limit of the machine or the container. The pool tries again.
            _log.warning(
                "%s has %d threads, and no other can start: %s", self._name, self.count, error
            )
            self._refused_until = self._clock() + _REFUSED
            return False
        self._added_at = self._clock()
        self._made += 1
        self.count += 1
        self.summoned += 1
        return True

    # --- for the threads themselves

    def enter(self) -> None:
        """Note that the present thread takes steps of this pool."""
        self._idents.add(threading.get_ident())

    def leave(self) -> None:
        """Note that the present thread, which was lent by another pool, goes back there."""
        self._idents.discard(threading.get_ident())

    def retire(self) -> None:
        """Note that the present thread ends."""
        self.count -= 1
        self.leave()

    def rest(self, bell: Bell) -> None:
        """Note that a thread has no work, until its bell is rung."""
        self._idle.append(bell)

    def may_end(self, bell: Bell) -> bool:
        """Return True if a thread that has waited for long is not rung for right now."""
        if bell not in self._idle:
            return False
        self._idle.remove(bell)
        return True


class Bell:
    """Wakes one waiting thread. A ring before the wait counts; two of them count once."""

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has rung already
            self._silent.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a ring; return False if none came within ``timeout`` seconds."""
        return self._silent.acquire(timeout=-1 if timeout is None else timeout)


class TimeWatch:
    """The thread of a pool that watches the time."""

    def __init__(self) -> None:
        self.bell = Bell()
        self.wakes_at = math.inf
        """The time at which it wakes, if its bell is not rung before."""
        self.thread: threading.Thread | None = None

    @property
    def is_dead(self) -> bool:
        return self.thread is not None and not self.thread.is_alive()


def threads_to_add(
    alive: int, waits: Iterator[float], added_ago: float, *, is_on_time: bool
) -> int:
    """Return the number of threads to add for steps that wait, if calls that block hold all. Pure.

    alive: the number of threads. waits: the seconds for which each step has waited, the longest
    first; at least one. added_ago: the seconds since the last thread was added. is_on_time: False
    if the thread that watches the time was late itself: the threads only lack CPU time, and more
    of them would not help.
    """
    most, patience = next(rule for rule in _PATIENCE if alive < rule[0])
    longest = next(waits)
    if longest >= patience and is_on_time:
        overdue = 1 + sum(wait >= patience for wait in waits)
        room = min(alive, most - alive) if patience == TICK else 1
        return int(min(overdue, room))
    return int(longest >= max(patience, _STARVED) and added_ago >= _STARVED)
