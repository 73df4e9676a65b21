"""What the progress of a query shows of its Kinesis sources: lags, and the query's metrics."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from sparkinesis.errors import DataLossError
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
from sparkinesis.public import public
from sparkinesis.source.offsets import ANY_SHARD
from sparkinesis.source.stream_report import StreamReport, read_reports
from sparkinesis.status import StreamLag
from sparkinesis.stream.position import parse_position

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


_OUR_ERROR = re.compile(r"\bsparkinesis\.errors\.(\w+Error)\b")


class Source(Protocol):
    """The progress of a source, as PySpark's ``SourceProgress`` has it."""

    @property
    def endOffset(self) -> Any: ...  # noqa: N802 - Spark's name
    @property
    def latestOffset(self) -> Any: ...  # noqa: N802 - Spark's name
    @property
    def numInputRows(self) -> int: ...  # noqa: N802 - Spark's name


class Operator(Protocol):
    """The progress of an operator that keeps state, as ``StateOperatorProgress`` has it."""

    @property
    def numRowsDroppedByWatermark(self) -> int: ...  # noqa: N802 - Spark's name


class SourceReading(msgspec.Struct, frozen=True):
    """One Kinesis source in a progress."""

    streams: tuple[str, ...]
    """Sorted."""
    rows: int
    reports: Mapping[str, StreamReport]
    """By stream; empty for a batch that Spark runs again after a restart: it is not planned."""

    @property
    def name(self) -> str:
        """The name of the stream, or the names of all."""
        return ",".join(self.streams)

    @property
    def plan_seconds(self) -> float | None:
        """The time of the plan; None if there was none."""
        times = [one.plan_millis for one in self.reports.values() if one.plan_millis is not None]
        return max(times) / 1000 if times else None

    @property
    def filled(self) -> float | None:
        """The share of its limit that the batch fills; None without a limit or a plan."""
        shares = [one.filled for one in self.reports.values() if one.filled is not None]
        return max(shares, default=None)

    @property
    def bytes_per_row(self) -> float | None:
        """The mean size of the rows that the plan had in hand; None if it had none."""
        samples = [one.sample for one in self.reports.values() if one.sample is not None]
        rows = sum(sample.rows for sample in samples)
        return sum(sample.bytes for sample in samples) / rows if rows else None


def kinesis_sources(sources: Iterable[Source]) -> list[SourceReading]:
    """Return the Kinesis sources of a progress; empty if the query has none."""
    found: list[SourceReading] = []
    for source in sources:
        reports = read_reports(_decoded(source.latestOffset)) or {}
        end = _decoded(source.endOffset)
        if not reports and not _is_our_offset(end):
            continue
        streams = set(reports) | set(end if _is_our_offset(end) else ())
        found.append(SourceReading(tuple(sorted(streams)), max(0, source.numInputRows), reports))
    return found


def late_rows(operators: Iterable[Operator]) -> int:
    """Return the rows that a batch's operators dropped as later than the watermark."""
    return sum(max(0, one.numRowsDroppedByWatermark) for one in operators)


def error_class(exception: str, spark_class: str | None) -> str:
    """Return the class of the error that ended a query: ours if it names one, or Spark's."""
    return our_error(exception) or spark_class or "other"


def our_error(exception: str) -> str | None:
    """Return the class of sparkinesis' error in an exception's text: a kind of data loss as that.

    None if the text names none.
    """
    found = _OUR_ERROR.search(exception)
    if found is None:
        return None
    kinds = {DataLossError.__name__, *(one.__name__ for one in DataLossError.__subclasses__())}
    return DataLossError.__name__ if found[1] in kinds else found[1]


def _decoded(offset: Any) -> Any:
    """Return an offset as JSON values. Spark gives text; None, empty or "null" without any."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def _is_our_offset(offset: Any) -> bool:
    """Return True for an offset as `sparkinesis.source.offsets` writes it."""
    if not isinstance(offset, dict) or not offset:
        return False
    return all(isinstance(shards, dict) and _are_positions(shards) for shards in offset.values())


def _are_positions(shards: Mapping[str, Any]) -> bool:
    for shard, text in shards.items():
        if shard != ANY_SHARD and not shard.startswith("shardId-"):
            return False
        try:
            parse_position(text)
        except ValueError:
            return False
        break  # of thousands of shards, one shows whose offset it is
    return True


@public
def lag(query: StreamingQuery) -> dict[str, StreamLag]:
    """Return how far a query is behind the tip of each stream that it reads, by stream.

    It is the lag at the end of the batch that was planned last, as ``query.lastProgress`` has it:
    no call to AWS. While a batch runs, its rows grow older than that: the metric
    ``query.progress.age`` has the time since the progress. A stream is missing before the first
    probe of its shards, and a query without Kinesis sources has none.
    """
    progress = query.lastProgress
    return lags_of(kinesis_sources(progress.sources)) if progress is not None else {}


def lags_of(sources: Iterable[SourceReading]) -> dict[str, StreamLag]:
    """Return the lags by stream. A stream that several sources read has the lag of the worst."""
    found: dict[str, StreamLag] = {}
    for source in sources:
        for stream, report in source.reports.items():
            behind = report.millis_behind_latest
            if behind is not None and (stream not in found or behind.max > found[stream].max_ms):
                found[stream] = StreamLag(behind.max, behind.mean, behind.shards)
    return found


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
