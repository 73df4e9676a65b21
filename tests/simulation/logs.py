"""Reads the package's log while a world runs, and keeps it off the terminal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparkinesis.events import DataLost, LeaseEnded, ParentsLost
from tests.simulation.scheduler import Scheduler

_LOGGER = logging.getLogger("sparkinesis")
_EVENTS = logging.getLogger("sparkinesis.worker.reporting.event_log")
"""The logger that tells events."""


@contextmanager
def events_noted(
    scheduler: Scheduler,
    losses: list[tuple[float, str, str]],
    endings: list[tuple[float, str, str, str]],
) -> Iterator[None]:
    """Fills `World.told` and `World.endings` during the block."""

    def note(record: logging.LogRecord) -> None:
        if (task := scheduler.current) is None:
            return
        event, at, process = record.__dict__["sparkinesis_event"], scheduler.now, task.process.name
        if isinstance(event, LeaseEnded):
            endings.append((at, process, event.lease, event.detail))
        elif isinstance(event, ParentsLost):
            losses.extend((at, process, parent) for parent in event.parents)
        elif isinstance(event, DataLost):
            losses.append((at, process, event.shard_id))

    with _heard(_EVENTS, _EVENTS.level or logging.WARNING, note):
        yield


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Silences the package's log, which thousands of worlds would fill."""
    with logs_noted(logging.CRITICAL + 1, lambda _: None):
        yield


@contextmanager
def logs_noted(level: int, note: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Passes the package's log records from ``level`` on to ``note`` only, during the block."""
    passes_on, _LOGGER.propagate = _LOGGER.propagate, False
    try:
        with _heard(_LOGGER, level, note):
            yield
    finally:
        _LOGGER.propagate = passes_on


@contextmanager
def _heard(
    logger: logging.Logger, level: int, note: Callable[[logging.LogRecord], None]
) -> Iterator[None]:
    """Passes a logger's records from ``level`` on to ``note`` as well, during the block."""

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record)

    handler, before = Noting(), logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
