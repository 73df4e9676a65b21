"""SIGTERM and SIGINT shut a worker down gracefully."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sparkinesis.worker.worker import Worker

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def graceful_on_signals(worker: Worker) -> Iterator[None]:
    """Within the block, a first signal begins a graceful shutdown, and a second one forces it.

    The handlers of before are back in force behind the block. Python lets only the main thread
    handle signals: elsewhere nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
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

    before: dict[signal.Signals, Any] = {}
    try:
        for each in _SIGNALS:
            before[each] = signal.signal(each, handle)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
