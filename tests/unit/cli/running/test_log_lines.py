"""Log lines of `sparkinesis run`."""

from __future__ import annotations

import io
import json
import logging
import math
import sys
from typing import Any

from rich.console import Console

from sparkinesis.cli.running.log_lines import JsonLines, LogForm, TerminalLines, log_handler
from sparkinesis.events import LeasesMissing
from sparkinesis.worker.reporting.log_context import LogContext, LogPlace


def record(message: str, *args: object, level: int = logging.INFO, **extra: Any) -> Any:
    made = logging.makeLogRecord({"name": "app", "msg": message, "args": args, **extra})
    made.levelno, made.levelname = level, logging.getLevelName(level)
    made.created = 1_700_000_000.25
    return made


def parsed(made: logging.LogRecord) -> dict[str, Any]:
    line = JsonLines().format(made)
    assert "\n" not in line

    def refuse(name: str) -> Any:
        raise ValueError(name)

    found: dict[str, Any] = json.loads(line, parse_constant=refuse)
    return found


def raised() -> Any:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        return sys.exc_info()


def test_a_line_of_json_has_the_time_in_utc_and_the_message() -> None:
    assert parsed(record("%d of %s", 3, "\ud800")) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "INFO",
        "logger": "app",
        "message": "3 of \ud800",
    }


def test_a_line_of_json_has_its_place_its_event_and_what_the_program_adds() -> None:
    made = record(
        "x", sparkinesis_event=LeasesMissing("t", None, "0"), user=[1], n=2, r=math.nan, ok=None
    )
    LogPlace("app", "worker-1", "shard-1").run(LogContext().filter, made)
    line = parsed(made)
    assert (line["application"], line["worker"], line["shard"]) == ("app", "worker-1", "shard-1")
    assert line["event"] == "LeasesMissing"
    assert (line["user"], line["n"], line["r"], line["ok"]) == ("[1]", 2, "nan", None)
    # A program cannot replace what the line is about.
    assert parsed(record("x", logger="no", time="no"))["logger"] == "app"


def test_a_line_of_json_has_no_unknown_place() -> None:
    made = record("x")
    LogContext().filter(made)
    assert made.shard == "-"
    assert not {"application", "worker", "shard"} & parsed(made).keys()


def test_a_traceback_stays_in_its_line() -> None:
    line = parsed(record("x", exc_info=raised()))
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: two\nlines")


def shown(made: logging.LogRecord) -> list[str]:
    out = io.StringIO()
    LogContext().filter(made)
    TerminalLines(Console(file=out, width=80)).handle(made)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_text_is_wrapped_beside_its_time() -> None:
    lines = shown(record("word " * 30))
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert lines[0][2] == lines[0][5] == ":"
    assert [line[:9].strip() for line in lines[1:]] == ["", ""]
    assert lines[0][9:].startswith("app: word word")


def test_text_names_a_level_and_a_shard_that_say_something_new() -> None:
    lines = shown(record("bad [red]x[/red]", level=logging.ERROR, shard="s-1"))
    assert lines[0][9:] == "ERROR s-1 app: bad [red]x[/red]"
    assert shown(record("Took s-1", name="sparkinesis.x", shard="s-1"))[0][9:] == "Took s-1"


def test_a_traceback_is_not_wrapped() -> None:
    made = record("x", exc_info=raised())
    made.exc_text = "kept"
    lines = shown(made)
    assert lines[0][9:] == "app: x"
    assert lines[1].startswith("Traceback")
    assert lines[-2:] == ["ValueError: two", "lines"]


def test_the_form_follows_the_terminal_unless_it_is_given() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(log_handler(None, Terminal()), TerminalLines)
    assert isinstance(log_handler(None, io.StringIO()).formatter, JsonLines)
    assert isinstance(log_handler(LogForm.JSON, Terminal()).formatter, JsonLines)
    plain = io.StringIO()
    LogPlace("app", "w", "s").run(log_handler(LogForm.TEXT, plain).handle, record("hello"))
    assert plain.getvalue().endswith("INFO [app w s] app: hello\n")
