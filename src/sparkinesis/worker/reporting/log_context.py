"""Log lines that name the application, worker and shard that they are about."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec

from sparkinesis.errors import printable
from sparkinesis.public import public

_T = TypeVar("_T")

LOG_FORMAT = (
    "%(asctime)s %(levelname)s [%(application)s %(worker)s %(shard)s] %(name)s: %(message)s"
)
"""The format for a handler with the filter `LogContext`."""

_QUIET = ("boto3", "botocore", "py4j", "urllib3")
"""Loggers that would log each request, AWS's with its signature, below WARNING."""


class LogPlace(msgspec.Struct, frozen=True):
    """The application, worker and shard that log lines name."""

    application: str
    worker: str
    shard: str | None = None

    def enter(self) -> None:
        """Name this place in the log lines of the present context, from now on."""
        _PLACE.set(self)

    def run(self, call: Callable[..., _T], *args: Any) -> _T:
        """Call ``call``, and name this place in the call's log lines. Threads start with it."""
        token = _PLACE.set(self)
        try:
            return call(*args)
        finally:
            _PLACE.reset(token)


_PLACE: ContextVar[LogPlace | None] = ContextVar("sparkinesis_log_place", default=None)


@public
class LogContext(logging.Filter):
    """Gives each log record ``application``, ``worker`` and ``shard``, or "-" if unknown.

    Add it to a handler: ``handler.addFilter(LogContext())``. Then the lines of every logger have
    these attributes, including the loggers of record processors. Attributes that a log record has
    already, from ``extra`` or from before a queue, stay.

    In what sparkinesis logs, and in these attributes, escapes take the place of what is not
    printable: a shard's id or a worker's, as a table or a server has it, begins no line of its
    own.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        place = _PLACE.get()
        for name in ("application", "worker", "shard"):
            found = getattr(record, name, None) or getattr(place, name, None) or "-"
            setattr(record, name, printable(str(found)))
        if record.name.partition(".")[0] == "sparkinesis":
            message = record.getMessage()
            if not message.isprintable():
                record.msg, record.args = printable(message), ()
        return bool(super().filter(record))


@contextlib.contextmanager
def log_to_stderr(level: int | str = logging.INFO) -> Iterator[None]:
    """Print this process's logs of ``level`` and above to its stderr within the block.

    The previous levels and handlers are restored after the block. Blocks must not overlap. Raises
    ValueError for an unknown level.
    """
    root = logging.getLogger()
    before = {logger: logger.level for logger in map(logging.getLogger, (None, *_QUIET))}
    handler = logging.StreamHandler()
    handler.addFilter(LogContext())
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    root.setLevel(level)
    try:
        quiet_libraries(root.level)
        root.addHandler(handler)
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
        for logger, was in before.items():
            logger.setLevel(was)


def quiet_libraries(level: int) -> None:
    """Log requests of boto3 and its libraries from WARNING only, or from a higher ``level``."""
    for name in _QUIET:
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, level, logging.WARNING))
