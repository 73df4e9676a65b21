"""The names, units and attributes of metrics in OpenTelemetry. Pure.

They are those of the KCL for Java 3.5 where it has the metric (its ``OtelMetricNameTransformer``
and ``OtelMetricsScope``): times in ms, bytes of each batch as a histogram.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TypeAlias

import msgspec

from sparkinesis.metrics.metric import KclName, Kind, Measured, Metric, Unit, series_places
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
    """Return the names of a metric; the first that is of a measurement's labels is its name.

    The KCL's are before its own. Of several for the same measurements, the first counts.
    """
    of_java: dict[tuple[tuple[str, str], ...], OtelName] = {}
    for kcl in metric.kcl:
        name = metric.otel_name if metric.otel_name is not None else kcl.names[-1]
        # A mere "Time", or a success, is a name that many of the KCL's metrics share.
        if name and name != "Time" and not name.endswith("Success"):
            of_java.setdefault(kcl.when, _of_java(metric, kcl, name))
    if () in of_java:
        return (of_java[()],)
    own = OtelName(f"sparkinesis.{metric.name}", metric.kind, metric.unit.value)
    return (*of_java.values(), own)


def _of_java(metric: Metric, kcl: KclName, name: str) -> OtelName:
    is_time = metric.unit is Unit.SECONDS
    is_size = metric.kind is Kind.COUNTER and metric.unit is Unit.BYTES
    return OtelName(
        java_name(name),
        Kind.HISTOGRAM if is_size else metric.kind,
        "ms" if is_time else metric.unit.value,
        1000.0 if is_time else 1.0,
        kcl.operation,
        tuple((metric.labels.index(label), value) for label, value in kcl.when),
    )


_RENAMED = {
    "MillisBehindLatest": "consumer.lag.duration",
    "DataBytesProcessed": "records.size",
    "ActiveStreams.Count": "streams.active",
    "StreamsPendingDeletion.Count": "streams.pending_deletion",
    "DeletedStreams.Count": "streams.deleted",
    "NumWorkers": "workers",
}
"""Of the names that the KCL does not form by its rule, those that are published here."""


def java_name(kcl: str) -> str:
    """Return the name that the KCL's OpenTelemetry metrics have for a name in CloudWatch."""
    if kcl in _RENAMED:
        return f"aws.kinesis.client.{_RENAMED[kcl]}"
    name = re.sub(r"\.Time$", ".duration", kcl.replace(":", ".")).removesuffix(".Count")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return f"aws.kinesis.client.{words.lower()}"


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
