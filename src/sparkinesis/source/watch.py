"""Watches all queries of a Spark session, and publishes the metrics of those that read Kinesis.

By HTTP, they are served for scrapes, and the lags as JSON.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from sparkinesis.errors import OptionError
from sparkinesis.metrics.health.http_address import Address, parse_address
from sparkinesis.metrics.health.pages import HealthServer, pages
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import MetricsExporter, metrics_of
from sparkinesis.metrics.tally import Series, Tally
from sparkinesis.public import public
from sparkinesis.source.watched_query import (
    SourceReading,
    WatchedQuery,
    error_class,
    kinesis_sources,
    late_rows,
    our_error,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_log = logging.getLogger(__name__)

MOST_ENDED = 100
"""The most queries that have ended and whose counters are kept."""


@public
class QueryWatch:
    """The watch of a Spark session's queries, as `sparkinesis.watch` returns it."""

    def __init__(
        self,
        spark: SparkSession,
        exporters: Sequence[MetricsExporter],
        address: Address | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Use `sparkinesis.watch` instead."""
        self._spark = spark
        self._endpoint = None if address is None else _QueryEndpoint(address, self._status)
        own = () if self._endpoint is None else (self._endpoint,)
        self._exporters: tuple[MetricsExporter, ...] = (*own, *exporters)
        self._clock = clock
        self._lock = threading.RLock()
        self._names: dict[str, str] = {}
        """The label of each query that runs, by its id."""
        self._watched: dict[str, WatchedQuery] = {}
        """By label, in the order in which they were last started."""
        self._has_logged = False
        self._is_stopped = False
        self._listener = _Listener(self)

    def __enter__(self) -> QueryWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str | None:
        """The URL of the HTTP server, with the port that it has; None without ``http``."""
        return None if self._endpoint is None else self._endpoint.server.url

    def stop(self) -> None:
        """Stop watching, and publish what is not published yet. A second call does nothing."""
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            watched = list(self._watched.values())
        try:
            self._spark.streams.removeListener(self._listener)
        except Exception:  # noqa: BLE001 - the session may have ended already
            _log.debug("The listener could not be removed.", exc_info=True)
        for query in watched:
            query.close()
        if self._endpoint is not None:
            self._endpoint.server.close()

    def _status(self) -> dict[str, object]:
        with self._lock:
            watched = dict(self._watched)
        return {name: query.status() for name, query in watched.items()}

    def _begin(self) -> None:
        self._spark.streams.addListener(self._listener)
        for query in self._spark.streams.active:
            with self._lock:
                self._names.setdefault(str(query.id), query.name or str(query.id))
            self._idle(str(query.id))

    def _started(self, event: QueryStartedEvent) -> None:
        with self._lock:
            name = self._names[str(event.id)] = event.name or str(event.id)
            query = None if self._is_stopped else self._watched.get(name)
        if query is not None:
            query.start(str(event.runId))

    def _progressed(self, progress: StreamingQueryProgress) -> None:
        sources = kinesis_sources(progress.sources)
        if not sources:
            return
        with self._lock:
            self._names.setdefault(str(progress.id), progress.name or str(progress.id))
        query = self._take_over(str(progress.id), str(progress.runId), sources)
        if query is not None:
            seconds = progress.batchDuration / 1000
            query.count(sources, seconds, late_rows(progress.stateOperators))

    def _idle(self, query_id: str) -> None:
        """Take over the lags of a query that has no new batch."""
        query = self._spark.streams.get(query_id)
        progress = query.lastProgress if query is not None else None
        if progress is None:
            return
        sources = kinesis_sources(progress.sources)
        if sources:
            self._take_over(query_id, str(progress.runId), sources)

    def _take_over(
        self, query_id: str, run: str, sources: Sequence[SourceReading]
    ) -> WatchedQuery | None:
        with self._lock:
            if self._is_stopped or query_id not in self._names:
                return None  # it has ended
            query = self._query(self._names[query_id])
        query.read(run, sources)
        return query

    def _ended(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            name = self._names.get(str(event.id), str(event.id))
            exception = event.exception
            if self._is_stopped or (name not in self._watched and not our_error(exception or "")):
                self._names.pop(str(event.id), None)
                return  # it reads no Kinesis stream
            query = self._query(name)
        query.end(
            str(event.runId),
            error_class(exception, event.errorClassOnException) if exception else None,
        )
        with self._lock:
            if not query.is_running:
                self._names.pop(str(event.id), None)

    def _query(self, name: str) -> WatchedQuery:
        """Return the query of a label. Those that ended long ago make room."""
        found = self._watched.pop(name, None)
        if found is None:
            metrics = metrics_of(self._exporters, Measured.query(name))
            found = WatchedQuery(metrics, self._clock)
        self._watched[name] = found
        ended = [each for each, query in self._watched.items() if not query.is_running]
        for each in ended[: max(0, len(ended) - MOST_ENDED)]:
            if each != name:
                self._watched.pop(each).close()
        return found

    def _safely(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call, and log an error: it concerns a measurement, never the query."""
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001 - as above
            if not self._has_logged:
                self._has_logged = True
                _log.warning(
                    "The metrics of a streaming query could not be taken. The query goes on. "
                    "Further errors are not logged.",
                    exc_info=True,
                )


class _Listener(StreamingQueryListener):
    def __init__(self, watch: QueryWatch) -> None:
        self._watch = watch

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        self._watch._safely(self._watch._started, event)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        self._watch._safely(self._watch._progressed, event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        self._watch._safely(self._watch._idle, str(event.id))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        self._watch._safely(self._watch._ended, event)


@public
def watch(
    spark: SparkSession, exporters: Sequence[MetricsExporter] = (), http: str | None = None
) -> QueryWatch:
    """Publish metrics of all of a session's streaming queries that read Kinesis, from now on.

    Also of queries that run already, and of those that are started later. The metrics are lag, rows
    and bytes, batches and their plans, data loss, rows that a watermark dropped as late, and
    failures: see ``docs/metrics.md``. They come from the progress that Spark reports on the driver,
    so they cost no call to AWS, and nothing that they do can hold up a query.

    exporters: the systems that get them, as `WorkerOptions.metrics`.
    http: an address on which the driver serves them to Prometheus (``/metrics``) and the lags
    (``/status``), such as ``"127.0.0.1:9402"``.

    Returns a handle, which is a context manager, too. Raises `OptionError` for anything else, and
    for a port that is taken.
    """
    is_exporters = isinstance(exporters, tuple | list) and all(
        callable(getattr(one, "open", None)) for one in exporters
    )
    if not is_exporters:
        raise OptionError(
            f"exporters is {exporters!r}; it must be a tuple of exporters, such as "
            "(PrometheusMetrics(),)."
        )
    found = QueryWatch(spark, exporters, None if http is None else parse_address("http", http))
    try:
        found._begin()
    except BaseException:
        found.stop()
        raise
    return found


class _QueryEndpoint:
    """A server of ``/metrics`` and ``/status``, and the exporter that it serves. For any thread.

    ``/livez`` and ``/readyz`` are true while the process answers: Spark runs the queries.
    """

    def __init__(self, address: Address, status: Callable[[], Mapping[str, object]]) -> None:
        """``status``: the answer of ``/status``. Raises `OptionError` if the port is taken."""
        self._lock = threading.Lock()
        self._kept: dict[Measured, Tally] = {}
        self.server = HealthServer(address)
        self.server.serve(
            pages(
                live=tuple, ready=tuple, status=lambda: {"queries": status()}, groups=self._groups
            )
        )

    def open(self, measured: Measured) -> Tally:
        """Begin to count for a query."""
        tally = _Kept(lambda: self._forget(measured))
        with self._lock:
            self._kept[measured] = tally
        return tally

    def _groups(self) -> list[tuple[Mapping[str, str], list[Series]]]:
        with self._lock:
            kept = list(self._kept.items())
        return [(measured.labels, tally.series()) for measured, tally in kept]

    def _forget(self, measured: Measured) -> None:
        with self._lock:
            self._kept.pop(measured, None)


class _Kept(Tally):
    """A tally that is served until it is closed."""

    def __init__(self, forget: Callable[[], None]) -> None:
        super().__init__()
        self._forget = forget

    def close(self) -> None:
        self._forget()
