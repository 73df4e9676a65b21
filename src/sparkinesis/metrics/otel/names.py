"""The names, units and attributes of metrics in OpenTelemetry. Pure.

They are those of the KCL for Java 3.5 where it has the metric (its ``OtelMetricNameTransformer``
and ``OtelMetricsScope``): times in ms, bytes of each batch as a histogram.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import msgspec

from sparkinesis.metrics.metric import Kind, Measured, Metric, Unit, series_places
from sparkinesis.metrics.metrics import Labels

Attributes: TypeAlias = dict[str, str]

STREAM = "aws.kinesis.stream_name"
SHARD = "aws.kinesis.shard.id"
OPERATION = "aws.kinesis.operation"
"""The KCL's operation, such as ``ProcessTask``."""
CALL = "rpc.method"
"""The call to Kinesis or DynamoDB, such as ``GetRecords``."""

_ATTRIBUTES = {
    "stream": STREAM,
    "shard": SHARD,
    "operation": CALL,
    "worker": "aws.kinesis.consumer.name",
}


class OtelName(msgspec.Struct, frozen=True):
    """One of the names under which a metric is published."""

    name: str
    kind: Kind
    unit: str
    factor: float = 1.0
    """The number of units in one of the metric's own."""
    operation: str | None = None
    """The value of the attribute `OPERATION`; None: there is none."""
    when: tuple[tuple[int, str], ...] = ()
    """Pairs of a label's place and its value: only these measurements have the name."""

    def is_of(self, labels: Labels) -> bool:
        """Return True if the measurements with these labels have the name."""
        return all(labels[place] == value for place, value in self.when)


@cache
def names_of(metric: Metric) -> tuple[OtelName, ...]:
    """Return the names of a metric; the first that is of a measurement's labels is its name."""
    own = OtelName(f"sparkinesis.{metric.name}", metric.kind, metric.unit.value)
    if metric.otel_name is None:
        return (own,)
    kcl = metric.kcl[0]
    is_time = metric.unit is Unit.SECONDS
    is_size = metric.kind is Kind.COUNTER and metric.unit is Unit.BYTES
    java = OtelName(
        metric.otel_name,
        Kind.HISTOGRAM if is_size else metric.kind,
        "ms" if is_time else metric.unit.value,
        1000.0 if is_time else 1.0,
        kcl.operation,
        tuple((metric.labels.index(label), value) for label, value in kcl.when),
    )
    return (java, own) if java.when else (java,)


def attribute(label: str) -> str:
    """Return the attribute of a label: Java's, or ``sparkinesis.`` and the label."""
    return _ATTRIBUTES.get(label, f"sparkinesis.{label}")


def scope_attributes(measured: Measured) -> Attributes:
    """Return the attributes of all that a worker, fleet or query measures."""
    return {attribute(label): value for label, value in measured.labels.items()}


@cache
def kept_labels(metric: Metric, *, with_shards: bool) -> tuple[tuple[int, str], ...]:
    """Return the place and the attribute of each label that is published."""
    places = range(len(metric.labels)) if with_shards else series_places(metric)
    return tuple((place, attribute(metric.labels[place])) for place in places)
