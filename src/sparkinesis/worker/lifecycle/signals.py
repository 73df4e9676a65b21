"""Handlers of signals: those that shut a program down gracefully, and Ctrl-C beside Spark's."""

from __future__ import annotations

import contextlib
import functools
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from sparkinesis.worker.reporting.log_context import LogPlace

_log = logging.getLogger(__name__)

SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""The signals that end a program gracefully."""

Handler: TypeAlias = Callable[[int, FrameType | None], Any]


@contextlib.contextmanager
def handling(numbers: Iterable[signal.Signals], handler: Handler) -> Iterator[None]:
    """Handle these signals with ``handler`` within the block; restore the old handlers after it.

    Does nothing outside of the main thread: Python lets only the main thread handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {}
    try:
        for each in numbers:
            before[each] = signal.signal(each, handler)
        yield
    finally:
        for each, was in before.items():
            signal.signal(each, was)


@contextlib.contextmanager
def graceful_on_signals(
    shut_down: Callable[[float | None], object], place: LogPlace | None = None
) -> Iterator[None]:
    """Shut down gracefully on a first signal within the block; at once on each later one.

    shut_down: called with None for the time that the options give, later with 0 seconds, in a
    thread: a handler interrupts the main thread at any point, so it must not wait or take a lock.
    place: what log lines name. In the main thread only, see `handling`.
    """
    signals = 0

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        request = functools.partial(_shut_down, shut_down, number, is_first=signals == 1)
        target = request if place is None else functools.partial(place.run, request)
        threading.Thread(target=target, name="shutdown", daemon=True).start()

    with handling(SIGNALS, handle):
        yield


def _shut_down(shut_down: Callable[[float | None], object], number: int, *, is_first: bool) -> None:
    name = signal.Signals(number).name
    if is_first:
        _log.info("Received %s: shutting down gracefully.", name)
        shut_down(None)
    else:
        _log.warning("Received %s again: shutting down at once.", name)
        shut_down(0.0)


class EndsBySignals(Protocol):
    """A worker that a program runs until it has ended."""

    @property
    def log_place(self) -> LogPlace: ...
    def start(self) -> object: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def shutdown(self, timeout: float | None = None) -> bool: ...


def run_until_end(worker: EndsBySignals) -> None:
    """Run a worker until it has ended, also by a signal. Raises the error that ended it."""
    with graceful_on_signals(worker.shutdown, worker.log_place):
        worker.start()
        while not worker.wait(1.0):
            pass


@contextlib.contextmanager
def python_interrupt_handler(*, only_for_spark: bool = False) -> Iterator[None]:
    """Restore Python's handler of Ctrl-C within the block: it only raises KeyboardInterrupt.

    A SparkContext installs a handler that first cancels all jobs, and so kills the fleet's workers.
    ``only_for_spark``: replace a handler only if it is PySpark's.
    """
    before = signal.getsignal(signal.SIGINT)
    is_sparks = (getattr(before, "__module__", None) or "").startswith("pyspark.")
    # A handler that was not installed from Python could not be restored.
    if before is None or (only_for_spark and not is_sparks):
        yield
        return
    with handling([signal.SIGINT], signal.default_int_handler):
        yield
