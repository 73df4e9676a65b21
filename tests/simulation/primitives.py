"""`threading`, as far as the package uses it, on a scheduler's tasks; and its installation.

The modules of the package run as they are: within `installed` their name ``threading`` means the
tasks of one scheduler, and so do ``queue``, ``Future``, ``ThreadPoolExecutor`` and ``asyncio``.
What `threading` leaves open (who gets a lock next, who runs after a notification) the scheduler's
seed decides.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import importlib
import pkgutil
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

from tests.simulation.coroutines import Asyncio
from tests.simulation.scheduler import Scheduler, Task


class _Acquired:
    """A lock that a ``with`` statement acquires and releases."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        raise NotImplementedError

    def release(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class Lock(_Acquired):
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_taken = False
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self._scheduler
        scheduler.maybe_pause()
        if not blocking:
            if self._is_taken:
                return False
        elif self._is_taken:
            deadline = None if timeout < 0 else scheduler.now + timeout
            while self._is_taken:
                left = None if deadline is None else deadline - scheduler.now
                task = scheduler.current
                assert task is not None
                self._waiting.append(task)
                # At a timeout the task must not stay among those to wake.
                if not scheduler.park(left) and task in self._waiting:
                    self._waiting.remove(task)
                    return False
        self._is_taken = True
        return True

    def release(self) -> None:
        if not self._is_taken:
            raise RuntimeError("release unlocked lock")
        self._is_taken = False
        if self._waiting:
            waiting = self._waiting
            self._scheduler.wake(waiting.pop(self._scheduler.rng.randrange(len(waiting))))


class RLock(_Acquired):
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = Lock(scheduler)
        self._owner: Task | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = self._scheduler.current
        if self._owner is not None and self._owner is me:
            self._depth += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._depth = me, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._lock.release()

    def release_all(self) -> int:
        """Releases the lock for a waiting condition; returns the number of acquisitions."""
        depth, self._depth = self._depth, 1
        self.release()
        return depth

    def acquire_again(self, depth: int) -> None:
        self.acquire()
        self._depth = depth


class Condition(_Acquired):
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = RLock(scheduler)
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = self._scheduler
        task = scheduler.current
        assert task is not None
        depth = self._lock.release_all()
        self._waiting.append(task)
        was_woken = scheduler.park(None if timeout is None else max(0.0, timeout))
        if not was_woken and task in self._waiting:
            self._waiting.remove(task)
        self._lock.acquire_again(depth)
        return was_woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline = None if timeout is None else self._scheduler.now + timeout
        while not (result := predicate()):
            left = None if deadline is None else deadline - self._scheduler.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self) -> None:
        if self._waiting:
            waiting = self._waiting
            self._scheduler.wake(waiting.pop(self._scheduler.rng.randrange(len(waiting))))

    def notify_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task)


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._scheduler.maybe_pause()
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task)

    def clear(self) -> None:
        self._scheduler.maybe_pause()
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = self._scheduler
        if self._is_set:
            scheduler.maybe_pause()
            return True
        task = scheduler.current
        assert task is not None
        self._waiting.append(task)
        if not scheduler.park(None if timeout is None else max(0.0, timeout)):
            if task in self._waiting:
                self._waiting.remove(task)
            return self._is_set
        return True


class Thread:
    def __init__(
        self,
        scheduler: Scheduler,
        *,
        target: Callable[..., object],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str = "thread",
        daemon: bool = True,
    ) -> None:
        self.name = name
        self.daemon = daemon
        self._scheduler = scheduler
        self._run: Callable[[], object] = lambda: target(*args, **(kwargs or {}))
        self._has_ended = Event(scheduler)
        self._has_started = False

    def start(self) -> None:
        scheduler = self._scheduler
        assert scheduler.current is not None
        self._has_started = True
        scheduler.spawn(scheduler.current.process, self.name, self._main).thread = self
        scheduler.maybe_pause()

    def _main(self) -> None:
        try:
            self._run()
        finally:
            if not self._scheduler.has_ended:
                self._has_ended.set()

    def is_alive(self) -> bool:
        return self._has_started and not self._has_ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        self._has_ended.wait(timeout)


class SimpleQueue:
    """A queue without a bound, as far as it is used."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._items: deque[Any] = deque()
        self._changed = Condition(scheduler)

    def put(self, item: Any) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self, timeout: float | None = None) -> Any:
        with self._changed:
            if not self._changed.wait_for(lambda: self._items, timeout):
                raise queue.Empty
            return self._items.popleft()

    def get_nowait(self) -> Any:
        with self._changed:
            if not self._items:
                raise queue.Empty
            return self._items.popleft()


class Queues:
    """Replaces the module `queue`."""

    Empty = queue.Empty

    def __init__(self, scheduler: Scheduler) -> None:
        self.SimpleQueue = partial(SimpleQueue, scheduler)


class Future(concurrent.futures.Future[Any]):
    """A future for which tasks wait."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._condition: Any = Condition(scheduler)


