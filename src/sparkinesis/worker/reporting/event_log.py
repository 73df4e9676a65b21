"""Publishes each event of a worker once: to the log, to the counters and to ``on_event``.

The lines in the log are those of the events; nothing else logs them. A user's ``on_event`` is
called in a thread of its own: it may be slow, and may raise.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from sparkinesis import events as of
from sparkinesis.errors import printable
from sparkinesis.events import Event, Listener
from sparkinesis.lease.lease import parse_lease_key
from sparkinesis.metrics.catalogue import (
    BATCHES_FAILED,
    DATA_LOSS,
    DEAD_LETTERS,
    EVENTS_DROPPED,
    LEASES_CREATED,
    LEASES_DELETED,
    LEASES_LOST,
    LEASES_RELEASED,
    LEASES_REQUESTED,
    LEASES_TAKEN,
    QUEUE_FAILED,
    QUEUE_HOLDS_LOST,
    RECORDS_SKIPPED,
    STREAMS_DELETED,
)
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import OFF, Labels, Metrics
from sparkinesis.worker.reporting.failures import describe
from sparkinesis.worker.reporting.log_context import LogPlace

_log = logging.getLogger(__name__)

MOST_WAITING = 1000
"""The most events that wait for ``on_event``; further ones are dropped."""
DRAIN_WITHIN = 5.0
"""The most seconds that the end of a worker waits for ``on_event`` to get the last events."""


class EventPublisher:
    """Takes the events of a worker, from any thread. The base class discards them.

    It returns at once, and raises nothing.
    """

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        """Publish an event. ``cause``: the error whose traceback the log line shows."""

    def close(self) -> None:
        """Publish the events that wait, for a few seconds at most."""


DISCARD_EVENTS = EventPublisher()


class WorkerEvents(EventPublisher):
    """Publishes each event everywhere, so that logs, metrics and callbacks agree.

    stream: the name of the application's stream; empty if it reads several, or a queue.
    """

    def __init__(
        self,
        place: LogPlace,
        stream: str,
        metrics: Metrics = OFF,
        on_event: Listener | None = None,
    ) -> None:
        self._log = EventLog(place.application, place.worker)
        self._stream = stream
        self._metrics = metrics
        self._callback = None if on_event is None else EventCallback(on_event, place, metrics)

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        self._log(event, cause)
        if self._metrics is not OFF and (count := count_of(event, self._stream)) is not None:
            self._metrics.add(*count)
        if self._callback is not None:
            self._callback.put(event)

    def close(self) -> None:
        if self._callback is not None:
            self._callback.close()


class EventLog:
    """Logs the events of one worker, whichever thread raises them.

    Each log record names application, worker and shard as `LogContext` does, and has the event as
    its attribute ``sparkinesis_event``.
    """

    def __init__(self, application: str, worker_id: str) -> None:
        self._application = application
        self._worker_id = worker_id

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        """Log an event, with the traceback of ``cause``."""
        extra = {
            "application": self._application,
            "worker": self._worker_id,
            # The key of the one lease that the event is about names the shard.
            "shard": getattr(event, "lease", "-"),
            "sparkinesis_event": event,
        }
        level, text = event.line()
        _log.log(level, printable(text), exc_info=cause, extra=extra)


class Count(NamedTuple):
    """An amount to add to a counter."""

    metric: Metric
    labels: Labels
    amount: float


_COUNTERS: Mapping[type[Event], Metric] = {
    of.LeaseTaken: LEASES_TAKEN,
    of.HandoffRequested: LEASES_REQUESTED,
    of.LeaseCreated: LEASES_CREATED,
    of.LeaseDeleted: LEASES_DELETED,
    of.BatchFailed: BATCHES_FAILED,
    of.RecordsSkipped: RECORDS_SKIPPED,
    of.DeadLettersStored: DEAD_LETTERS,
    of.DataLost: DATA_LOSS,
    of.ParentsLost: DATA_LOSS,
    of.FormerStreamDeleted: STREAMS_DELETED,
    of.HandlerFailed: QUEUE_FAILED,
    of.HoldLost: QUEUE_HOLDS_LOST,
}
"""The counter of each kind of event that counts, and whose labels are named like its fields."""


def count_of(event: Event, only_stream: str) -> Count | None:
    """Return what an event adds to which counter; None if it adds nothing. Pure.

    only_stream: the name of the application's stream, if it reads one: its leases name no stream.
    """
    metric = _COUNTERS.get(type(event))
    if isinstance(event, of.LeaseEnded):
        metric = LEASES_RELEASED if event.reason.is_planned else LEASES_LOST
    if metric is None:
        return None
    amount = event.records if isinstance(event, of.RecordsSkipped | of.DeadLettersStored) else 1.0
    return Count(metric, tuple(_label(event, name, only_stream) for name in metric.labels), amount)


def _label(event: Event, label: str, only_stream: str) -> str:
    field = "shard_id" if label == "shard" else label
    value = getattr(event, field, None)
    if value is None and isinstance(event, of.LeaseEvent):
        stream, _ = parse_lease_key(event.lease)
        return only_stream if stream is None else stream.name
    return str(value.value if isinstance(value, Enum) else value)


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
                self._log_error(event, error)

    def _log_error(self, event: Event, error: BaseException) -> None:
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
