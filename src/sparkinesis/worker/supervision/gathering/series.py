"""The metrics of several workers, as they have reported them to their supervisor. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sparkinesis.metrics.catalogue import BY_NAME
from sparkinesis.metrics.metric import Kind
from sparkinesis.metrics.tally import Series

DEPARTED = 200
"""The most departed workers whose counters are kept: some megabytes."""


@dataclass(frozen=True, slots=True)
class GatheredSeries:
    """The last series of each worker.

    A worker that has ended keeps its counters, so that sums over the workers only grow, and not its
    gauges, which tell of a present that it has not.
    """

    workers: Mapping[str, tuple[Series, ...]] = field(default_factory=dict)
    """By worker id; who has reported last comes last."""

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