class Call:
    """The result of a call in a thread of its own."""

    def __init__(self, scheduler: Scheduler, call: Callable[..., Any], args: Any, name: str):
        self._value: Any = None
        self._error: BaseException | None = None
        self.is_over = False

        def run() -> None:
            try:
                self._value = call(*args)
            except Exception as error:  # noqa: BLE001 - `result` raises it
                self._error = error
            self.is_over = True

        self._thread = Thread(scheduler, target=run, name=name)
        self._thread.start()

    def wait(self) -> None:
        self._thread.join()

    def cancel(self) -> bool:
        """Return False: it has its thread, and runs or has run."""
        return False

    def exception(self) -> BaseException | None:
        self._thread.join()
        return self._error

    def result(self) -> Any:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._value


_KEPT_CALLS = 1000
"""Calls of a pool after which it forgets those that are over: one may be kept for a whole run."""


class ThreadPoolExecutor:
    """A pool for `map` and `submit`, in a ``with`` statement or without: all that is used.

    Each call gets a thread of its own at once: none waits for one, or is cancelled.
    """

    def __init__(self, scheduler: Scheduler, max_workers: int, name: str) -> None:
        self._scheduler = scheduler
        self._name = name
        self._calls: list[Call] = []
        self._count = 0

    def __enter__(self) -> ThreadPoolExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        for call in self._calls:
            call.wait()

    def submit(self, call: Callable[..., Any], *args: Any) -> Call:
        made = Call(self._scheduler, call, args, f"{self._name}_{self._count}")
        self._count += 1
        if self._count % _KEPT_CALLS == 0:
            self._calls = [one for one in self._calls if not one.is_over]
        self._calls.append(made)
        return made

    def map(self, call: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        calls = [self.submit(call, item) for item in items]
        return (each.result() for each in calls)


_MADE: dict[str, Callable[..., Any]] = {
    made.__name__: made for made in (Lock, RLock, Condition, Event, Thread)
}


class Threading:
    """Replaces the module `threading`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(_MADE[name], self._scheduler)

    def current_thread(self) -> object:
        task = self._scheduler.current
        return None if task is None else task.thread or task

    def main_thread(self) -> object:
        """No task is the main thread, which alone handles signals."""
        return None

    def get_ident(self) -> int:
        return id(self._scheduler.current)


NEVER_REPLACED = ("sparkinesis.local", "sparkinesis.stream.kpl.envelope")
"""The local Kinesis serves simulated worlds without its server, each call as one step; and the
unpacking of large aggregates waits for nothing but the processor."""

_REAL = {
    id(real): name
    for name, real in {
        "threading": threading,
        "queue": queue,
        "asyncio": asyncio,
        "Future": concurrent.futures.Future,
        "ThreadPoolExecutor": concurrent.futures.ThreadPoolExecutor,
    }.items()
}


@functools.cache
def _replaced() -> list[tuple[dict[str, Any], str, str]]:
    """The places to replace: a module's names, the name in it, and what it stands for.

    Everything that a world may run is imported first: what it imported later would stay real.
    """
    for folder in ("lease", "metrics", "queue", "source", "stream", "worker"):
        package = importlib.import_module(f"sparkinesis.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    return [
        (vars(module), name, _REAL[id(value)])
        for path, module in list(sys.modules.items())
        if path.startswith("sparkinesis.") and not path.startswith(NEVER_REPLACED)
        for name, value in vars(module).items()
        if id(value) in _REAL
    ]


@contextmanager
def installed(scheduler: Scheduler) -> Iterator[None]:
    """Makes the package's threads tasks of ``scheduler`` during the block."""
    replacements: dict[str, object] = {
        "threading": Threading(scheduler),
        "queue": Queues(scheduler),
        "asyncio": Asyncio(scheduler, Event, Future),
        "Future": partial(Future, scheduler),
        "ThreadPoolExecutor": lambda workers, thread_name_prefix="pool": ThreadPoolExecutor(
            scheduler, workers, thread_name_prefix
        ),
    }
    before = [(names, name, names[name]) for names, name, _ in _replaced()]
    for names, name, real in _replaced():
        names[name] = replacements[real]
    try:
        yield
    finally:
        for names, name, was in before:
            names[name] = was
