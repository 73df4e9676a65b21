"""The calls of a user's methods, which may be ``async def``, and must do their work.

A method that is ``async def``, or has a ``yield``, does nothing when it is called: it returns an
object that does the work when it is run. If nothing ran it, its records would be treated as
processed. Such a method is run or refused: before any call if it can be recognised; the object that
a call returns is checked in any case.

A thread of the pool that runs a shard's consumer waits for the shard's coroutine. So calls for one
shard never overlap, errors go the same way as those of plain methods, and the threads that fetch
and renew do not depend on the event loop. Only records that are processed at the same time, with
the option ``concurrency``, hold no thread of the pool.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from sparkinesis.errors import ProcessorError

if TYPE_CHECKING:
    import asyncio

    from sparkinesis.worker.processors.event_loop import EventLoop


ADVICE = (
    "Write it as `def` without `yield`; where it needs coroutines, let it run them by "
    "asyncio.run(...) and return after that."
)


def call_user(method: Callable[..., object], *given: object) -> None:
    """Call ``method``. Raises `ProcessorError` if it returns unfinished work."""
    returned = method(*given)
    if returned is not None:
        require_finished(method, returned)


async def await_user(method: Callable[..., object], *given: object) -> None:
    """Call ``method``, which is ``async def``, and await its work. Raises as `call_user`."""
    returned = method(*given)
    assert isinstance(returned, Awaitable)
    require_finished(method, await returned)


def require_finished(method: Callable[..., object], returned: object) -> None:
    """Raise `ProcessorError` if what a call returned is unfinished work."""
    if found := unfinished(returned):
        raise ProcessorError(
            f"{name_of(method)} returned {found} instead of doing its work. {ADVICE} The call's "
            "records are neither checkpointed nor acknowledged, and none is skipped."
        )


def unfinished(returned: object) -> str | None:
    """Return the kind of object, if it is unfinished work, and drop the work; None otherwise."""
    if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
        with contextlib.suppress(Exception):  # its own code may raise
            returned.close()  # or Python warns that it was never awaited
    if inspect.iscoroutine(returned):
        return "a coroutine"
    if inspect.isasyncgen(returned):
        return "an asynchronous generator"
    if inspect.isawaitable(returned):
        return "an awaitable"
    if inspect.isgenerator(returned):
        return "a generator"
    # These, too, do their work only when they are iterated.
    return f"a {type(returned).__name__} object" if isinstance(returned, map | filter) else None


def why_not_callable(
    function: Callable[..., object], *given: object, follow_wrapped: bool = False
) -> TypeError | None:
    """Return why a function cannot be called with these arguments; None if that is not known.

    By default, the signature of a wrapped function does not count: its decorator may pass the
    arguments.
    """
    try:
        signature = inspect.signature(function, follow_wrapped=follow_wrapped)
    except (TypeError, ValueError):
        return None  # written in C, perhaps
    try:
        signature.bind(*given)
    except TypeError as error:
        return error
    return None


def asynchronous(function: object) -> str | None:
    """Return "is `async def`" or "has a `yield`" for a function that defers its work; else None.

    A plain function may still return a coroutine, which `call_user` detects.
    """
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return None
    if not (inspect.isroutine(function) or inspect.iscoroutinefunction(function)):
        function = getattr(type(function), "__call__", None)  # noqa: B004 - the method itself
    if inspect.iscoroutinefunction(function):
        return "is `async def`"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "has a `yield`"
    return None


def refuse_asynchronous(
    made: object, names: Iterable[str], *, permit_coroutines: bool = False
) -> None:
    """Raise `ProcessorError` if a method of a processor, or of its class, defers its work.

    ``permit_coroutines``: permit ``async def``, whose calls the worker awaits.
    """
    for name in names:
        how = asynchronous(getattr(made, name, None))
        if how is not None and not (permit_coroutines and how == "is `async def`"):
            kind = made if isinstance(made, type) else type(made)
            raise ProcessorError(
                f"{name} of {kind.__module__}.{kind.__qualname__} {how}, so a call of it would "
                f"return before any record is processed. {ADVICE}"
            )


def refuse_factory(factory: Callable[..., object]) -> None:
    """Raise `ProcessorError` for a class or a function that makes no processor when called."""
    how = asynchronous(factory)
    if how is not None:
        raise ProcessorError(
            f"{name_of(factory)} {how}, so a call of it makes no record processor. Give a plain "
            "function."
        )
    if error := why_not_callable(factory):
        is_class = isinstance(factory, type)
        advice = (
            f"Give functools.partial({factory.__name__}, ...), or a function that makes one."
            if is_class
            else "If it is to process records, make it the method process_records(self, batch, "
            "checkpointer) of a class derived from sparkinesis.RecordProcessor, and give the class."
        )
        raise ProcessorError(
            f"{name_of(factory)} cannot be called without arguments, to make a record processor "
            f"for each shard: {error}. {advice}"
        )


def made_by(factory: Callable[[], object]) -> object:
    """Return what a factory makes. Raises `ProcessorError` if that is unfinished work."""
    made = factory()
    if inspect.isawaitable(made) or inspect.isgenerator(made):
        raise ProcessorError(
            f"{name_of(factory)} returned {unfinished(made)} instead of a record processor. Give a "
            "plain function that returns a processor."
        )
    return made


def name_of(function: object) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


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
