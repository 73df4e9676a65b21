"""Calls of ``on_event``: in order, each once; and what becomes of them if it is slow, or raises."""

from __future__ import annotations

import logging
import threading

import pytest

from sparkinesis.events import Event, TakingFailed
from sparkinesis.metrics.tally import Tally
from sparkinesis.worker.reporting import callback
from sparkinesis.worker.reporting.callback import EventCallback
from sparkinesis.worker.reporting.log_context import LogContext, LogPlace
from tests import pace

PLACE = LogPlace("app", "w")
EVENTS = [TakingFailed(str(n)) for n in range(100)]
PATIENCE = pace.seconds(30.0)


def dropped(tally: Tally) -> float:
    values = [one.value for one in tally.series() if one.metric == "events.dropped"]
    assert all(isinstance(value, float) for value in values)
    return sum(value for value in values if isinstance(value, float))


def test_each_event_comes_once_and_in_order_and_the_last_ones_before_the_end() -> None:
    found: list[Event] = []
    calls = EventCallback(found.append, PLACE, tally := Tally())
    for event in EVENTS:
        calls.put(event)
    calls.close()
    assert found == EVENTS
    assert dropped(tally) == 0


def test_no_thread_runs_before_the_first_event() -> None:
    before = threading.active_count()
    calls = EventCallback(print, PLACE, Tally())
    assert threading.active_count() == before
    calls.close()


def test_a_callback_that_raises_gets_the_next_events_and_each_type_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found: list[Event] = []

    def fail(event: Event) -> None:
        found.append(event)
        raise (SystemExit if len(found) % 2 else ValueError)("no")

    caplog.handler.addFilter(LogContext())
    calls = EventCallback(fail, PLACE, Tally())
    for event in EVENTS:
        calls.put(event)
    calls.close()
    assert found == EVENTS
    told = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [one.getMessage().split(". ")[0] for one in told] == [
        "on_event raised on TakingFailed: SystemExit: no",
        "on_event raised on TakingFailed: ValueError: no",
    ]
    assert [(one.worker, bool(one.exc_info)) for one in told] == [("w", True)] * 2  # type: ignore[attr-defined]


def test_what_a_blocked_callback_does_not_get_is_bounded_counted_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(callback, "MOST_WAITING", 10)
    is_in, go_on = threading.Event(), threading.Event()
    found: list[Event] = []

    def block(event: Event) -> None:
        is_in.set()
        assert go_on.wait(PATIENCE)
        found.append(event)

    calls = EventCallback(block, PLACE, tally := Tally())
    calls.put(EVENTS[0])
    assert is_in.wait(PATIENCE)
    for event in EVENTS[1:]:
        calls.put(event)
    assert dropped(tally) == 89
    assert caplog.text.count("on_event is too slow: 10 events wait for it") == 1
    go_on.set()
    calls.close()
    assert found == EVENTS[:11]
    calls.put(EVENTS[0])
    assert dropped(tally) == 90, "nothing comes after the end"


def test_what_comes_after_the_end_is_not_called_slow(caplog: pytest.LogCaptureFixture) -> None:
    calls = EventCallback(lambda _: None, PLACE, tally := Tally())
    calls.close()
    calls.put(EVENTS[0])
    assert dropped(tally) == 1
    assert "too slow" not in caplog.text


def test_the_end_does_not_wait_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(callback, "DRAIN_WITHIN", 0.0)
    is_in, go_on = threading.Event(), threading.Event()

    def block(event: Event) -> None:
        is_in.set()
        go_on.wait(PATIENCE)

    tally = Tally()
    calls = EventCallback(block, PLACE, tally)
    for event in EVENTS[:3]:
        calls.put(event)
    assert is_in.wait(PATIENCE)
    calls.close()
    assert dropped(tally) == 2
    assert "on_event has not returned within 0 s of the worker's end: 2 events" in caplog.text
    go_on.set()


def test_a_callback_may_end_the_worker() -> None:
    """The end comes from its own thread then, which cannot wait for itself."""
    ended = threading.Event()

    def end(event: Event) -> None:
        calls.close()
        ended.set()

    calls = EventCallback(end, PLACE, Tally())
    calls.put(EVENTS[0])
    assert ended.wait(PATIENCE)
