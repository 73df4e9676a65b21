"""What becomes of the log of a world."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.simulation.scheduler import Scheduler

_LOGGER = logging.getLogger("sparkinesis")
_TELLS = ("sparkinesis.worker.loss", "sparkinesis.lease.caretaker")
"""Loggers that tell of records that may be lost."""


@contextmanager
def losses_noted(scheduler: Scheduler, told: list[tuple[float, str, str]]) -> Iterator[None]:
    """For the block, `World.told` is kept."""

    class Noting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            task, shard = scheduler.current, re.search(r"shardId-\d+", record.getMessage())
            if task is not None and shard is not None:
                told.append((scheduler.now, task.process.name, shard[0]))

    handler = Noting(logging.WARNING)
    loggers = [(logger := logging.getLogger(name), logger.level) for name in _TELLS]
    for logger, level in loggers:
        logger.addHandler(handler)
        if not level:
            logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in loggers:
            logger.removeHandler(handler)
            logger.setLevel(level)


@contextmanager
def quiet_logging() -> Iterator[None]:
    """Nobody reads the log lines of thousands of worlds."""
    with logs_noted(logging.CRITICAL + 1, lambda _: None):
        yield


@contextmanager
def logs_noted(level: int, note: Callable[[logging.LogRecord], None]) -> Iterator[None]:
    """For the block, what the package logs goes there, from ``level`` on, and nowhere else."""

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
