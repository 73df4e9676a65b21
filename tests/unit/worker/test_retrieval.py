"""Fetching ahead: how much, how fast, and what becomes of errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sparkinesis.errors import ServiceError
from sparkinesis.stream.client import Fetched
from sparkinesis.stream.page import Page, Record
from sparkinesis.stream.position import TRIM_HORIZON, Position
from sparkinesis.worker import retrieval
from sparkinesis.worker.retrieval import Polling

PATIENCE = 30.0


def page(count: int = 1, behind: int = 1, size: int = 100) -> Fetched:
    records = [Record(b"x", "k", "1") for _ in range(count)]
    return Fetched(Page(records, "next", behind, None), size, 0)


class Script:
    """A cursor that answers as written, then says that there is no more; counts its calls."""

    def __init__(self, *answers: Fetched | Exception, ends: bool = False) -> None:
        self.limits: list[int] = []
        self.at_end = False
        self._answers = list(answers)
        self._ends = ends
        self._changed = threading.Condition()
        self._blocked = threading.Event()

    def fetch(self, limit: int) -> Fetched:
        with self._changed:
            self.limits.append(limit)
            self._changed.notify_all()
        answer = self._answers.pop(0) if self._answers else page(0, 0)
        if isinstance(answer, Exception):
            raise answer
        self.at_end = self._ends and not self._answers
        return answer

    def wait_for_calls(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.limits) >= count, PATIENCE)


class Reader:
    """A polling, and a count of what it announced."""

    def __init__(self, cursor: Any, **given: Any) -> None:
        self._announced = threading.Semaphore(0)
        self.polling = Polling(
            lambda start: cursor,
            TRIM_HORIZON,
            on_page=self._announced.release,
            **{"max_records": 7, "idle_time": 3600.0, **given},
        ).start()

    def wait(self, pages: int) -> None:
        for _ in range(pages):
            assert self._announced.acquire(timeout=PATIENCE)


@pytest.fixture
def read() -> Any:
    readers: list[Reader] = []

    def make(cursor: Any, **given: Any) -> Reader:
        readers.append(Reader(cursor, **given))
        return readers[-1]

    yield make
    for reader in readers:
        reader.polling.stop()


@pytest.mark.parametrize(
    ("answers", "fetched"),
    [
        ([page()] * 20, retrieval.MAX_PAGES),
        ([page(size=retrieval.MAX_BYTES // 2)] * 20, 2),
        ([page(count=retrieval.MAX_RECORDS // 2)] * 20, 2),
        ([page(size=retrieval.MAX_BYTES)] * 20, 1),
    ],
    ids=["pages", "bytes", "records", "one large page"],
)
def test_no_more_is_fetched_ahead_than_the_limits_say(
    read: Callable[..., Reader], answers: list[Fetched], fetched: int
) -> None:
    cursor = Script(*answers)
    reader = read(cursor)
    reader.wait(fetched)
    assert cursor.limits == [7] * fetched
    # Each page that is taken makes room for one.
    for n in range(1, 4):
        taken = reader.polling.take()
        assert taken is not None
        reader.wait(1)
        assert len(cursor.limits) == fetched + n


def test_the_end_of_a_shard_comes_with_its_last_page(read: Callable[..., Reader]) -> None:
    reader = read(Script(page(), page(), ends=True))
    reader.wait(3)
    taken = [reader.polling.take() for _ in range(3)]
    assert [each and each.at_shard_end for each in taken] == [False, True, None]


def test_an_error_is_raised_behind_the_pages_that_came_before(read: Callable[..., Reader]) -> None:
    error = ServiceError("no")
    reader = read(Script(page(), error))
    reader.wait(2)
    assert reader.polling.take() is not None
    for _ in range(2):
        with pytest.raises(ServiceError) as raised:
            reader.polling.take()
        assert raised.value is error


def test_an_error_that_nobody_expects_is_raised_too(read: Callable[..., Reader]) -> None:
    """A shard must not stand still without a word."""
    reader = read(Script(RuntimeError("a bug")))
    reader.wait(1)
    with pytest.raises(RuntimeError, match="a bug"):
        reader.polling.take()


def test_what_opening_raises_is_raised_too() -> None:
    def refuse(start: Position) -> Any:
        raise ServiceError("no iterator")

    announced = threading.Event()
    polling = Polling(refuse, TRIM_HORIZON, max_records=1, idle_time=0, on_page=announced.set)
    polling.start()
    assert announced.wait(PATIENCE)
    with pytest.raises(ServiceError, match="no iterator"):
        polling.take()


def test_it_idles_at_the_tip_only(read: Callable[..., Reader]) -> None:
    """An empty page is no tip while the shard is behind, nor is one that is full."""
    cursor = Script(page(0, behind=9), page(7, behind=0), page(1, behind=0), page())
    read(cursor).wait(3)
    assert len(cursor.limits) == 3, "the fourth comes after the idle time, an hour"


def test_stopping_ends_an_idle_time_at_once(read: Callable[..., Reader]) -> None:
    reader = read(Script(page(0, 0)))
    reader.wait(1)
    reader.polling.stop()
    reader.wait(1)  # the last word of its thread
    assert reader.polling.take() is None


def test_pages_know_when_they_were_fetched(read: Callable[..., Reader]) -> None:
    reader = read(Script(page(), ends=True), clock=lambda: 77.0)
    reader.wait(1)
    taken = reader.polling.take()
    assert taken is not None
    assert taken.since == 77.0
