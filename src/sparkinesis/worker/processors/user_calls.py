"""The calls of record processors' methods, which may be ``async def``.

A thread of the pool that runs a shard's consumer waits for the shard's coroutine. So calls for one
shard never overlap, errors go the same way as those of plain methods, and the threads that fetch
and renew do not depend on the event loop. Only records that are processed at the same time, with
the option ``concurrency``, hold no thread of the pool.
"""

from __future__ import annotations

import inspect
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sparkinesis.worker.processors.user_methods import (
    asynchronous,
    await_user,
    call_user,
    require_finished,
)

if TYPE_CHECKING:
    import asyncio

    from sparkinesis.worker.processors.event_loop import EventLoop

Done: TypeAlias = Callable[[BaseException | None], None]
"""Takes the error of a call that has ended; None if it raised none. In any thread."""


class UserCalls:
    """Calls the methods of a worker's record processors. For any thread.

    The event loop, one for all workers of the process, begins with the first coroutine: most
    workers need none.
    """

    def __init__(
        self,
        name: str = "sparkinesis",
        clock: Callable[[], float] = time.monotonic,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """``loop``: the event loop of the user's program, to use in place of the process' own."""
        self.loop: EventLoop | None = None
        """The event loop; None if no method was ``async def`` yet."""
        self._given = loop
        self._clock = clock
        self._lock = threading.Lock()
        self._threads = CallThreads(f"{name}-record")

    def call(self, method: Callable[..., object], *given: object) -> object:
        """Call a method, and run it to its end if it is ``async def``; return what it returns.

        Raises the method's errors, `ProcessorError` if it returns unfinished work, and
        ``concurrent.futures.CancelledError`` if the call was cancelled.
        """
        returned = method(*given)
        if returned is None:
            return None
        if inspect.iscoroutine(returned) and asynchronous(method):
            returned = self._event_loop().run(returned)
        require_finished(method, returned)
        return returned

    def begin(self, method: Callable[..., object], given: object, done: Done) -> None:
        """Begin a call, while others run: as a task if it is ``async def``, else in a thread.

        done: called when the call has ended, with its error as of `call`. Raises RuntimeError if
        the operating system permits no thread.
        """
        if asynchronous(method):
            self._event_loop().begin(await_user(method, given), done)
        else:
            self._threads.run(partial(_finish, partial(call_user, method, given), done))

    def begin_task(
        self, coroutine: Coroutine[object, object, object], done: Done
    ) -> Callable[[], object]:
        """Run a coroutine as a task; returns the function that cancels it. ``done``: as `begin`."""
        return self._event_loop().begin(coroutine, done)

    def run_in_thread(self, call: Callable[[], None]) -> None:
        """Run a call that handles its errors in a thread. Raises as `begin`."""
        self._threads.run(call)

    def _event_loop(self) -> EventLoop:
        with self._lock:
            if self.loop is None:
                # asyncio would delay the start of workers that do without it.
                from sparkinesis.worker.processors.event_loop import EventLoop  # noqa: PLC0415

                self.loop = EventLoop(self._clock, self._given)
            return self.loop


def _finish(call: Callable[[], None], done: Done) -> None:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - a user's code may call sys.exit() too
        done(error)
    else:
        done(None)


_KEEP = 10.0
"""Seconds after which a thread without a call ends."""


_Call: TypeAlias = tuple[Context, Callable[[], None]]


class CallThreads:
    """Runs each call at once, in a thread that has none, or else in a new one. For any thread.

    The caller bounds their number. A call must handle its errors. Unlike those of
    `concurrent.futures`, a call that hangs does not keep the process from ending.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        # A condition, which is Python, takes half again as much CPU for each record of a queue.
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._idle = 0
        """The threads that wait for a call, without those for which one is on its way."""

    def run(self, call: Callable[[], None]) -> None:
        """Begin a call, in a copy of the present context. Raises RuntimeError if no thread can."""
        made = copy_context(), call
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._calls.put(made)
                return
        threading.Thread(target=self._serve, args=(made,), name=self._name, daemon=True).start()

    def _serve(self, made: _Call) -> None:
        while True:
            context, call = made
            context.run(call)
            del made, context, call  # while it waits, it keeps nothing of a record
            with self._lock:
                self._idle += 1
            try:
                made = self._calls.get(timeout=_KEEP)
            except queue.Empty:
                with self._lock:
                    if self._idle:
                        self._idle -= 1
                        return
                made = self._calls.get()  # it is on its way to one of those that wait
