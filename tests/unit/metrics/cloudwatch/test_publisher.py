"""What is measured is published once, in bounded memory, whatever the target does."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkinesis.metrics.catalogue import LAG, RECORDS_PROCESSED, RENEWAL_DURATION
from sparkinesis.metrics.cloudwatch.data import Datum, PublishedMetrics, StatisticSet
from sparkinesis.metrics.cloudwatch.publisher import (
    MOST_BYTES,
    MOST_DATA,
    Fate,
    Point,
    Publisher,
    Sent,
    SeriesBuffer,
    UnsentPoints,
    size_of,
)
from sparkinesis.metrics.metric import Level
from sparkinesis.metrics.metrics import Sample
from tests.clocks import MovedClock
from tests.journal import PATIENCE

SUMMARY = PublishedMetrics(Level.SUMMARY, "w-1")
PUBLISHED = Sent(Fate.PUBLISHED)


class Recorder:
    """A target that answers as it is told, and keeps what it has taken."""

    name = "recorder"

    def __init__(self) -> None:
        self.answer: Callable[[Sequence[Point]], Sent] = lambda points: PUBLISHED
        self.taken: list[Point] = []
        self.calls = 0
        self.is_closed = threading.Event()

    def send(self, points: Sequence[Point]) -> Sent:
        self.calls += 1
        sent = self.answer(points)
        if sent.fate is Fate.PUBLISHED:
            self.taken += points
        return sent

    def close(self) -> None:
        self.is_closed.set()

    def total(self, name: str) -> float:
        return sum(point.values.sum for point in self.taken if point.datum.name == name)


@pytest.fixture
def target() -> Recorder:
    return Recorder()


def publisher(
    target: Recorder, clock: MovedClock, selection: PublishedMetrics = SUMMARY, **given: Any
) -> Publisher:
    """A publisher that flushes when it is told."""
    options = {"flush_every": 3600, "close_within": PATIENCE, "most": 100, **given}
    return Publisher(target, selection, wall_clock=clock, **options)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.integers(0, 100))
def test_a_statistic_set_is_that_of_all_values(values: list[float], cut: int) -> None:
    one = StatisticSet.of(values[0])
    for value in values[1:cut]:
        one.add(value)
    if len(values) > max(cut, 1):
        other = StatisticSet.of(values[max(cut, 1)])
        for value in values[max(cut, 1) + 1 :]:
            other.add(value)
        one.merge(other)
    assert (one.count, one.least, one.most) == (len(values), min(values), max(values))
    assert math.isclose(one.sum, math.fsum(values), abs_tol=1e-6)


def test_measurements_of_a_flush_are_one_set(target: Recorder, clock: MovedClock) -> None:
    made = publisher(target, clock)
    for shard in range(5):
        made.add(RECORDS_PROCESSED, ("s", f"shard-{shard}"), 10 + shard)
    made.flush()
    (point,) = target.taken
    assert point.minute == 1000
    assert point.datum == Datum(
        "RecordsProcessed", "Count", (("Operation", "ProcessTask"),), is_total=True
    )
    assert point.values == StatisticSet(5, 60, 10, 14)
    made.flush()
    assert target.calls == 1, "nothing new was measured"


def test_gauges_are_read_at_each_flush_until_they_stop(target: Recorder, clock: MovedClock) -> None:
    made = publisher(target, clock)
    lags = {"a": 1.0, "b": 4.0}
    stop = made.watch(lambda: [Sample(LAG, ("s", shard), lag) for shard, lag in lags.items()])
    made.flush()
    del lags["b"]
    made.flush()
    assert [point.values for point in target.taken] == [
        StatisticSet(2, 5000, 1000, 4000),
        StatisticSet(1, 1000, 1000, 1000),
    ]
    stop()
    made.flush()
    assert len(target.taken) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_cloudwatch_refuses_is_left_out(
    target: Recorder, clock: MovedClock, value: float
) -> None:
    made = publisher(target, clock)
    made.observe(RENEWAL_DURATION, ("ok",), value)
    made.observe(RENEWAL_DURATION, ("ok",), 1.0)
    made.flush()
    assert target.total("Time") == 1000
    assert target.total("Success") == 1


def test_what_is_throttled_is_sent_later_with_its_minute(
    target: Recorder, clock: MovedClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = publisher(target, clock)
    target.answer = lambda points: Sent(Fate.KEPT, "Rate exceeded", "Throttling")
    for _ in range(12):  # two minutes
        made.add(RECORDS_PROCESSED, ("s", "a"), 1)
        made.flush()
        clock.now += 10
    assert (made.held, made.dropped) == (2, 0)
    target.answer = lambda points: PUBLISHED
    made.flush()
    assert [(p.minute, p.values) for p in target.taken] == [
        (1000, StatisticSet(6, 6, 1, 1)),
        (1001, StatisticSet(6, 6, 1, 1)),
    ]
    (record,) = caplog.records
    assert record.message.startswith("recorder does not take metrics: Rate exceeded. They are kept")


def test_what_may_have_arrived_is_not_sent_again(target: Recorder, clock: MovedClock) -> None:
    made = publisher(target, clock)
    target.answer = lambda points: Sent(Fate.LOST, "Read timed out", "ReadTimeoutError")
    made.add(RECORDS_PROCESSED, ("s", "a"), 5)
    made.flush()
    target.answer = lambda points: PUBLISHED
    made.add(RECORDS_PROCESSED, ("s", "a"), 7)
    made.flush()
    assert target.total("RecordsProcessed") == 7
    assert (made.held, made.dropped) == (0, 1)


def test_a_flush_makes_one_call_that_fails(target: Recorder, clock: MovedClock) -> None:
    """Each may take seconds, and the rest would fail, too."""
    for fate in (Fate.KEPT, Fate.LOST):
        target.calls = 0
        made = publisher(
            target, clock, PublishedMetrics(Level.SUMMARY, "w", by_shard=True), most=5000
        )
        target.answer = lambda points, fate=fate: Sent(fate, "x", "y")  # type: ignore[misc]
        for shard in range(3 * MOST_DATA):
            made.add(RECORDS_PROCESSED, ("s", f"shard-{shard}"), 1)
        made.flush()
        assert target.calls == 1
        assert made.held + made.dropped == 3 * MOST_DATA


def test_data_that_is_refused_for_good_does_not_block_the_rest(
    target: Recorder, clock: MovedClock
) -> None:
    made = publisher(target, clock, PublishedMetrics(Level.SUMMARY, "w", by_shard=True), most=5000)
    target.answer = lambda points: (
        Sent(Fate.INVALID, "bad", "bad") if target.calls == 1 else PUBLISHED
    )
    for shard in range(2 * MOST_DATA):
        made.add(RECORDS_PROCESSED, ("s", f"shard-{shard}"), 1)
    made.flush()
    assert made.held == 0
    assert made.dropped + len(target.taken) == 2 * MOST_DATA
    assert made.dropped
    assert target.taken


def test_an_outage_of_hours_holds_no_more_than_it_may(
    target: Recorder, clock: MovedClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = publisher(target, clock, PublishedMetrics(Level.SUMMARY, "w", by_shard=True), most=50)
    target.answer = lambda points: Sent(Fate.KEPT, "x", "y")
    for minute in range(300):
        for shard in range(7):
            made.add(RECORDS_PROCESSED, ("s", f"shard-{minute}-{shard}"), 1)
        made.flush()
        assert made.held <= 50
        clock.now += 60
    assert made.held + made.dropped == 300 * 7
    assert [record.message[:40] for record in caplog.records] == [
        "recorder does not take metrics: x. They ",
        "Metrics for recorder are dropped, the ol",
    ]
    target.answer = lambda points: PUBLISHED
    made.flush()
    assert {point.minute for point in target.taken} <= set(range(1000 + 300 - 9, 1000 + 301))
    assert len(target.taken) == 50, "the newest"


def test_measurements_between_two_flushes_are_bounded(
    target: Recorder, clock: MovedClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = publisher(target, clock, PublishedMetrics(Level.SUMMARY, "w", by_shard=True), most=10)
    for shard in range(1000):
        made.add(RECORDS_PROCESSED, ("s", f"shard-{shard}"), 1)
        made.add(RECORDS_PROCESSED, ("s", "shard-0"), 1)
    made.flush()
    assert len(target.taken) == 10
    assert made.dropped == 990
    (line,) = caplog.messages
    assert line.startswith("Metrics for recorder are dropped")
    assert max(point.values.count for point in target.taken) == 1001


def test_points_of_a_call_fit_into_a_request() -> None:
    unsent = UnsentPoints(10_000)
    long = tuple((f"Dimension{n}", "v" * 900) for n in range(3))
    for n in range(2500):
        unsent.put(1, Datum(f"name-{n}", "Count", (*long, ("n", str(n)))), StatisticSet.of(n))
    calls = []
    while points := unsent.take():
        calls.append(points)
    assert sum(map(len, calls)) == 2500
    assert all(len(points) <= MOST_DATA for points in calls)
    assert all(sum(size_of(point.datum) for point in points) <= MOST_BYTES for points in calls)
    small = UnsentPoints(10_000)
    for n in range(2500):
        small.put(1, Datum(f"name-{n}", "Count", ()), StatisticSet.of(n))
    assert [len(small.take()) for _ in range(4)] == [1000, 1000, 500, 0]


def test_many_threads_lose_no_measurement() -> None:
    buffer = SeriesBuffer(SUMMARY, 100)
    rounds, threads = 2000, 8
    found = 0.0

    def measure() -> None:
        for _ in range(rounds):
            buffer.take(RECORDS_PROCESSED, ("s", "a"), 1)

    running = [threading.Thread(target=measure) for _ in range(threads)]
    for thread in running:
        thread.start()
    while any(thread.is_alive() for thread in running):
        found += sum(values.sum for values in buffer.drain().values())
    found += sum(values.sum for values in buffer.drain().values())
    assert found == rounds * threads


def test_closing_does_not_wait_for_a_target_that_hangs(
    target: Recorder, clock: MovedClock, caplog: pytest.LogCaptureFixture
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(points: Sequence[Point]) -> Sent:
        hangs.set()
        goes_on.wait(PATIENCE)
        return PUBLISHED

    target.answer = hang
    made = publisher(target, clock, flush_every=0.001, close_within=0.05).start()
    made.add(RECORDS_PROCESSED, ("s", "a"), 5)
    assert hangs.wait(PATIENCE)
    made.add(RECORDS_PROCESSED, ("s", "a"), 1)  # is not blocked meanwhile
    made.close()
    assert not target.is_closed.is_set()
    assert "did not take the last metrics within 0.05 s" in caplog.text
    goes_on.set()
    assert target.is_closed.wait(PATIENCE)


def test_an_error_of_ours_does_not_end_the_thread(
    target: Recorder, clock: MovedClock, caplog: pytest.LogCaptureFixture
) -> None:
    failed = threading.Event()

    def fail(points: Sequence[Point]) -> Sent:
        failed.set()
        raise KeyError("a bug")

    target.answer = fail
    made = publisher(target, clock, flush_every=0.001).start()
    made.add(RECORDS_PROCESSED, ("s", "a"), 5)
    assert failed.wait(PATIENCE)
    target.answer = lambda points: PUBLISHED
    made.add(RECORDS_PROCESSED, ("s", "a"), 7)
    made.close()
    assert target.total("RecordsProcessed") == 7
    assert "a bug" in caplog.text
    assert made.dropped == 1
