"""What is given as processor: a class, a factory, or a function of a batch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sparkinesis
from sparkinesis.errors import OptionError, ProcessorError
from sparkinesis.worker.options import WorkerOptions
from sparkinesis.worker.processors.function_processors import (
    RecordFunction,
    check_processor,
    function_of,
)
from sparkinesis.worker.processors.processor import RecordProcessor


class Flights(RecordProcessor):
    def process_records(self, batch: Any, checkpointer: Any) -> None:
        """Process nothing."""

    def handle(self, batch: Any) -> None:
        """Process a batch, as a bound method."""


class Callable1:
    def __call__(self, batch: Any) -> None:
        """Process a batch."""


def of_one(batch: Any) -> None:
    """Process a batch."""


def of_two(batch: Any, checkpointer: Any) -> None:
    """Process a batch, and checkpoint."""


async def of_one_async(batch: Any) -> None:
    """Process a batch as a task."""


def passes_all(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def gives_one(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper() -> Any:
        return function(1)

    return wrapper


def made(flights: Any = None) -> Flights:
    return Flights()


@pytest.mark.parametrize(
    ("given", "takes_checkpointer"),
    [
        (of_one, False),
        (of_two, True),
        (of_one_async, False),
        (Flights().handle, False),
        (Callable1(), False),
        (lambda batch, more=1: None, False),
        (functools.partial(of_two, checkpointer=None), False),
        (passes_all(of_two), True),
        (sparkinesis.processor(of_two), True),
        (sparkinesis.processor(checkpoint_seconds=5)(of_one), False),
    ],
)
def test_a_function_of_a_batch_processes(given: Any, takes_checkpointer: bool) -> None:
    found = function_of(given)
    assert found is not None
    assert found.takes_checkpointer is takes_checkpointer


@pytest.mark.parametrize("given", [Flights, made, functools.partial(Flights), gives_one(of_one)])
def test_what_needs_no_argument_makes_processors(given: Any) -> None:
    assert function_of(given) is None


def with_yield(batch: Any) -> Iterator[Any]:
    yield batch


def of_three(batch: Any, checkpointer: Any, more: Any) -> None:
    """Process who knows what."""


def of_a_keyword(batch: Any, *, flights: Any) -> None:
    """Process a batch with something else."""


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (of_three, r"of_three takes 3 arguments.*takes a batch, or a batch and a checkpointer"),
        (with_yield, r"with_yield has a `yield`"),
        (of_a_keyword, r"cannot be called without flights.*functools.partial\(of_a_keyword"),
        (Flights(), "Each shard needs one of its own"),
        ("flights", "cannot be called"),
    ],
)
def test_anything_else_is_refused(given: Any, text: str) -> None:
    with pytest.raises(ProcessorError, match=text):
        check_processor(given)


def test_a_decorated_function_can_still_be_called() -> None:
    handle = sparkinesis.processor(checkpoint_records=5)(len)
    assert handle([1, 2]) == 2


@pytest.mark.parametrize(
    ("own", "options", "expected"),
    [
        ({}, {}, (0.0, None)),
        ({}, {"checkpoint_records": 7}, (None, 7)),
        ({"checkpoint_seconds": 5}, {"checkpoint_records": 7}, (5, None)),
        ({}, {"concurrency": 2}, (1.0, None)),
    ],
)
def test_checkpoints_follow_the_function_then_the_options_then_each_batch(
    own: dict[str, Any], options: dict[str, Any], expected: tuple[float | None, int | None]
) -> None:
    function = RecordFunction(of_one, takes_checkpointer=False, **own)
    found = function.options(WorkerOptions(**options))
    if found.concurrency is not None:
        found = found.with_checkpoints()
    assert (found.checkpoint_seconds, found.checkpoint_records) == expected


def test_options_that_cannot_be_used_are_refused_where_they_are_given() -> None:
    with pytest.raises(OptionError, match="checkpoint_records"):
        sparkinesis.processor(checkpoint_records=0)


def test_with_concurrency_a_record_is_the_only_argument() -> None:
    check_processor(of_one, by_record=True)
    with pytest.raises(ProcessorError, match="With the option concurrency"):
        check_processor(of_two, by_record=True)
    with pytest.raises(ProcessorError, match=r"no process_record\. .*because of the option"):
        check_processor(Flights, by_record=True)
