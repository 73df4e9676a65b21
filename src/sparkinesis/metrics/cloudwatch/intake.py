"""Measurements since the last flush, as statistic sets. Implements `Metrics` but for `close`."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from sparkinesis.metrics.cloudwatch.names import Selection, is_published
from sparkinesis.metrics.cloudwatch.statistic_set import StatisticSet
from sparkinesis.metrics.gauge_readers import GaugeReaders
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import Labels, ReadGauges

Measurements = dict[tuple[Metric, Labels], StatisticSet]


class Intake:
    """Takes measurements. It grows with kinds of measurements, never with their number.

    most: the series that it holds at most; measurements of further ones are counted in ``dropped``.
    """

    def __init__(self, selection: Selection, most: int) -> None:
        self._selection = selection
        self._most = most
        self._lock = threading.Lock()
        self._sets: Measurements = {}
        self._gauges = GaugeReaders()
        self._shard_places: dict[Metric, int | None] = {}
        """The place of the label that is left out, if any; no entry: not looked at yet."""
        self._unpublished: set[Metric] = set()
        self.dropped = 0
        """The measurements that found no room."""

    def take(self, metric: Metric, labels: Labels, value: float) -> None:
        """Take a value of a metric. For any thread; waits for nobody."""
        if metric in self._unpublished:
            return
        try:
            place = self._shard_places[metric]
        except KeyError:
            if not is_published(metric, self._selection):
                self._unpublished.add(metric)
                return
            place = self._shard_place(metric)
        if len(labels) != len(metric.labels):
            raise ValueError(
                f"{metric.name} has the labels {metric.labels}, and was given {labels!r}"
            )
        if not math.isfinite(value):
            return  # CloudWatch refuses the whole call
        if place is not None:
            labels = (*labels[:place], "", *labels[place + 1 :])
        key = (metric, labels)
        with self._lock:
            found = self._sets.get(key)
            if found is not None:
                found.add(value)
            elif len(self._sets) < self._most:
                self._sets[key] = StatisticSet.of(value)
            else:
                self.dropped += 1

    def watch(self, read: ReadGauges) -> Callable[[], None]:
        return self._gauges.add(read)

    def read_gauges(self) -> None:
        """Take one value of each gauge."""
        self._gauges.read(self.take)

    def drain(self) -> Measurements:
        """Return what was measured since the last call, and forget it."""
        with self._lock:
            taken, self._sets = self._sets, {}
        return taken

    def _shard_place(self, metric: Metric) -> int | None:
        is_left_out = "shard" in metric.labels and not self._selection.by_shard
        place = metric.labels.index("shard") if is_left_out else None
        self._shard_places[metric] = place
        return place
