"""Signals that shut a worker down gracefully: SIGTERM and SIGINT, and what its host adds."""

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
    """Within the block, these signals go to ``handler``; behind it, to who had them before.

    Python lets only the main thread handle signals: elsewhere nothing is changed.
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
    """Within the block, a first signal begins a graceful shutdown, and a second one forces it.

    As `handling` has it, in the main thread only.
    """
    shutdown: list[threading.Thread] = []

    def handle(number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if shutdown:
            _log.warning("%s again: shutting down at once", name)
            timeout: float | None = 0.0
        else:
            _log.info("%s: shutting down gracefully", name)
            timeout = None
        # A handler interrupts the main thread anywhere, so it must not wait, nor take a lock.
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
