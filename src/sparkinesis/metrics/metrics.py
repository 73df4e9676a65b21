"""The interface by which sparkinesis measures, and the way to switch it off.

Measurements are taken for each page, batch, call and renewal, never for each record.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

from sparkinesis.errors import OptionError
from sparkinesis.metrics.metric import Measured, Metric
from sparkinesis.metrics.tracing import NO_TRACING, Tracing, tracing_of
from sparkinesis.public import public_metrics

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

    No method blocks: a thread that renews leases may call it. What a method raises is logged once,
    and changes nothing for the caller.
    """

    def add(self, counter: Metric, labels: Labels, amount: float = 1.0) -> None:
        """Add to a counter."""

    def observe(self, histogram: Metric, labels: Labels, value: float) -> None:
        """Add a value to a histogram."""

    def watch(self, read: ReadGauges) -> Callable[[], None]:
        """Read gauges by ``read`` from now on, whenever somebody looks. Returns the way to stop."""

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
        self._told: set[tuple[str, str]] = set()
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
            except RuntimeError:  # the interpreter is ending, and starts no thread any more
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
            self._tell(target, error)
            return None

    def _tell(self, target: Metrics, error: Exception) -> None:
        """Log an error, each kind of error once for a target."""
        key = (type(target).__qualname__, type(error).__qualname__)
        with self._lock:
            if key in self._told:
                return
            self._told.add(key)
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
