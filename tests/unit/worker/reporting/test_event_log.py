"""What follows from an event: counters, and a log line that names its place."""

from __future__ import annotations

import logging
import threading

import pytest

from sparkinesis.events import (
    BatchAction,
    BatchFailed,
    DataLost,
    DeadLettersStored,
    Event,
    HandlerFailed,
    HandoffRequested,
    HoldLost,
    LeaseDeleted,
    LeaseEnd,
    LeaseEnded,
    LeaseOrigin,
    LeaseReadable,
    LeaseTaken,
    ParentsLost,
    RecordsSkipped,
    ShardStarted,
    ShutdownBegan,
    TableFound,
    TakingFailed,
)
from sparkinesis.metrics.tally import Tally
from sparkinesis.worker.reporting import event_log
from sparkinesis.worker.reporting.event_log import EventCallback, WorkerEvents, count_of
from sparkinesis.worker.reporting.log_context import LogContext, LogPlace
from tests import pace
from tests.unit.test_events import AT, EVENTS

KEY = "123456789012:clicks:1763700000:s1"


def ended(reason: LeaseEnd) -> Event:
    return LeaseEnded("s0", "s0", reason, "detail", None, 1.0, "7:0")


@pytest.mark.parametrize(
    ("event", "name", "labels", "amount"),
    [
        (
            LeaseTaken("s0", "s0", LeaseOrigin.LATE_HANDOVER, "v", 1.0, "7:0"),
            "leases.taken",
            ("only", "s0", "late handover"),
            1,
        ),
        (
            LeaseTaken(KEY, "s1", LeaseOrigin.UNOWNED, None, None, "7:0"),
            "leases.taken",
            ("clicks", "s1", "unowned"),
            1,
        ),
        (HandoffRequested(KEY, "s1", "v"), "leases.requested", ("clicks", "s1"), 1),
        (LeaseDeleted(KEY, "s1"), "leases.deleted", ("clicks",), 1),
        (ended(LeaseEnd.TAKEN), "leases.lost", ("only", "s0", "taken"), 1),
        (ended(LeaseEnd.HANDED_OVER), "leases.released", ("only", "s0", "handed over"), 1),
        (
            BatchFailed(*AT, 3, "1:0", "3:0", BatchAction.DEAD_LETTER, "x", None, True),
            "batches.failed",
            ("s", "s0", "dead letter"),
            1,
        ),
        (RecordsSkipped(*AT, 3, "1:0", "3:0"), "records.skipped", ("s", "s0"), 3),
        (DeadLettersStored(*AT, 2, "1:0", "2:0"), "dead.letters", ("s", "s0"), 2),
        (DataLost(*AT, "lost"), "data.loss", ("s", "s0"), 1),
        (ParentsLost(KEY, "s1", "s", ("s0",), "lost"), "data.loss", ("s", "s1"), 1),
        (
            HandlerFailed("q", "queue q", "r", 1, BatchAction.SKIP, None, "x"),
            "queue.failed",
            ("q",),
            1,
        ),
        (HoldLost("q", "queue q", "r", "ended"), "queue.holds.lost", ("q", "ended"), 1),
    ],
)
def test_an_event_counts(event: Event, name: str, labels: tuple[str, ...], amount: int) -> None:
    count = count_of(event, "only")
    assert count is not None
    assert (count.metric.name, count.labels, count.amount) == (name, labels, amount)


@pytest.mark.parametrize("event", [ShardStarted(*AT, "LATEST", "LATEST"), TableFound("w")])
def test_other_events_count_nothing(event: Event) -> None:
    assert count_of(event, "only") is None


@pytest.mark.parametrize("event", EVENTS)
def test_a_count_has_the_labels_of_its_metric(event: Event) -> None:
    count = count_of(event, "only")
    assert count is None or len(count.labels) == len(count.metric.labels)


@pytest.mark.parametrize("action", BatchAction)
def test_the_catalogue_names_each_action(action: BatchAction) -> None:
    count = count_of(BatchFailed(*AT, 1, "1:0", "1:0", action, "x", None, False), "only")
    assert count is not None
    assert action.value in count.metric.help


@pytest.mark.parametrize(
    ("event", "shard"),
    [
        (ended(LeaseEnd.EXPIRED), "s0"),
        (HandoffRequested(KEY, "s1", "v"), KEY),
        (LeaseReadable("s0", "lease table 't'"), "s0"),
        (ShutdownBegan("w", 2, None), "-"),
    ],
)
def test_a_line_names_its_place_whichever_thread_raises_the_event(
    caplog: pytest.LogCaptureFixture, event: Event, shard: str
) -> None:
    caplog.set_level(logging.INFO)
    WorkerEvents(LogPlace("app", "w"), "s")(event)
    (line,) = caplog.records
    found = (line.application, line.worker, line.shard, line.sparkinesis_event)  # type: ignore[attr-defined]
    assert found == ("app", "w", shard, event)
    assert (line.levelno, line.getMessage()) == event.line()


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
    monkeypatch.setattr(event_log, "MOST_WAITING", 10)
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
    monkeypatch.setattr(event_log, "DRAIN_WITHIN", 0.0)
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
