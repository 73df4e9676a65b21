"""Series as Prometheus reads them. Needs the extra ``prometheus``.

prometheus_client is imported where it is used: a worker that nobody scrapes does without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from sparkinesis.errors import OptionError
from sparkinesis.metrics.catalogue import BY_NAME, CATALOGUE
from sparkinesis.metrics.metric import Kind, Metric
from sparkinesis.metrics.tally import BUCKETS, Distribution, Series

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

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
    return [family(metric, values[metric]) for metric in CATALOGUE if metric in values]


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
