"""Methods that return before their work is done: refused when seen, and never taken for done."""

from __future__ import annotations

import asyncio
import functools
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any
from unittest import mock

import pytest

from sparkinesis.application import Application
from sparkinesis.errors import ProcessorError
from sparkinesis.worker.processors.processor import RecordProcessor, make_processor
from sparkinesis.worker.processors.user_calls import call_user

NAMES = ("initialize", "process_records", "lease_lost", "shard_ended", "shutdown_requested")


class Processor(RecordProcessor):
    def __init__(self, argument: str = "") -> None:
        self.argument = argument

    def process_records(self, batch: Any, checkpointer: Any) -> None: ...


async def coroutine(*_: Any) -> None: ...


def generator(*_: Any) -> Iterator[None]:
    yield


async def async_generator(*_: Any) -> AsyncIterator[None]:
    yield


class Asynchronous:
    async def __call__(self, *_: Any) -> None: ...


DEFERRING: list[tuple[Any, str]] = [
    (coroutine, "is `async def`"),
    (generator, "has a `yield`"),
    (async_generator, "has a `yield`"),
    (functools.partial(coroutine, 1), "is `async def`"),
    (staticmethod(coroutine), "is `async def`"),
    (classmethod(generator), "has a `yield`"),
    (Asynchronous(), "is `async def`"),
]


def with_method(name: str, method: Any) -> type[Processor]:
    return type("Made", (Processor,), {name: method})


def application(processor: Any) -> Application:
    return Application("app", "s", processor)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("method", "how"), [one for one in DEFERRING if "yield" in one[1]])
def test_a_class_with_a_method_that_defers_its_work_is_refused(
    name: str, method: Any, how: str
) -> None:
    made = with_method(name, method)
    for given in (made, functools.partial(made, "x"), functools.partial(functools.partial(made))):
        with pytest.raises(ProcessorError, match=rf"{name} of .*\.Made {how}"):
            application(given)


def test_what_a_function_makes_is_refused_when_it_is_made() -> None:
    """Nobody knows before: a factory is not called ahead of time."""

    def of_another_class() -> Processor:
        return with_method("process_records", generator)()

    def own_method() -> Processor:
        made = Processor()
        made.process_records = generator  # type: ignore[method-assign, assignment]
        return made

    for factory in (of_another_class, own_method):
        application(factory)
        with pytest.raises(ProcessorError, match="process_records of"):
            make_processor(factory)


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        (type("Needs", (Processor,), {"__init__": lambda self, x: None}), "functools.partial"),
        (coroutine, "is `async def`"),
        (generator, "has a `yield`"),
        (functools.partial(coroutine), "is `async def`"),
        (Asynchronous(), "is `async def`"),
    ],
)
def test_what_cannot_make_processors_is_refused(factory: Any, why: str) -> None:
    with pytest.raises(ProcessorError, match=why):
        application(factory)


def test_a_function_that_returns_a_coroutine_makes_no_processor() -> None:
    def make() -> Any:
        return coroutine()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ProcessorError, match="returned a coroutine"):
            make_processor(make)


def test_what_makes_processors_is_taken() -> None:
    def injected(make: Callable[[str], Processor]) -> Callable[[], Processor]:
        @functools.wraps(make)
        def without_arguments() -> Processor:
            return make("given")

        return without_arguments  # its signature, as told by what it wraps, has one argument

    class Factory:
        def __call__(self) -> Processor:
            return Processor()

        def make(self) -> Processor:
            return Processor()

    given: list[Any] = [Processor, Factory(), Factory().make, functools.partial(Processor, "x")]
    given += [lambda x=1, *y, **z: Processor(), injected(Processor)]
    given += [mock.Mock(return_value=Processor()), mock.MagicMock(return_value=Processor())]
    for each in given:
        application(each)
        assert isinstance(make_processor(each), Processor)


def test_a_plain_method_that_runs_coroutines_is_taken() -> None:
    """Also if it says that it wraps one, as decorators make it say."""

    def run(method: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(method)
        def plain(*given: Any) -> None:
            asyncio.run(method(*given))

        return plain

    seen: list[Any] = []

    class Runs(Processor):
        @run
        async def process_records(self, batch: Any, checkpointer: Any) -> None:
            seen.append(batch)

    application(Runs)
    call_user(make_processor(Runs).process_records, "batch", None)
    assert seen == ["batch"]


class Awaitable:
    def __await__(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (coroutine, "a coroutine"),
        (generator, "a generator"),
        (async_generator, "an asynchronous generator"),
        (Awaitable, "an awaitable"),
        (lambda: map(str, [1]), "a map object"),
        (lambda: filter(None, [1]), "a filter object"),
    ],
)
def test_a_call_that_returns_its_work_is_an_error_and_leaves_no_warning(
    make: Callable[[], object], what: str
) -> None:
    def process_records(batch: object) -> object:
        return make()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ProcessorError, match=rf"\.process_records returned {what} instead of"):
            call_user(process_records, 1)


def test_a_generator_that_has_begun_and_will_not_be_closed_is_an_error_like_any() -> None:
    def stubborn() -> Iterator[int]:
        while True:
            try:
                yield 1
            except GeneratorExit:
                yield 2

    begun = stubborn()
    next(begun)
    with pytest.raises(ProcessorError, match="returned a generator"):
        call_user(lambda: begun)


@pytest.mark.parametrize(
    "value",
    [None, 0, True, "done", [1], {}, object(), Future(), mock.MagicMock(), threading.Event()],
)
def test_a_call_may_return_anything_else(value: object) -> None:
    given: list[object] = []

    def process_records(*more: object) -> object:
        given.extend(more)
        return value

    call_user(process_records, 1, 2)
    assert given == [1, 2]
