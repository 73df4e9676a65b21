"""The metrics of one query, made of the progress that Spark reports of its batches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from sparkinesis.metrics.catalogue import (
    QUERY_BATCH_DURATION,
    QUERY_BYTES,
    QUERY_DATA_LOSS,
    QUERY_FAILURES,
    QUERY_LAG,
    QUERY_LAG_MAX,
    QUERY_LAG_MEAN,
    QUERY_LATE_ROWS,
    QUERY_LIMIT_FILLED,
    QUERY_PLANNING_DURATION,
    QUERY_PROBES,
    QUERY_PROGRESS_AGE,
    QUERY_RANGES,
    QUERY_ROWS,
    QUERY_RUNNING,
    QUERY_THROTTLED,
)
from sparkinesis.metrics.metric import Metric
from sparkinesis.metrics.metrics import Metrics, Sample
from sparkinesis.source.watching.query_progress import SourceReading, lags_of
from sparkinesis.status import StreamLag


class WatchedQuery:
    """Counts what a query does, through its restarts. For any thread.

    Its counters go on when the query is started again: they are the query's, not the run's.
    """

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        """``clock``: monotonic, in seconds."""
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._run: str | None = None
        """The run whose progress is counted; None while the query does not run."""
        self._started: str | None = None
        """The run that was started last; None once it has ended. It has no progress at first."""
        self._counted: dict[tuple[Metric, int, str], int] = {}
        """What is counted already of this run, by the source's place and stream."""
        self._filled: Mapping[str, float] = {}
        """The share of its limit that each source's last planned batch fills."""
        self._bytes_per_row: dict[str, float] = {}
        self._lags: Mapping[str, StreamLag] = {}
        self._seen_at = clock()
        self._stop_gauges = metrics.watch(self._gauges)

    @property
    def is_running(self) -> bool:
        return self._run is not None or self._started is not None

    def start(self, run: str) -> None:
        """Begin a run; its first progress may be seconds away."""
        with self._lock:
            self._started, self._seen_at = run, self._clock()

    def read(self, run: str, sources: Sequence[SourceReading]) -> None:
        """Read plans' reports in the progress of a batch that has ended, or of an idle query."""
        with self._lock:
            self._seen_at = self._clock()
            if run != self._run:
                self._begin(run)
            new = list(self._new_counts(sources))
            if any(source.reports for source in sources):
                self._lags = lags_of(sources)
                self._filled = {
                    source.name: source.filled for source in sources if source.filled is not None
                }
        for metric, stream, count in new:
            self._metrics.add(metric, (stream,), count)

    def count(self, sources: Sequence[SourceReading], seconds: float, late: int) -> None:
        """Count a batch that has ended; ``late``: the rows that it dropped."""
        self._metrics.observe(QUERY_BATCH_DURATION, (), seconds)
        if late:
            self._metrics.add(QUERY_LATE_ROWS, (), late)
        for source in sources:
            if source.plan_seconds is not None:
                self._metrics.observe(QUERY_PLANNING_DURATION, (source.name,), source.plan_seconds)
            for stream, report in source.reports.items():
                if report.ranges:
                    self._metrics.add(QUERY_RANGES, (stream,), report.ranges)
            if not source.rows:
                continue
            self._metrics.add(QUERY_ROWS, (source.name,), source.rows)
            # A batch that Spark runs again after a restart was not planned: its size is unknown.
            size = source.bytes_per_row or self._bytes_per_row.get(source.name)
            if size is not None:
                self._bytes_per_row[source.name] = size
                self._metrics.add(QUERY_BYTES, (source.name,), source.rows * size)

    def end(self, run: str, error: str | None) -> None:
        """End a run; ``error``: the class of the error that ended it, None for a stop.

        Spark reports an end late: another run may have started.
        """
        with self._lock:
            if self._run in {None, run}:
                self._begin(None)
            if self._started == run:
                self._started = None
        if error is not None:
            self._metrics.add(QUERY_FAILURES, (error,))

    def status(self) -> dict[str, object]:
        """Return the query's state: whether it runs, and its lag by stream."""
        with self._lock:
            age = max(0.0, self._clock() - self._seen_at)
            return {"running": self.is_running, "progress_age": age, "lag": dict(self._lags)}

    def close(self) -> None:
        """Publish what is not published yet, and stop."""
        self._stop_gauges()
        self._metrics.close()

    def _begin(self, run: str | None) -> None:
        self._run, self._counted, self._lags, self._filled = run, {}, {}, {}

    def _new_counts(self, sources: Sequence[SourceReading]) -> Iterator[tuple[Metric, str, int]]:
        """Yield what has been counted since the last progress, however many were missed."""
        for place, source in enumerate(sources):
            for stream, report in source.reports.items():
                for metric, count in (
                    (QUERY_DATA_LOSS, report.data_losses),
                    (QUERY_PROBES, report.probes),
                    (QUERY_THROTTLED, report.throttled),
                ):
                    before = self._counted.get((metric, place, stream), 0)
                    if count > before:
                        self._counted[metric, place, stream] = count
                        yield metric, stream, count - before

    def _gauges(self) -> list[Sample]:
        with self._lock:
            lags, runs, seen_at = self._lags, self.is_running, self._seen_at
            filled = self._filled
        found = [Sample(QUERY_RUNNING, (), float(runs))]
        if runs:
            found.append(Sample(QUERY_PROGRESS_AGE, (), max(0.0, self._clock() - seen_at)))
        found += [Sample(QUERY_LIMIT_FILLED, (name,), share) for name, share in filled.items()]
        for stream, lag in lags.items():
            found.append(Sample(QUERY_LAG_MAX, (stream,), lag.max_ms / 1000))
            found.append(Sample(QUERY_LAG_MEAN, (stream,), lag.mean_ms / 1000))
            found += [
                Sample(QUERY_LAG, (stream, shard), ms / 1000) for shard, ms in lag.shards_ms.items()
            ]
        return found
