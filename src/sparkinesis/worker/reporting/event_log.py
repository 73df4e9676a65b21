"""The log of a worker's events, whose lines the events themselves say; nothing else logs them."""

from __future__ import annotations

import logging

from sparkinesis.errors import printable
from sparkinesis.events import Event

_log = logging.getLogger(__name__)


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
