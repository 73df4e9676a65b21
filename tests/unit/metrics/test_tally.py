"""A tally counts exactly, from any number of threads, and forgets the shards that have ended."""

from __future__ import annotations

import threading

import pytest

from sparkinesis.metrics.catalogue import LAG, PROCESS_DURATION, RECORDS_PROCESSED
from sparkinesis.metrics.metrics import ReadGauges, Sample
from sparkinesis.metrics.tally import BUCKETS, Distribution, Series, Tally


def test_counters_add_up_over_shards_and_threads() -> None:
    tally = Tally()

    def count(shard: str) -> None:
        for _ in range(1000):
            tally.add(RECORDS_PROCESSED, ("s", shard), 3)

    threads = [threading.Thread(target=count, args=(f"shard-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.series() == [Series("records.processed", ("s",), 12_000.0)]


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    tally = Tally()
    for value in (0.0, BUCKETS[0], BUCKETS[1], BUCKETS[-1], BUCKETS[-1] * 2):
        tally.observe(PROCESS_DURATION, ("s", "shard", "ok"), value)
    (series,) = tally.series()
    assert series.labels == ("s", "ok")
    assert isinstance(series.value, Distribution)
    assert series.value.counts == [2, 1, *[0] * (len(BUCKETS) - 3), 1, 1]
    assert series.value.sum == pytest.approx(BUCKETS[0] + BUCKETS[1] + 3 * BUCKETS[-1])
    assert series.value.count == 5


def test_a_reading_does_not_change_later() -> None:
    tally = Tally()
    tally.observe(PROCESS_DURATION, ("s", "shard", "ok"), 1.0)
    (before,) = tally.series()
    tally.observe(PROCESS_DURATION, ("s", "shard", "ok"), 1.0)
    assert isinstance(before.value, Distribution)
    assert before.value.count == 1


def test_gauges_are_read_when_somebody_looks_and_go_with_their_shards() -> None:
    tally = Tally()
    lags = {"a": 1.0, "b": 2.0}
    stop = tally.watch(lambda: [Sample(LAG, ("s", shard), lag) for shard, lag in lags.items()])
    assert [one.labels for one in tally.series()] == [("s", "a"), ("s", "b")]
    del lags["a"]
    assert tally.series() == [Series("lag", ("s", "b"), 2.0)]
    stop()
    assert tally.series() == []


def _fail() -> list[Sample]:
    raise RuntimeError("no gauges")


@pytest.mark.parametrize(
    "read",
    [
        _fail,
        lambda: [Sample(LAG, ("s",), 1.0)],
        lambda: [Sample(LAG, ("s", "other"), None)],  # type: ignore[arg-type]
    ],
    ids=["raises", "wrong labels", "no number"],
)
def test_gauges_that_cannot_be_read_hide_no_others(
    caplog: pytest.LogCaptureFixture, read: ReadGauges
) -> None:
    tally = Tally()
    tally.add(RECORDS_PROCESSED, ("s", "shard"))
    tally.watch(read)
    tally.watch(lambda: [Sample(LAG, ("s", "shard"), 7.0)])
    for _ in range(2):
        assert [one.metric for one in tally.series()] == ["lag", "records.processed"]
    assert caplog.text.count("Gauges could not be read") == 1, "it is logged once"


def test_labels_of_another_metric_are_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"records.processed has the labels"):
        Tally().add(RECORDS_PROCESSED, ("s",))
