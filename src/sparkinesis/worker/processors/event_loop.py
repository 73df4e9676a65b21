"""An event loop that runs coroutines for threads, and notices calls that block it."""

from __future__ import annotations

import asyncio
import contextlib
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


class EventLoop:
    """Runs coroutines, in a thread of its own unless the user's loop is given. For any thread."""

    def __init__(
        self,
        name: str,
        clock: Callable[[], float] = time.monotonic,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """``loop``: the running loop of the user's program."""
        self._name = name
        self._clock = clock
        self._loop = loop
        self._is_users = loop is not None
        self._ident: int | None = None
        """The thread that runs the loop, once it has answered."""
        self._lock = threading.Lock()
        self._open: set[Future[_Outcome]] = set()
        self._is_closed = False
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
    ) -> None:
        """Run a coroutine, and call ``done`` with its error, if any, when it has ended."""

        def end(future: Future[_Outcome]) -> None:
            self._forget(future)
            done(CancelledError() if future.cancelled() else future.result().error)

        self._submit(coroutine).add_done_callback(end)

    def cancel(self) -> None:
        """Cancel the coroutines that run now: nobody waits for them any more."""
        with self._lock:
            running = list(self._open)
        for future in running:
            future.cancel()

    def close(self) -> None:
        """End the loop once no call runs, unless it is the user's."""
        with self._lock:
            self._is_closed = True
            self._end_if_over()

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
            loop = self._loop
            if loop is None or (loop.is_closed() and not self._is_users):
                loop = self._begin()
            future = asyncio.run_coroutine_threadsafe(_outcome(coroutine), loop)
            self._open.add(future)
        return future

    def _forget(self, future: Future[_Outcome]) -> None:
        with self._lock:
            self._open.discard(future)
            self._end_if_over()

    def _answer(self) -> None:
        asked_at = self._asked_at
        if asked_at is not None:
            self._lag = self._clock() - asked_at
        self._ident = threading.get_ident()
        self._asked_at, self._is_reported = None, False

    def _begin(self) -> asyncio.AbstractEventLoop:
        begun = threading.Event()
        thread = threading.Thread(
            target=self._run_loop, args=(begun,), name=self._name, daemon=True
        )
        thread.start()
        begun.wait()
        assert self._loop is not None
        return self._loop

    def _run_loop(self, begun: threading.Event) -> None:
        async def serve() -> None:
            self._stop = stop = asyncio.Event()
            self._ident = threading.get_ident()
            self._loop = asyncio.get_running_loop()
            begun.set()
            await stop.wait()

        # A task of the user's that calls sys.exit() ends the loop: the next call begins another.
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            asyncio.run(serve())

    def _end_if_over(self) -> None:
        if self._is_closed and not self._open and not self._is_users and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._loop = None


async def _outcome(coroutine: Coroutine[Any, Any, object]) -> _Outcome:
    """Return what a coroutine returns or raises: a SystemExit would end the loop."""
    try:
        return _Outcome(await coroutine)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - a user's code may call sys.exit() too
        return _Outcome(error=error)


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
