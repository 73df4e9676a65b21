"""Handlers of signals: those that shut a worker down gracefully, and Ctrl-C beside Spark's."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, TypeAlias

from sparkinesis.worker.lifecycle.worker import Worker

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

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
def graceful_on_signals(worker: Worker) -> Iterator[None]:
    """Shut down gracefully on a first signal within the block; at once on a second one.

    In the main thread only, see `handling`.
    """
    shutdown: list[threading.Thread] = []

    def handle(number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if shutdown:
            _log.warning("Received %s again: shutting down at once.", name)
            timeout: float | None = 0.0
        else:
            _log.info("Received %s: shutting down gracefully.", name)
            timeout = None
        # A handler interrupts the main thread at any point, so it must not wait or take a lock.
        thread = threading.Thread(
            target=worker.log_place.run,
            args=(worker.shutdown, timeout),
            name="shutdown",
            daemon=True,
        )
        shutdown.append(thread)
        thread.start()

    with handling(_SIGNALS, handle):
        yield


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
