"""Calls a user's ``on_event``: in a thread of its own, which may be slow, and may raise."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from sparkinesis.events import Event
from sparkinesis.metrics.catalogue import EVENTS_DROPPED
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.log_context import LogPlace

_log = logging.getLogger(__name__)

MOST_WAITING = 1000
"""Events that wait for ``on_event`` at most; an event that is one too many is dropped."""
DRAIN_WITHIN = 5.0
"""The most seconds that the end of a worker waits for ``on_event`` to get the last events."""


class EventCallback:
    """Gives events to ``on_event``, in order, each once. `put` and `close` are for any thread."""

    def __init__(
        self, on_event: Callable[[Event], object], place: LogPlace, metrics: Metrics
    ) -> None:
        self._on_event = on_event
        self._place = place
        self._metrics = metrics
        self._changed = threading.Condition()
        self._waiting: deque[Event] = deque()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._has_dropped = False
        self._raised: set[str] = set()
        """The types of the errors that were logged."""

    def put(self, event: Event) -> None:
        """Let ``on_event`` have an event soon. Returns at once."""
        with self._changed:
            if not self._is_closed and len(self._waiting) < MOST_WAITING:
                self._waiting.append(event)
                self._changed.notify_all()
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._place.run,
                        args=(self._run,),
                        name=f"{self._place.application}-events",
                        daemon=True,
                    )
                    self._thread.start()
                return
            is_first = not self._has_dropped and not self._is_closed
            self._has_dropped = True
        self._metrics.add(EVENTS_DROPPED, ())
        if is_first:
            _log.warning(
                "on_event is too slow: %s events wait for it, and %s was dropped. The metric "
                "%s counts how many are; this is logged once.",
                f"{MOST_WAITING:,}",
                type(event).__name__,
                EVENTS_DROPPED.name,
            )

    def close(self) -> None:
        """Take no more events, and wait until ``on_event`` has got the rest, for a few seconds."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(DRAIN_WITHIN)
        if thread.is_alive():
            with self._changed:
                left = len(self._waiting)
                self._waiting.clear()
            if left:
                self._metrics.add(EVENTS_DROPPED, (), left)
            _log.warning(
                "on_event has not returned within %g s of the worker's end: %d events are dropped.",
                DRAIN_WITHIN,
                left,
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                event = self._waiting.popleft()
            try:
                self._on_event(event)
            except BaseException as error:  # noqa: BLE001 - a user's code may call sys.exit() too
                self._note(event, error)

    def _note(self, event: Event, error: BaseException) -> None:
        kind = type(error).__qualname__
        if kind in self._raised:
            return
        self._raised.add(kind)
        _log.error(
            "on_event raised on %s: %s. The worker goes on; further errors of this type are not "
            "logged.",
            type(event).__name__,
            describe(error),
            exc_info=error,
        )
