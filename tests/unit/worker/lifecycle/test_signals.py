"""The handlers of Ctrl-C that are replaced, and for how long."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkinesis.worker.lifecycle.signals import python_interrupt_handler

Handler = Callable[[int, Any], None]


@pytest.fixture
def handler() -> Iterator[Handler]:
    def handle(number: int, _: Any) -> None:
        raise AssertionError("it is not called here")

    before = signal.signal(signal.SIGINT, handle)
    yield handle
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("module", "only_for_spark", "is_replaced"),
    [
        ("pyspark.core.context", True, True),
        ("pyspark.core.context", False, True),
        ("flights", True, False),
        ("flights", False, True),
    ],
)
def test_a_handler_is_replaced_within_the_block(
    handler: Handler, module: str, *, only_for_spark: bool, is_replaced: bool
) -> None:
    handler.__module__ = module
    with python_interrupt_handler(only_for_spark=only_for_spark):
        assert (signal.getsignal(signal.SIGINT) is not handler) == is_replaced
    assert signal.getsignal(signal.SIGINT) is handler


def test_the_handlers_that_are_no_functions_stay(handler: Handler) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with python_interrupt_handler(only_for_spark=True):
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
