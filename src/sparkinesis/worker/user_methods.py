"""Calls of a user's methods: the work of a call is done when the call returns.

A method that is ``async def``, or has a ``yield``, does nothing when it is called: it returns an
object that would do the work if somebody ran it. Nobody does, so its records would pass for
processed. Such a method is refused where it can be seen before any call, and what a call returns
is looked at in any case.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable

from sparkinesis.errors import ProcessorError

_ADVICE = (
    "Write it as `def` without `yield`; where it needs coroutines, let it run them by "
    "asyncio.run(...) and return after that."
)


def call(method: Callable[..., object], *given: object) -> None:
    """Call ``method``. Raises `ProcessorError` if it returns work that is still to be done."""
    returned = method(*given)
    if returned is None:
        return
    found = unfinished(returned)
    if found is None:
        return
    discard(returned)
    raise ProcessorError(
        f"{_name(method)} returned {found} instead of doing its work. {_ADVICE} Nothing that this "
        "call was given is checkpointed, and no record is skipped."
    )


def unfinished(returned: object) -> str | None:
    """The kind of object, if it is work that is still to be done."""
    if inspect.iscoroutine(returned):
        return "a coroutine"
    if inspect.isasyncgen(returned):
        return "an asynchronous generator"
    if inspect.isawaitable(returned):
        return "an awaitable"
    if inspect.isgenerator(returned):
        return "a generator"
    # These work when somebody iterates, too.
    return f"a {type(returned).__name__} object" if isinstance(returned, map | filter) else None


def discard(returned: object) -> None:
    """Close a coroutine or a generator, so that Python does not warn that nobody awaited it."""
    if inspect.iscoroutine(returned) or inspect.isgenerator(returned):
        with contextlib.suppress(Exception):  # of one that had begun to run
            returned.close()


def asynchronous(function: object) -> str | None:
    """How a function defers its work ("is `async def`", "has a `yield`"); None if it does not.

    A plain function may still return a coroutine: `call` sees that.
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


def refuse_asynchronous(made: object, names: Iterable[str]) -> None:
    """Raise `ProcessorError` if a method of a processor, or of its class, defers its work."""
    for name in names:
        how = asynchronous(getattr(made, name, None))
        if how is not None:
            kind = made if isinstance(made, type) else type(made)
            raise ProcessorError(
                f"{name} of {kind.__module__}.{kind.__qualname__} {how}, so a call of it would "
                f"return before any record is processed. {_ADVICE}"
            )


def refuse_factory(factory: Callable[..., object]) -> None:
    """Raise `ProcessorError` for a class or a function that makes no processor when called."""
    how = asynchronous(factory)
    if how is not None:
        raise ProcessorError(
            f"{_name(factory)}, which is to make record processors, {how}: a call of it makes "
            "none. Give a plain function."
        )
    try:
        # Not of what it wraps: a decorator may give the arguments.
        signature = inspect.signature(factory, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # written in C, perhaps
    try:
        signature.bind()
    except TypeError as error:
        is_class = isinstance(factory, type)
        advice = (
            f"Give functools.partial({factory.__name__}, ...), or a function that makes one."
            if is_class
            else "If it is to process records, make it the method process_records(self, batch, "
            "checkpointer) of a class derived from sparkinesis.RecordProcessor, and give the class."
        )
        raise ProcessorError(
            f"{_name(factory)} is called without arguments, to make a record processor for each "
            f"shard, but: {error}. {advice}"
        ) from None


def made_by(factory: Callable[[], object]) -> object:
    """What a factory makes. Raises `ProcessorError` if that is work still to be done."""
    made = factory()
    if inspect.isawaitable(made) or inspect.isgenerator(made):
        discard(made)
        raise ProcessorError(
            f"{_name(factory)}, which is to make record processors, returned {unfinished(made)}. "
            "Give a plain function that returns a processor."
        )
    return made


def _name(function: object) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
