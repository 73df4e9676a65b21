"""The log of `sparkinesis run`: text that reads well on a terminal, or lines of JSON."""

from __future__ import annotations

import copy
import json
import logging
import math
import sys
import traceback
from datetime import datetime, timezone
from enum import Enum
from typing import Any, TextIO

from rich.console import Console, ConsoleRenderable
from rich.highlighter import NullHighlighter
from rich.logging import RichHandler
from rich.text import Text

from sparkinesis.worker.reporting.log_context import LOG_FORMAT, LogContext, quiet_libraries

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every log record; others are what a program gave as ``extra``."""
_PLACES = ("application", "worker", "shard")


class LogForm(str, Enum):
    """The form of log lines."""

    JSON = "json"
    TEXT = "text"


class LogLevel(str, Enum):
    """The level from which lines are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def set_up_logging(form: LogForm | None, level: LogLevel) -> None:
    """Log to stderr. ``form``: None: text on a terminal, JSON lines otherwise.

    Handlers that the program's own module has added to the root logger stay.
    """
    root = logging.getLogger()
    root.setLevel(level.name)
    quiet_libraries(root.level)
    root.addHandler(log_handler(form, sys.stderr))


def log_handler(form: LogForm | None, stream: TextIO) -> logging.Handler:
    """Return the handler that writes log lines of this form to ``stream``."""
    is_terminal = stream.isatty()
    handler: logging.Handler
    if form is LogForm.TEXT and not is_terminal:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
    elif form is LogForm.TEXT or (form is None and is_terminal):
        handler = TerminalLines(Console(file=stream))
    else:
        handler = logging.StreamHandler(stream)
        handler.setFormatter(JsonLines())
    handler.addFilter(LogContext())
    return handler


class TerminalLines(RichHandler):
    """Writes the time and the message, wrapped beside the time at the terminal's width."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            console=console,
            show_level=False,
            show_path=False,
            highlighter=NullHighlighter(),
            log_time_format="%H:%M:%S",
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; a traceback follows at full width, where its lines can be copied."""
        shown = copy.copy(record)
        shown.exc_info = shown.exc_text = None
        super().emit(shown)
        if record.exc_info is not None and record.exc_info[0] is not None:
            trace = Text.from_ansi("".join(traceback.format_exception(*record.exc_info)).rstrip())
            self.console.print(trace, soft_wrap=True)

    def render_message(self, record: logging.LogRecord, message: str) -> ConsoleRenderable:
        """Return the message, after its level, shard and logger where they say something new."""
        text = Text()
        if record.levelno != logging.INFO:
            style = "bold red" if record.levelno >= logging.ERROR else "yellow"
            text.append(f"{record.levelname} ", style=style)
        shard = str(getattr(record, "shard", "-"))
        if shard != "-" and shard not in message:
            text.append(f"{shard} ", style="cyan")
        if not record.name.startswith("sparkinesis"):
            text.append(f"{record.name}: ", style="dim")
        return text.append(message)


class JsonLines(logging.Formatter):
    """Formats a log record as one line of JSON.

    ``time`` (UTC), ``level``, ``logger``, ``message``; ``application``, ``worker`` and ``shard``
    where they are known; ``event``, the name of one of `sparkinesis.events`; ``exception``, a
    traceback; and what the program gave as ``extra``.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        attributes = vars(record)
        line |= {
            name: attributes[name]
            for name in _PLACES
            if attributes.get(name, "-") not in {"-", None}
        }
        if (event := attributes.get("sparkinesis_event")) is not None:
            line["event"] = type(event).__name__
        if record.exc_info is not None and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info is not None:
            line["stack"] = record.stack_info
        for name, value in attributes.items():
            if name not in _USUAL and name not in _PLACES and name != "sparkinesis_event":
                line.setdefault(name, _plain(value))
        return json.dumps(line)


def _utc(seconds: float) -> str:
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    """Return a value that JSON has; of any other, its text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)
