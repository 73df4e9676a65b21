"""Texts of a service, a table or a record that would forge lines or control a terminal: escaped."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sparkinesis.cli.command_options import errors_in_one_line
from sparkinesis.cli.running.log_lines import LogForm, log_handler
from sparkinesis.errors import ShardNotFoundError, SparkinesisError, printable
from sparkinesis.events import WorkerEnded
from sparkinesis.status import Failure
from sparkinesis.stream.address import StreamAddress
from sparkinesis.stream.calls.client import StreamClient
from sparkinesis.stream.position import TRIM_HORIZON
from sparkinesis.terminal.printing import print_table, say
from sparkinesis.terminal.view import ShardRow, View, summary_line
from sparkinesis.ui import texts
from sparkinesis.ui.watcher import PageSnapshot, Reported
from sparkinesis.worker.reporting.event_log import EventLog
from sparkinesis.worker.reporting.log_context import LOG_FORMAT, LogContext
from tests.answering import answering

FORGED = "shardId-000000000007\nERROR All is lost\x1b[2J\x07\u202egnirts\u2028\x9b31m"
"""A shard id that begins a line, clears the screen, rings, and turns what follows."""


def is_harmless(text: str, lines: int = 1) -> bool:
    """True if the text has so many lines, each of which can be printed, and shows what it hides."""
    every = text.rstrip("\n").split("\n")
    return (
        len(every) == lines
        and all(line.isprintable() for line in every)
        and "\\n" in text
        and "\\x1b[2J" in text
        and "\\u202e" in text
    )


def test_a_text_that_is_printable_stays_and_any_other_is_shown() -> None:
    words = "shard 7 of Zürich\u00a0: 日本\u3000"
    assert printable(words) == words
    assert printable("a\tb\ud800\U000e0001") == "a\\tb\\ud800\\U000e0001"
    assert printable("a\n\x1b", lines=True) == "a\n\\x1b"
    assert is_harmless(printable(FORGED))


def logged(handler: logging.Handler, log: Callable[[logging.Logger], object]) -> None:
    logger = logging.getLogger("sparkinesis")
    logger.addHandler(handler)
    level, propagates = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        log(logging.getLogger("sparkinesis.worker.some"))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


def warn(logger: logging.Logger) -> None:
    logger.warning("Shard %s is odd: 100 %%", FORGED, extra={"shard": FORGED})


def tell(_: logging.Logger) -> None:
    EventLog("app", "w")(WorkerEnded(FORGED, 1.0, 0, False, FORGED))


FORMS = [LogForm.TEXT, LogForm.JSON, "with LogContext"]


@pytest.mark.parametrize(
    ("form", "log"),
    # A handler of a program without LogContext has the events only.
    [*[(form, log) for form in FORMS for log in (warn, tell)], ("plain", tell)],
)
def test_a_log_line_is_one_line(form: Any, log: Callable[[logging.Logger], None]) -> None:
    written = io.StringIO()
    if isinstance(form, LogForm):
        handler = log_handler(form, written)
    else:
        handler = logging.StreamHandler(written)
        if form != "plain":
            handler.addFilter(LogContext())
            handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logged(handler, log)
    text = written.getvalue()
    if form is LogForm.JSON:
        text = json.loads(text)["message"]
    assert is_harmless(text)


def test_a_programs_own_lines_stay_as_they_are() -> None:
    record = logging.makeLogRecord({"name": "mine", "msg": "a\nb %s", "args": ("c",)})
    LogContext().filter(record)
    assert record.getMessage() == "a\nb c"


@pytest.mark.parametrize("is_of_the_shard", [True, False])
def test_an_error_of_the_service_is_one_line(*, is_of_the_shard: bool) -> None:
    message = "no" if is_of_the_shard else FORGED
    shard_id = FORGED if is_of_the_shard else "shardId-000000000007"

    def answer(_: Mapping[str, str], __: bytes) -> tuple[int, bytes]:
        said = {"__type": "ResourceNotFoundException", "message": message}
        return 400, json.dumps(said).encode()

    with answering(answer, "application/x-amz-json-1.1") as endpoint:
        client = StreamClient(StreamAddress("s", None, "us-east-1", endpoint))
        with pytest.raises(ShardNotFoundError) as failed:
            client.shard_iterator(shard_id, TRIM_HORIZON)
    assert str(failed.value).isprintable()
    assert "\\x1b[2J" in str(failed.value)


def fail() -> None:
    with errors_in_one_line("shards"):
        raise SparkinesisError(FORGED)


VIEW = View(
    "app", "updated", "KB/s", (), (ShardRow(FORGED, FORGED, FORGED, 0, 1.0),), messages=(FORGED,)
)
LOOK = PageSnapshot(1, 1_795_000_000.0, VIEW)


@pytest.mark.parametrize(
    ("show", "lines"),
    [
        (lambda: print_table([{"shard": FORGED}]), 2),
        (lambda: say(FORGED), 1),
        (lambda: print(summary_line(replace(VIEW, title=FORGED, shards=()))), 1),
        (lambda: print(texts.messages(LOOK)), 1),
    ],
    ids=["a table", "a line", "a summary", "the page"],
)
def test_what_is_shown_can_be_printed(
    capsys: pytest.CaptureFixture[str], show: Callable[[], None], lines: int
) -> None:
    show()
    assert is_harmless(capsys.readouterr().out, lines)


def test_a_traceback_on_the_page_keeps_its_lines_only() -> None:
    failure = Failure("f", "w", FORGED, FORGED, 3, (FORGED,))
    text = texts.failures(replace(LOOK, reported=Reported({"w": 1.0}, failures=(failure,))))
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("\\u202e") == 3


def test_the_error_of_a_command_controls_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BaseException, match="1"):
        fail()
    said = capsys.readouterr().err
    assert all(line.isprintable() for line in said.rstrip("\n").split("\n"))
    assert "\\x1b[2J" in said
