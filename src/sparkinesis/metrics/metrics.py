"""The interface by which sparkinesis measures: counters, durations, gauges and spans.

Measurements are taken for each page, batch, call and renewal, never for each record. A span is
opened for each call to Kinesis, each ``process_records`` and each checkpoint that is written.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

from sparkinesis.errors import OptionError
from sparkinesis.metrics.metric import Measured, Metric
from sparkinesis.public import public_metrics

Span: TypeAlias = AbstractContextManager[object]
"""A span of time, which ends with its block. An exception that leaves the block is noted there."""


class Extent(NamedTuple):
    """The records of a batch: the first and the last sequence number, and how many they are."""

    first: str
    last: str
    records: int


class Numbered(Protocol):
    """A record."""

    @property
    def sequence_number(self) -> str: ...


class Tracing(Protocol):
    """Opens the spans of one worker. For any thread. No method blocks or raises.

    Spans of one shard are linked where their sequence numbers overlap: a batch to the calls that
    fetched its records, a checkpoint to the batch that it covers.
    """

    def call(self, operation: str, stream: str, shard: str | None) -> Span:
        """Open the span of one attempt of a call to Kinesis."""

    def fetched(self, stream: str, shard: str, records: Sequence[Numbered]) -> None:
        """Note the records of the call whose span is open in this thread."""

    def process(self, stream: str, shard: str, extent: Callable[[], Extent | None]) -> Span:
        """Open the span of a ``process_records``. ``extent`` returns None for an empty batch."""

    def checkpoint(self, stream: str, shard: str, at: str) -> Span:
        """Open the span of a checkpoint at a sequence number, or at ``SHARD_END``."""


_NO_SPAN: Span = nullcontext()


class NoTracing:
    """Opens no spans."""

    def call(self, operation: str, stream: str, shard: str | None) -> Span:  # noqa: ARG002
        return _NO_SPAN

    def fetched(self, stream: str, shard: str, records: Sequence[Numbered]) -> None:
        pass

    def process(
        self,
        stream: str,  # noqa: ARG002 - the interface
        shard: str,  # noqa: ARG002
        extent: Callable[[], Extent | None],  # noqa: ARG002
    ) -> Span:
        return _NO_SPAN

    def checkpoint(self, stream: str, shard: str, at: str) -> Span:  # noqa: ARG002
        return _NO_SPAN


NO_TRACING = NoTracing()


def tracing_of(metrics: object) -> Tracing:
    """Return the ``tracing`` of metrics whose exporter also opens spans; else `NO_TRACING`."""
    found: Tracing | None = getattr(metrics, "tracing", None)
    return NO_TRACING if found is None else found


_log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

Labels: TypeAlias = tuple[str, ...]
"""The values of a metric's labels, in the order of `Metric.labels`."""


class Sample(NamedTuple):
    """The value of a gauge."""

    metric: Metric
    labels: Labels
    value: float


ReadGauges: TypeAlias = Callable[[], Iterable[Sample]]
"""Returns the present values of gauges. A shard that is no longer read is not among them."""


class Metrics(Protocol):
    """Takes the measurements of one worker, fleet or query. For any thread.

    No method blocks: a thread that renews leases may call it. The error of a method is logged once,
    and changes nothing for the caller.
    """

    def add(self, counter: Metric, labels: Labels, amount: float = 1.0) -> None:
        """Add to a counter."""

    def observe(self, histogram: Metric, labels: Labels, value: float) -> None:
        """Add a value to a histogram."""

    def watch(self, read: ReadGauges) -> Callable[[], None]:
        """Read gauges by ``read`` at each scrape or flush; return the function that stops that."""

    def close(self) -> None:
        """Publish what is not published yet, for a few seconds at most, and stop."""


@public_metrics
class MetricsExporter(Protocol):
    """A way to publish metrics, as `WorkerOptions` takes it. Can be pickled, for a fleet."""

    def open(self, measured: Measured) -> Metrics:
        """Begin to publish the metrics of one worker, fleet or query.

        Called once for each of them. Raises `OptionError` if a package is missing, and nothing for
        a system that does not answer now.
        """


class NoMetrics:
    """Measures nothing."""

    def add(self, counter: Metric, labels: Labels, amount: float = 1.0) -> None:
        pass

    def observe(self, histogram: Metric, labels: Labels, value: float) -> None:
        pass

    def watch(self, read: ReadGauges) -> Callable[[], None]:  # noqa: ARG002 - the interface
        return self.close

    def close(self) -> None:
        pass


OFF = NoMetrics()


_METHODS = ("add", "observe", "watch", "close")

CLOSE_WITHIN = 5.0
"""The most seconds that the end of a worker waits for its last metrics to be published."""


