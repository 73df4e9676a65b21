"""Calls of a user's methods, which must have done their work when they return.

A method that is ``async def``, or has a ``yield``, does nothing when it is called: it returns an
object that does the work when it is run. Nothing runs it, so its records would be treated as
processed. The method is refused before any call if it can be recognised; the object that a call
returns is checked in any case.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable

from sparkinesis.errors import ProcessorError

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
