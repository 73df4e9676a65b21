"""Metrics in a registry of prometheus_client, which the application serves or pushes itself."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sparkinesis.errors import OptionError
from sparkinesis.metrics.catalogue import CATALOGUE
from sparkinesis.metrics.metric import Measured, Metric
from sparkinesis.metrics.metrics import Labels, Metrics, ReadGauges
from sparkinesis.metrics.prometheus import families, family, require_prometheus_client
from sparkinesis.metrics.tally import Tally
from sparkinesis.public import public_metrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family

MOST_ENDED = 100
"""Ended workers, fleets and queries of which a registry keeps the counters: the latest ones."""


@public_metrics
class PrometheusMetrics:
    """Publishes metrics in a registry of prometheus_client, beside the application's own metrics.

    ``registry``: by default prometheus_client's own, of the process that runs the worker. The
    application serves it, as by ``prometheus_client.start_http_server(9400)``. Nothing is computed
    until somebody scrapes.

    The counters of a worker that has ended can be scraped until the process ends; its gauges are
    gone at once. Of many workers, one after another, a registry keeps the latest 100.

    Needs the extra ``prometheus``.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = registry

    def open(self, measured: Measured) -> Metrics:
        """Begin to count. Raises `OptionError` without the extra, or if a name is in use."""
        require_prometheus_client()
        from prometheus_client import REGISTRY  # noqa: PLC0415 - an extra

        return _collector_of(self._registry or REGISTRY).open(measured)

    def __reduce__(self) -> tuple[type[PrometheusMetrics], tuple[()]]:
        if self._registry is not None:
            raise OptionError(
                "PrometheusMetrics with a registry cannot be sent to Spark's executors, because a "
                "registry belongs to its process. Use PrometheusMetrics() for a fleet."
            )
        return PrometheusMetrics, ()


class _Collector:
    """Everything that is measured for one registry: a name may be told by one collector only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[Measured, Tally] = {}
        self._uses: Counter[Measured] = Counter()
        self._ended: dict[Measured, Tally] = {}
        """The oldest comes first."""

    def open(self, measured: Measured) -> _Opened:
        """Count on, if a worker of the same name was measured before."""
        with self._lock:
            tally = self._tallies.get(measured) or self._ended.pop(measured, None) or Tally()
            self._tallies[measured] = tally
            self._uses[measured] += 1
        return _Opened(tally, lambda: self._end(measured))

    def _end(self, measured: Measured) -> None:
        with self._lock:
            self._uses[measured] -= 1
            if self._uses[measured] > 0:
                return
            del self._uses[measured]
            self._ended[measured] = self._tallies.pop(measured)
            while len(self._ended) > MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def collect(self) -> list[Family]:
        with self._lock:
            tallies = [*self._ended.items(), *self._tallies.items()]
        return families((measured.labels, tally.series()) for measured, tally in tallies)

    def describe(self) -> list[Family]:
        """Return the names that may be told, which no other collector may use."""
        return [family(metric, {}) for metric in CATALOGUE]


class _Opened:
    """A tally until it is closed. Implements `Metrics`."""

    def __init__(self, tally: Tally, end: Callable[[], None]) -> None:
        self._tally = tally
        self._end = end
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] | None = []
        """None once it is closed."""

    def add(self, counter: Metric, labels: Labels, amount: float = 1.0) -> None:
        self._tally.add(counter, labels, amount)

    def observe(self, histogram: Metric, labels: Labels, value: float) -> None:
        self._tally.observe(histogram, labels, value)

    def watch(self, read: ReadGauges) -> Callable[[], None]:
        with self._lock:
            if self._stops is None:
                return _nothing
            stop = self._tally.watch(read)
            self._stops.append(stop)
            return stop

    def close(self) -> None:
        with self._lock:
            stops, self._stops = self._stops, None
        if stops is not None:
            for stop in stops:
                stop()
            self._end()


def _nothing() -> None:
    pass


_collectors: WeakKeyDictionary[CollectorRegistry, _Collector] = WeakKeyDictionary()
_lock = threading.Lock()


def _collector_of(registry: CollectorRegistry) -> _Collector:
    """Return the collector of a registry, which is registered with its first use."""
    with _lock:
        found = _collectors.get(registry)
        if found is None:
            found = _Collector()
            try:
                registry.register(found)
            except ValueError as error:
                raise OptionError(
                    f"The registry has metrics of sparkinesis' names already: {error}. Give "
                    "PrometheusMetrics a registry of its own, or rename the others."
                ) from error
            _collectors[registry] = found
        return found
