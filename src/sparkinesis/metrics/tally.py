"""Metrics in memory, for a scrape, a status page or a supervisor: of one process, or of several."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping

import msgspec

from sparkinesis.metrics.catalogue import BY_NAME
from sparkinesis.metrics.metric import Kind, Metric, series_places
from sparkinesis.metrics.metrics import GaugeReaders, Labels, ReadGauges

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""The upper bounds of a histogram's buckets in seconds: from a call of a local server to a batch
that takes minutes. One more bucket has no bound."""


class Distribution(msgspec.Struct, array_like=True):
    """The values of a histogram so far."""

    counts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    """The number of values in each bucket; not cumulative."""
    sum: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def add(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.sum += value

    def copy(self) -> Distribution:
        return Distribution(list(self.counts), self.sum)


class Series(msgspec.Struct, array_like=True, frozen=True):
    """The value of one metric for one set of labels."""

    metric: str
    """The metric's name in the catalogue."""
    labels: tuple[str, ...]
    """The values of `Metric.series_labels`."""
    value: float | Distribution


class Tally:
    """The counts of one worker, fleet or query since its start. Implements `Metrics`.

    Its memory grows with the streams and the kinds of results, never with the shards that were.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[tuple[Metric, Labels], float] = {}
        self._distributions: dict[tuple[Metric, Labels], Distribution] = {}
        self._gauges = GaugeReaders()

    def add(self, counter: Metric, labels: Labels, amount: float = 1.0) -> None:
        key = (counter, _series_of(counter, labels))
        with self._lock:
            self._counters[key] = self._counters.get(key, 0.0) + amount

    def observe(self, histogram: Metric, labels: Labels, value: float) -> None:
        key = (histogram, _series_of(histogram, labels))
        with self._lock:
            found = self._distributions.get(key)
            if found is None:
                found = self._distributions[key] = Distribution()
            found.add(value)

    def watch(self, read: ReadGauges) -> Callable[[], None]:
        return self._gauges.add(read)

    def close(self) -> None:
        """Do nothing: what was counted can be read until the process ends."""

    def series(self) -> list[Series]:
        """Return all series as of now, in the order of their names and labels."""
        with self._lock:
            found = [
                Series(metric.name, labels, value)
                for (metric, labels), value in self._counters.items()
            ]
            found += [
                Series(metric.name, labels, value.copy())
                for (metric, labels), value in self._distributions.items()
            ]
        found += [Series(metric.name, labels, value) for metric, labels, value in self._gauges()]
        found.sort(key=lambda one: (one.metric, one.labels))
        return found


def _series_of(metric: Metric, labels: Labels) -> Labels:
    """Return the values of `Metric.series_labels`."""
    metric.check(labels)
    places = series_places(metric)
    return labels if len(places) == len(labels) else tuple(labels[place] for place in places)


DEPARTED = 200
"""The most departed workers whose counters are kept: some megabytes."""


class GatheredSeries(msgspec.Struct, frozen=True):
    """The series of several workers, as each has last reported them.

    A worker that has ended keeps its counters, so that sums over the workers only grow. It does not
    keep its gauges, which are about the present.
    """

    workers: Mapping[str, tuple[Series, ...]] = msgspec.field(default_factory=dict)
    """By worker id; the worker that has reported last comes last."""

    def add(self, worker_id: str, series: tuple[Series, ...] | None) -> GatheredSeries:
        """Return a copy with another report of a worker; None: it reported no series."""
        if series is None:
            return self
        others = {key: each for key, each in self.workers.items() if key != worker_id}
        return GatheredSeries({**others, worker_id: series})

    def retain(self, worker_ids: Collection[str]) -> GatheredSeries:
        """Return a copy without the workers that departed longest ago, if those are many."""
        departed = [key for key in self.workers if key not in worker_ids]
        if len(departed) <= DEPARTED:
            return self
        gone = set(departed[:-DEPARTED])
        return GatheredSeries({key: each for key, each in self.workers.items() if key not in gone})

    def groups(
        self, application: str, live: Collection[str]
    ) -> list[tuple[Mapping[str, str], tuple[Series, ...]]]:
        """Return the series with the labels of each worker; gauges of ``live`` workers only."""
        return [
            (
                {"application": application, "worker": key},
                series if key in live else tuple(one for one in series if not _is_gauge(one)),
            )
            for key, series in self.workers.items()
        ]


def _is_gauge(series: Series) -> bool:
    metric = BY_NAME.get(series.metric)
    return metric is None or metric.kind is Kind.GAUGE
