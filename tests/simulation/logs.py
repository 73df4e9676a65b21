"""Reads the package's log while a world runs, and keeps it off the terminal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sparkinesis.events import DataLost, LeaseEnded, ParentsLost
from tests.simulation.scheduler import Scheduler

_LOGGER = logging.getLogger("sparkinesis")
_EVENTS = "sparkinesis.worker.reporting.event_log"
"""The logger that tells events."""


@contextmanager
def losses_noted(scheduler: Scheduler, told: list[tuple[float, str, str]]) -> Iterator[None]:
    """Fills `World.told` during the block."""

    def note(record: logging.LogRecord) -> None:
        task = scheduler.current
        if task is not None:
            told.extend((scheduler.now, task.process.name, one) for one in _lost(record))

    with _heard((_EVENTS,), logging.WARNING, note):
        yield


@contextmanager
def endings_noted(
    scheduler: Scheduler, endings: list[tuple[float, str, str, str]]
) -> Iterator[None]:
    """Fills `World.endings` during the block."""

    def note(record: logging.LogRecord) -> None:
        event = record.__dict__["sparkinesis_event"]
        if scheduler.current is not None and isinstance(event, LeaseEnded):
            process = scheduler.current.process.name
            endings.append((scheduler.now, process, event.lease, event.detail))

    with _heard((_EVENTS,), logging.INFO, note):
        yield


@contextmanager
def _heard(
    names: Iterable[str], level: int, note: Callable[[logging.LogRecord], None]
) -> Iterator[None]:
    """Passes these loggers' records from ``level`` on to ``note`` as well, during the block."""

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record)

    handler = Noting(level)
    loggers = [(logger := logging.getLogger(name), logger.level) for name in names]
    for logger, before in loggers:
        logger.addHandler(handler)
        if not before:
            logger.setLevel(level)
    try:
        yield
    finally:
        for logger, before in loggers:
            logger.removeHandler(handler)
            logger.setLevel(before)


def _lost(record: logging.LogRecord) -> list[str]:
    """The shards that a line of the log tells a loss of."""
    event = record.__dict__["sparkinesis_event"]
    if isinstance(event, ParentsLost):
        return list(event.parents)
    return [event.shard_id] if isinstance(event, DataLost) else []


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Silences the package's log, which thousands of worlds would fill."""
    with logs_noted(logging.CRITICAL + 1, lambda _: None):
        yield


@contextmanager
def logs_noted(level: int, note: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """Passes the package's log records from ``level`` on to ``note`` only, during the block."""

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record)

    handler, before, passes_on = Noting(), _LOGGER.level, _LOGGER.propagate
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(level)
    _LOGGER.propagate = False
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(before)
        _LOGGER.propagate = passes_on
