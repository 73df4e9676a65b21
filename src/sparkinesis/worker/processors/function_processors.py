"""Functions that process records, in place of a class: ``def handle(batch)``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, overload

from sparkinesis.errors import ProcessorError
from sparkinesis.public import public
from sparkinesis.worker.options import DEFAULT_OPTIONS, WorkerOptions
from sparkinesis.worker.processors.processor import ProcessorFactory, RecordProcessor, check_factory
from sparkinesis.worker.processors.user_calls import (
    ADVICE,
    asynchronous,
    await_user,
    call_user,
    name_of,
)

if TYPE_CHECKING:
    from sparkinesis.worker.batches.batch import RecordBatch
    from sparkinesis.worker.batches.user_record import UserRecord
    from sparkinesis.worker.checkpointer import Checkpointer

Processor: TypeAlias = ProcessorFactory | Callable[..., object] | str
"""A class or function that makes record processors, or a function that processes batches; or the
name of one of them, "package.module:name"."""

_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@public
@dataclass(frozen=True)
class RecordFunction:
    """A function that processes the batches of all shards; `processor` makes it.

    Called, it calls the function, as a test of the function does.
    """

    function: Callable[..., object]
    takes_checkpointer: bool
    checkpoint_seconds: float | None = None
    checkpoint_records: int | None = None

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.function(*args, **kwargs)

    def new_processor(self) -> RecordProcessor:
        """Return a record processor for a shard, which calls the function."""
        if asynchronous(self.function) is None:
            return _FunctionProcessor(self)
        return _CoroutineProcessor(self)

    def options(self, options: WorkerOptions) -> WorkerOptions:
        """Return the options of a worker, with the checkpoints of this function."""
        seconds, records = self.checkpoint_seconds, self.checkpoint_records
        if seconds is None and records is None:
            seconds, records = options.checkpoint_seconds, options.checkpoint_records
        if seconds is None and records is None and options.concurrency is None:
            seconds = 0.0
        return replace(options, checkpoint_seconds=seconds, checkpoint_records=records)

    def arguments(self, batch: RecordBatch, checkpointer: Checkpointer) -> tuple[object, ...]:
        return (batch, checkpointer) if self.takes_checkpointer else (batch,)


class _FunctionProcessor(RecordProcessor):
    def __init__(self, of: RecordFunction) -> None:
        self._of = of

    def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        call_user(self._of.function, *self._of.arguments(batch, checkpointer))

    def process_record(self, record: UserRecord) -> None:
        call_user(self._of.function, record)


class _CoroutineProcessor(RecordProcessor):
    def __init__(self, of: RecordFunction) -> None:
        self._of = of

    async def process_records(self, batch: RecordBatch, checkpointer: Checkpointer) -> None:
        await await_user(self._of.function, *self._of.arguments(batch, checkpointer))

    async def process_record(self, record: UserRecord) -> None:
        await await_user(self._of.function, record)


@overload
def processor(function: Callable[..., object]) -> RecordFunction: ...


@overload
def processor(
    *, checkpoint_seconds: float | None = ..., checkpoint_records: int | None = ...
) -> Callable[[Callable[..., object]], RecordFunction]: ...


@public
def processor(
    function: Callable[..., object] | None = None,
    *,
    checkpoint_seconds: float | None = None,
    checkpoint_records: int | None = None,
) -> RecordFunction | Callable[[Callable[..., object]], RecordFunction]:
    """Make a function the record processor of an application; a decorator.

    The function takes a batch, or a batch and a `Checkpointer`; with the option ``concurrency``, a
    record. Its return says that the batch is
    processed: a checkpoint follows, after each batch by default. What it raises goes to
    ``on_error``.

    checkpoint_seconds, checkpoint_records: checkpoint less often, as in `WorkerOptions`; None: as
    the worker's options say.

    Raises `ProcessorError` for a function of other parameters, or with a ``yield``, and
    `OptionError` for a value that cannot be used.
    """
    replace(
        DEFAULT_OPTIONS,
        checkpoint_seconds=checkpoint_seconds,
        checkpoint_records=checkpoint_records,
    )
    if function is None:
        return functools.partial(
            processor,
            checkpoint_seconds=checkpoint_seconds,
            checkpoint_records=checkpoint_records,
        )
    wanted = _required(function)
    if wanted not in {1, 2}:
        raise ProcessorError(
            f"{name_of(function)} takes {wanted or 'no'} arguments. A function that processes "
            "records takes a batch, or a batch and a checkpointer."
        )
    if asynchronous(function) == "has a `yield`":
        raise ProcessorError(
            f"{name_of(function)} has a `yield`, so a call of it would return before any record is "
            f"processed. {ADVICE}"
        )
    return RecordFunction(function, wanted == 2, checkpoint_seconds, checkpoint_records)


def function_of(given: object) -> RecordFunction | None:
    """Return the function that was given as processor; None if a class or factory was given.

    A class, and a function without required positional parameters, makes processors. Raises
    `ProcessorError` for a function that is neither.
    """
    if isinstance(given, RecordFunction):
        return given
    if isinstance(given, type | RecordProcessor) or not callable(given) or not _required(given):
        return None
    return processor(given)


def check_processor(given: object, *, by_record: bool = False) -> None:
    """Raise `ProcessorError` if what was given can be seen, without a call, not to process.

    ``by_record``: one record a call, with the option ``concurrency``.
    """
    function = function_of(given)
    if function is None:
        check_factory(given, by_record=by_record)
    elif by_record and function.takes_checkpointer:
        raise ProcessorError(
            f"{name_of(function.function)} takes two arguments. With the option concurrency it is "
            "called for one record, which is its only argument, and checkpoints are automatic."
        )


def _required(function: Callable[..., object]) -> int:
    """Return the number of required positional parameters; 0 if they are not known."""
    try:
        signature = inspect.signature(function, follow_wrapped=False)
        is_open = any(one.kind is one.VAR_POSITIONAL for one in signature.parameters.values())
        if is_open:  # a decorator that passes on what it is given
            signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 0
    required = [one for one in signature.parameters.values() if one.default is one.empty]
    names = [one.name for one in required if one.kind is one.KEYWORD_ONLY]
    if names:
        raise ProcessorError(
            f"{name_of(function)} cannot be called without {' and '.join(names)}. Give "
            f"functools.partial({getattr(function, '__name__', 'function')}, {names[0]}=...)."
        )
    return sum(one.kind in _KINDS for one in required)
