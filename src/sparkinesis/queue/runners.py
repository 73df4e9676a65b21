"""Runs the calls of handlers, some at a time: in threads, or as tasks of an event loop."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

_W = TypeVar("_W")


class Runner(Protocol[_W]):
    """Runs pieces of work, at most ``concurrency`` at a time, in the order in which they come."""

    def give(self, work: _W) -> bool:
        """Run a piece of work as soon as there is room; False, and do not, after `take_back`.

        Returns at once. For any thread.
        """

    def take_back(self) -> list[_W]:
        """Return the work that has not begun, and begin none any more."""


class ThreadRunner(Generic[_W]):
    """Runs work in threads, which begin as they are needed.

    They do not keep the process from ending, so a handler that hangs does not either.
    """

    def __init__(
        self,
        run: Callable[[_W], None],
        concurrency: int,
        run_thread: Callable[[str, Callable[[], None]], threading.Thread],
    ) -> None:
        self._run = run
        self._concurrency = concurrency
        self._run_thread = run_thread
        self._queue: queue.SimpleQueue[_W | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._open = 0
        """The pieces of work that were given and have not ended."""
        self._is_closed = False

    def give(self, work: _W) -> bool:
        with self._lock:
            if self._is_closed:
                return False
            self._open += 1
            begins = self._threads < min(self._concurrency, self._open)
            number = self._threads
            self._threads += begins
            self._queue.put(work)
        if begins:
            self._run_thread(f"handler-{number}", self._serve)
        return True

    def take_back(self) -> list[_W]:
        with self._lock:
            self._is_closed = True
        found: list[_W] = []
        with contextlib.suppress(queue.Empty):
            while True:
                work = self._queue.get_nowait()
                if work is not None:
                    found.append(work)
        for _ in range(self._threads):
            self._queue.put(None)
        return found

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            self._run(work)
            with self._lock:
                self._open -= 1


class TaskRunner(Generic[_W]):
    """Runs work as tasks. begin: begins one, and calls what it is given once that has ended."""

    def __init__(self, begin: Callable[[_W, Callable[[], None]], None], concurrency: int) -> None:
        self._begin = begin
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[_W] = deque()
        self._is_closed = False

    def give(self, work: _W) -> bool:
        with self._lock:
            if self._is_closed:
                return False
            if self._running >= self._concurrency:
                self._waiting.append(work)
                return True
            self._running += 1
        self._begin(work, self._ended)
        return True

    def take_back(self) -> list[_W]:
        with self._lock:
            self._is_closed = True
            found = list(self._waiting)
            self._waiting.clear()
        return found

    def _ended(self) -> None:
        with self._lock:
            if not self._waiting:
                self._running -= 1
                return
            work = self._waiting.popleft()
        self._begin(work, self._ended)