class AllMetrics:
    """Gives each measurement to several systems, and keeps their errors away from the caller."""

    def __init__(
        self, targets: Sequence[Metrics], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._targets = tuple(targets)
        self._clock = clock
        self._lock = threading.Lock()
        self._logged: set[tuple[str, str]] = set()
        all_tracing = (tracing_of(target) for target in self._targets)
        self.tracing: Tracing = next(
            (one for one in all_tracing if one is not NO_TRACING), NO_TRACING
        )
        """The spans of the first system that has any."""

    def add(self, counter: Metric, labels: Labels, amount: float = 1.0) -> None:
        for target in self._targets:
            self._safely(target, target.add, counter, labels, amount)

    def observe(self, histogram: Metric, labels: Labels, value: float) -> None:
        for target in self._targets:
            self._safely(target, target.observe, histogram, labels, value)

    def watch(self, read: ReadGauges) -> Callable[[], None]:
        stops = [(target, self._safely(target, target.watch, read)) for target in self._targets]

        def stop() -> None:
            for target, stop_one in stops:
                if stop_one is not None:
                    self._safely(target, stop_one)

        return stop

    def close(self) -> None:
        """Close all systems at the same time; wait for `CLOSE_WITHIN` seconds at most."""
        until = self._clock() + CLOSE_WITHIN
        closing = []
        for target in self._targets:
            thread = threading.Thread(target=self._safely, args=(target, target.close), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending, and starts no more threads
                self._safely(target, target.close)
            else:
                closing.append((target, thread))
        for target, thread in closing:
            thread.join(max(0.0, until - self._clock()))
            if thread.is_alive():
                _log.warning(
                    "%s has not published its last metrics within %g s; they may be lost.",
                    type(target).__qualname__,
                    CLOSE_WITHIN,
                )

    def _safely(
        self, target: Metrics, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T | None:
        """Call a method of a target, and return the result; None if the method raised."""
        try:
            return call(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - processing goes on without metrics
            self._log_once(target, error)
            return None

    def _log_once(self, target: Metrics, error: Exception) -> None:
        """Log an error, each kind of error once for a target."""
        key = (type(target).__qualname__, type(error).__qualname__)
        with self._lock:
            if key in self._logged:
                return
            self._logged.add(key)
        _log.warning(
            "%s could not take a measurement, which is lost: %s. Records are processed as before; "
            "further errors of this kind are not logged.",
            key[0],
            error,
            exc_info=error,
        )


def metrics_of(exporters: Sequence[MetricsExporter], measured: Measured, *own: Metrics) -> Metrics:
    """Return the metrics of a worker, fleet or query: those of its exporters, and its ``own``.

    Raises what an exporter raises, and `OptionError` for one that returns something else; those
    that were open by then are closed.
    """
    targets = [*own]
    with ExitStack() as opened:
        for exporter in exporters:
            metrics = exporter.open(measured)
            missing = [name for name in _METHODS if not callable(getattr(metrics, name, None))]
            if missing:
                raise OptionError(
                    f"{type(exporter).__name__}.open returned {metrics!r}, which has no method "
                    f"{missing[0]}. The methods are {', '.join(_METHODS)}: see the protocol "
                    "sparkinesis.metrics.metrics.Metrics."
                )
            opened.callback(metrics.close)
            targets.append(metrics)
        opened.pop_all()
    return AllMetrics(targets) if targets else OFF


class GaugeReaders:
    """Reads gauges through the readers that were added. A `ReadGauges`. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: list[ReadGauges] = []
        self._has_logged = False

    def add(self, read: ReadGauges) -> Callable[[], None]:
        """Add a reader; returns the function that removes it."""
        with self._lock:
            self._readers.append(read)

        def remove() -> None:
            with self._lock:
                self._readers = [one for one in self._readers if one is not read]

        return remove

    def __call__(self) -> list[Sample]:
        """Return the present value of each gauge. The first reader that raises is logged."""
        with self._lock:
            readers = list(self._readers)
        found: list[Sample] = []
        for read in readers:
            try:
                samples = [Sample(*one) for one in read()]
                for metric, labels, value in samples:
                    # A sample that no system can take would make it lose all others.
                    metric.check(labels)
                    math.isfinite(value)
                found += samples
            except Exception:  # noqa: BLE001 - the other gauges are read nevertheless
                if not self._has_logged:
                    self._has_logged = True
                    _log.warning(
                        "Gauges could not be read, and are left out. Further errors of this kind "
                        "are not logged.",
                        exc_info=True,
                    )
        return found


OK = "ok"
FAILED = "failed"


def measured(
    run: Callable[_P, _T],
    clock: Callable[[], float],
    observe: Callable[[str, float], None],
    result_of: Callable[[Exception], str] = lambda _: FAILED,
    result: Callable[[_T], str] = lambda _: OK,
) -> Callable[_P, _T]:
    """Return ``run`` measured: after each call, ``observe`` gets the result and the seconds.

    clock: monotonic, in seconds. result_of: names the result of a run that raised. result: names
    that of one that returned. An error that is no `Exception` ends the program rather than the run,
    and is not observed.
    """

    def measure(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        began = clock()
        try:
            value = run(*args, **kwargs)
        except Exception as error:
            observe(result_of(error), clock() - began)
            raise
        observe(result(value), clock() - began)
        return value

    return measure


def timed(
    run: Callable[[], _T],
    metrics: Metrics,
    metric: Metric,
    labels: tuple[str, ...],
    *,
    clock: Callable[[], float],
    result: Callable[[_T], str] = lambda _: OK,
) -> _T:
    """Run once, and observe the seconds of the run with these labels and the result as the last.

    Without metrics, no clock is asked.
    """
    if metrics is OFF:
        return run()

    def observe(found: str, seconds: float) -> None:
        metrics.observe(metric, (*labels, found), seconds)

    return measured(run, clock, observe, result=result)()
