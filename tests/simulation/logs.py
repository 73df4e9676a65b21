"""What becomes of the log of a world."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.scheduler import Scheduler

_TELLS = ("sparkinesis.stream.retention", "sparkinesis.worker.intake")
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
    logger = logging.getLogger("sparkinesis")
    level, passes_on = logger.level, logger.propagate
    logger.setLevel(logging.CRITICAL + 1)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.propagate = passes_on
