"""What a tally has counted, in the form in which tests compare it."""

from __future__ import annotations

from collections.abc import Callable

from sparkinesis.metrics.metric import Measured, Metric
from sparkinesis.metrics.metrics import Labels, ReadGauges
from sparkinesis.metrics.tally import Distribution, Tally


class Tallied:
    """An exporter that keeps what it gets in memory."""

    def __init__(self) -> None:
        self.tally = Tally()

    def open(self, measured: Measured) -> Tally:
        del measured
        return self.tally


class Raising:
    """Metrics that always raise."""

    def add(self, counter: Metric, labels: Labels, amount: float = 1.0) -> None:
        raise OSError("the disk is full")

    def observe(self, histogram: Metric, labels: Labels, value: float) -> None:
        raise OSError("the disk is full")

    def watch(self, read: ReadGauges) -> Callable[[], None]:
        raise OSError("the disk is full")

    def close(self) -> None:
        raise RuntimeError("not open")


def counted(tally: Tally, metric: Metric) -> dict[tuple[str, ...], float]:
    """A counter's values, or the number of a histogram's, by `Metric.series_labels`."""
    return {
        one.labels: one.value.count if isinstance(one.value, Distribution) else one.value
        for one in tally.series()
        if one.metric == metric.name
    }


def seconds(tally: Tally, metric: Metric) -> dict[tuple[str, ...], float]:
    """The sums of a histogram, by the same."""
    return {
        one.labels: one.value.sum
        for one in tally.series()
        if one.metric == metric.name and isinstance(one.value, Distribution)
    }
