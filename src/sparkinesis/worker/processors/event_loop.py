"""The event loop of a process' workers, which runs coroutines and notices calls that block it."""

# One loop runs for all workers of a process, as long as the process does. When each worker had its
# own, a semaphore of the user's module was bound to the loop of the first worker: in the next one,
# each record that waited for it failed, and became a dead letter after its retries.

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, NamedTuple

_BLOCKED = 1.0
"""Seconds without an answer after which the event loop counts as blocked."""


class Blocked(NamedTuple):
    """A call that blocks the event loop."""

    seconds: float
    where: str
    """The line of the coroutine that does not return to the loop."""


class _Outcome(NamedTuple):
    returned: object = None
    error: BaseException | None = None


class LoopThread:
    """An event loop in a thread of its own, which begins when it is first needed. For any thread.

    It does not keep the process from exiting.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop. Raises RuntimeError if the operating system permits no thread."""
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_run_for_ever, args=(loop,), name="sparkinesis-asyncio", daemon=True
                ).start()
                self._loop = loop
            return self._loop


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:  # a task of the user's may call sys.exit(), or stop the loop
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()


_own = LoopThread()


def _begin_anew() -> None:
    global _own  # noqa: PLW0603 - a child process has none of its parent's threads
    _own = LoopThread()


os.register_at_fork(after_in_child=_begin_anew)


def loop_of_process() -> asyncio.AbstractEventLoop:
    """Return the event loop of all workers of this process. Raises as `LoopThread.get`."""
    return _own.get()


class EventLoop:
    """Runs the coroutines of one worker. For any thread."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """``loop``: the running loop of the user's program; None: `loop_of_process`."""
        self._clock = clock
        self._loop = loop
        self._ident: int | None = None
        """The thread that runs the loop, once a coroutine has begun."""
        self._lock = threading.Lock()
        self._open: set[Future[_Outcome]] = set()
        self._asked_at: float | None = None
        """The time of a question that the loop has not answered yet."""
        self._is_reported = False
        self._lag: float | None = None

    def run(self, coroutine: Coroutine[Any, Any, object]) -> object:
        """Run a coroutine to its end, and return its result; not for the loop's own thread.

        Raises its errors, and ``concurrent.futures.CancelledError`` after `cancel`.
        """
        future = self._submit(coroutine)
        try:
            outcome = future.result()
        finally:
            self._forget(future)
        if outcome.error is not None:
            raise outcome.error
        return outcome.returned

    def begin(
        self, coroutine: Coroutine[Any, Any, object], done: Callable[[BaseException | None], None]
    ) -> Callable[[], object]:
        """Run a coroutine, and call ``done`` with its error, if any, when it has ended.

        Returns the function that cancels it.
        """

        def end(future: Future[_Outcome]) -> None:
            self._forget(future)
            if future.cancelled():
                # One that has not begun never will, and Python would warn that nothing awaits it.
                with contextlib.suppress(ValueError, RuntimeError):  # it begins right now
                    if inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                        coroutine.close()
            done(CancelledError() if future.cancelled() else future.result().error)

        future = self._submit(coroutine)
        future.add_done_callback(end)
        return future.cancel

    def cancel(self) -> None:
        """Cancel the coroutines that run now: no shard waits for them any more."""
        with self._lock:
            running = list(self._open)
        for future in running:
            future.cancel()

    @property
    def lag(self) -> float | None:
        """The seconds that the loop took to answer, or does not answer; None if it never ran."""
        asked_at = self._asked_at
        return self._lag if asked_at is None else max(self._lag or 0.0, self._clock() - asked_at)

    def look(self) -> Blocked | None:
        """Ask the loop for an answer; return the call that blocks it, once. For one thread."""
        loop, now = self._loop, self._clock()
        if loop is None or loop.is_closed():
            return None
        if self._asked_at is None:
            self._asked_at = now
            with contextlib.suppress(RuntimeError):  # it was closed right now
                loop.call_soon_threadsafe(self._answer)
            return None
        late = now - self._asked_at
        if late < _BLOCKED or self._is_reported:
            return None
        self._is_reported = True
        return Blocked(late, _line_of(self._ident))

    def _submit(self, coroutine: Coroutine[Any, Any, object]) -> Future[_Outcome]:
        with self._lock:
            if self._loop is None:
                self._loop = loop_of_process()
            future = asyncio.run_coroutine_threadsafe(self._outcome(coroutine), self._loop)
            self._open.add(future)
        return future

    async def _outcome(self, coroutine: Coroutine[Any, Any, object]) -> _Outcome:
        """Return what a coroutine returns or raises: a SystemExit would leave the loop."""
        self._ident = threading.get_ident()
        try:
            return _Outcome(await coroutine)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - a user's code may call sys.exit() too
            return _Outcome(error=error)

    def _forget(self, future: Future[_Outcome]) -> None:
        with self._lock:
            self._open.discard(future)

    def _answer(self) -> None:
        asked_at = self._asked_at
        if asked_at is not None:
            self._lag = self._clock() - asked_at
        self._asked_at, self._is_reported = None, False


def _line_of(ident: int | None) -> str:
    """Return the line at which the user's code in a thread stands, below the event loop."""
    frame = sys._current_frames().get(ident or 0)
    if frame is None:
        return "a thread that has ended"
    stack = traceback.extract_stack(frame)
    loops = [n for n, one in enumerate(stack) if one.filename == asyncio.events.__file__]
    below = stack[max(loops, default=-1) + 1 :] or stack
    own = str(Path(__file__).parents[1])
    first = next((one for one in below if not one.filename.startswith(own)), below[-1])
    return f"{first.name} ({first.filename}:{first.lineno})"
