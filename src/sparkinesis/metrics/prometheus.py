"""Series as Prometheus reads them: an answer to a scrape, or a registry of prometheus_client.

Needs the extra ``prometheus``. prometheus_client is imported where it is used: a worker that is
not scraped does without it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias
from weakref import WeakKeyDictionary

from sparkinesis.errors import OptionError
from sparkinesis.metrics.catalogue import BY_NAME, SCRAPED
from sparkinesis.metrics.metric import Kind, Measured, Metric
from sparkinesis.metrics.metrics import GaugeReaders, Metrics
from sparkinesis.metrics.tally import BUCKETS, Distribution, Series, Tally
from sparkinesis.public import public_metrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric as Family

MOST_ENDED = 100
"""The most ended workers, fleets and queries whose counters a registry keeps."""

Groups: TypeAlias = Iterable[tuple[Mapping[str, str], Iterable[Series]]]
"""The series of several workers, fleets or queries, each with the labels of its scope, such as
``{"application": "flights-app", "worker": "a"}``."""

_Values: TypeAlias = dict[tuple[str, ...], float | Distribution]


def exposition(groups: Groups, accept: str) -> tuple[bytes, str]:
    """Return the answer to a scrape, and its content type.

    ``accept`` is the header of the request, by which OpenMetrics or the older text is chosen.
    Raises `OptionError` if the extra ``prometheus`` is not installed.
    """
    require_prometheus_client()
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - an extra
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - as above

    registry = CollectorRegistry()
    registry.register(_Collected(families(groups)))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def families(groups: Groups) -> list[Family]:
    """Return the series as prometheus_client's metric families, in the order of the catalogue.

    Counters and histograms with the same labels are added up, as those of two workers with the
    same id are; of such gauges the last one counts. A metric that this version does not know, from
    a worker of another version, is left out.
    """
    values: dict[Metric, _Values] = {}
    for scope, many in groups:
        for series in many:
            metric = BY_NAME.get(series.metric)
            if metric is not None:
                labels = tuple(scope.get(name, "") for name in metric.scope.labels) + series.labels
                _merge(metric, values.setdefault(metric, {}), labels, series.value)
    return [family(metric, values[metric]) for metric in SCRAPED if metric in values]


def family(metric: Metric, values: Mapping[tuple[str, ...], float | Distribution]) -> Family:
    """Return one metric family: the values by their labels, the labels of the scope first."""
    from prometheus_client.core import (  # noqa: PLC0415 - an extra
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    names = (*metric.scope.labels, *metric.series_labels)
    if metric.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(metric.prometheus_name, metric.help, labels=names)
        for labels, value in values.items():
            if isinstance(value, Distribution):
                histogram.add_metric(labels, _cumulative(value), value.sum)
        return histogram
    make = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    found = make(metric.prometheus_name, metric.help, labels=names)
    for labels, value in values.items():
        if not isinstance(value, Distribution):
            found.add_metric(labels, value)
    return found


def require_prometheus_client() -> None:
    """Raise OptionError if prometheus_client is not installed."""
    try:
        import prometheus_client  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise OptionError(
            "Metrics for Prometheus need the package prometheus_client, which cannot be imported: "
            f'{error}. Install it with pip install "sparkinesis[prometheus]".'
        ) from error


class _Collected:
    """Families that have been collected, as a registry takes them."""

    def __init__(self, found: list[Family]) -> None:
        self._found = found

    def collect(self) -> Iterable[Family]:
        return self._found


def _merge(
    metric: Metric, values: _Values, labels: tuple[str, ...], value: float | Distribution
) -> None:
    before = values.get(labels)
    if before is None or metric.kind is Kind.GAUGE:
        values[labels] = value
    elif isinstance(before, Distribution) and isinstance(value, Distribution):
        counts = [a + b for a, b in zip(before.counts, value.counts, strict=True)]
        values[labels] = Distribution(counts, before.sum + value.sum)
    elif not isinstance(before, Distribution) and not isinstance(value, Distribution):
        values[labels] = before + value


_BOUNDS = (*(str(float(bound)) for bound in BUCKETS), "+Inf")
"""The values of the label ``le``."""


def _cumulative(value: Distribution) -> list[tuple[str, float]]:
    return list(zip(_BOUNDS, accumulate(value.counts), strict=True))


@public_metrics
class PrometheusMetrics:
    """Publishes metrics in a registry of prometheus_client, beside the application's own metrics.

    ``registry``: by default prometheus_client's own, of the process that runs the worker. The
    application serves it, as by ``prometheus_client.start_http_server(9400)``. Nothing is computed
    before a scrape.

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
                "PrometheusMetrics with a registry cannot be sent to another process, because a "
                "registry belongs to its process. Use PrometheusMetrics() for a fleet, and for "
                "worker processes."
            )
        return PrometheusMetrics, ()


class _Collector:
    """Everything that is measured for one registry: only one collector may have a name."""

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
        """Return the names of this collector, which no other one may use."""
        return [family(metric, {}) for metric in SCRAPED]


class _Opened:
    """A tally until it is closed. Implements `Metrics`."""

    def __init__(self, tally: Tally, end: Callable[[], None]) -> None:
        gauges, closing = GaugeReaders(), ExitStack()
        closing.callback(end)
        closing.callback(tally.watch(gauges))
        self.add, self.observe = tally.add, tally.observe
        self.watch, self.close = gauges.add, closing.close


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
