"""Tells the events of a worker: to its log, to its metrics and to ``on_event``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparkinesis.events import Event
from sparkinesis.metrics.metrics import OFF, Metrics
from sparkinesis.worker.reporting.callback import EventCallback
from sparkinesis.worker.reporting.event_counts import count_of
from sparkinesis.worker.reporting.event_log import EventLog
from sparkinesis.worker.reporting.log_context import LogPlace


class Teller(Protocol):
    """Takes the events of a worker, from any thread. It returns at once, and raises nothing."""

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        """Tell an event. ``cause``: the error whose traceback the log line shows."""

    def close(self) -> None:
        """Tell what is left to be told, for a few seconds at most."""


class TellNobody:
    """Tells nobody. A `Teller`."""

    def __call__(self, event: Event, cause: BaseException | None = None) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


TELL_NOBODY = TellNobody()


class EventTeller:
    """Tells each event once to everybody, so that logs, metrics and callbacks agree. A `Teller`.

    stream: the name of the application's stream; empty if it reads several.
    """

    def __init__(
        self,
        place: LogPlace,
        stream: str,
        metrics: Metrics = OFF,
        on_event: Callable[[Event], object] | None = None,
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
