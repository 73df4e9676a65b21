"""What follows from an event: counters, and a log line that names its place."""

from __future__ import annotations

import logging

import pytest

from sparkinesis.events import (
    BatchAction,
    BatchFailed,
    DataLost,
    DeadLettersStored,
    Event,
    HandoffRequested,
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
)
from sparkinesis.worker.reporting.log_context import LogPlace
from sparkinesis.worker.reporting.teller import EventTeller, count_of
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
    EventTeller(LogPlace("app", "w"), "s")(event)
    (line,) = caplog.records
    found = (line.application, line.worker, line.shard, line.sparkinesis_event)  # type: ignore[attr-defined]
    assert found == ("app", "w", shard, event)
    assert (line.levelno, line.getMessage()) == event.line()
