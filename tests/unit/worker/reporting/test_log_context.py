"""Log lines carry application, worker and shard, whoever writes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Iterator
from contextvars import copy_context
from logging.handlers import QueueHandler
from typing import Any

import pytest

from sparkinesis.worker.reporting.log_context import LogContext, LogPlace, log_to_stderr

PLACE = LogPlace("app", "w1")
SHARD = LogPlace("app", "w1", "shardId-000000000007")


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """What a handler with the filter writes, of a logger of its own."""
    written: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            written.append(self.format(record))

    handler = Handler()
    handler.addFilter(LogContext())
    handler.setFormatter(logging.Formatter("%(application)s|%(worker)s|%(shard)s|%(message)s"))
    logger = logging.getLogger("the.users.own")
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


def say(text: str, **extra: Any) -> None:
    logging.getLogger("the.users.own").warning(text, extra=extra)


def test_a_line_tells_where_it_was_written(lines: list[str]) -> None:
    say("before")
    PLACE.run(say, "worker")
    SHARD.run(say, "shard")
    PLACE.run(SHARD.run, say, "inner")
    say("after")
    assert lines == [
        "-|-|-|before",
        "app|w1|-|worker",
        "app|w1|shardId-000000000007|shard",
        "app|w1|shardId-000000000007|inner",
        "-|-|-|after",
    ]


def test_a_place_is_left_by_an_exception_too(lines: list[str]) -> None:
    def fail() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        PLACE.run(fail)
    say("after")
    assert lines == ["-|-|-|after"]
    assert PLACE.run(lambda: 7) == 7


def test_a_coroutine_and_a_thread_with_the_context_are_of_the_same_place(lines: list[str]) -> None:
    async def speak() -> None:
        await asyncio.gather(asyncio.to_thread(say, "to_thread"))
        say("coroutine")

    def process() -> None:
        asyncio.run(speak())
        thread = threading.Thread(target=copy_context().run, args=(say, "thread"))
        thread.start()
        thread.join()

    SHARD.run(process)
    assert lines == [f"app|w1|{SHARD.shard}|{who}" for who in ("to_thread", "coroutine", "thread")]


def test_what_a_line_has_of_its_own_stays(lines: list[str]) -> None:
    SHARD.run(lambda: say("extra", shard="mine"))
    assert lines == ["app|w1|mine|extra"]


def test_a_queue_changes_nothing(lines: list[str]) -> None:
    """Its other end is another thread."""
    between: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    handler = QueueHandler(between)
    handler.addFilter(LogContext())
    logger = logging.getLogger("queued")
    logger.addHandler(handler)
    try:
        SHARD.run(logger.warning, "queued")
    finally:
        logger.removeHandler(handler)
    logging.getLogger("the.users.own").handle(between.get())
    assert lines == [f"app|w1|{SHARD.shard}|queued"]


def test_within_the_block_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with log_to_stderr():
        SHARD.run(logging.getLogger("the.users.own").info, "to be %s", "seen")
        logging.getLogger("the.users.own").debug("not to be seen")
        for name in ("botocore.auth", "urllib3.connectionpool"):
            logging.getLogger(name).info("chatter")
            logging.getLogger(name).warning("trouble of %s", name)
    logging.getLogger("the.users.own").error("not to be seen either")
    seen, botocore, urllib3 = capsys.readouterr().err.splitlines()
    assert seen.endswith(f" INFO [app w1 {SHARD.shard}] the.users.own: to be seen")
    assert botocore.endswith("WARNING [- - -] botocore.auth: trouble of botocore.auth")
    assert "urllib3" in urllib3


@pytest.mark.parametrize(("given", "kept"), [("DEBUG", logging.WARNING), ("ERROR", logging.ERROR)])
def test_nothing_of_the_block_is_left(given: str, kept: int) -> None:
    root, botocore = logging.getLogger(), logging.getLogger("botocore")

    def state() -> tuple[int, int, list[logging.Handler]]:
        return root.level, botocore.level, list(root.handlers)

    before = state()
    with contextlib.suppress(KeyError), log_to_stderr(given):
        assert root.level == getattr(logging, given)
        assert botocore.level == kept, "requests are told with their signatures below"
        assert len(root.handlers) == len(before[2]) + 1
        raise KeyError
    assert state() == before
    with pytest.raises(ValueError, match="LOUD"), log_to_stderr("LOUD"):
        pytest.fail("an unknown level")
    assert state() == before
