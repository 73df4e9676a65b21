"""Measurements as CloudWatch takes them: names, units, dimensions, and statistic sets. Pure.

The names are the KCL's where it has the metric: alarms and dashboards stay. The other metrics have
the operation `OWN` and their name in the catalogue, in CloudWatch's style.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from sparkinesis.metrics.metric import KclName, Kind, Level, Measured, Metric, Scope, Unit
from sparkinesis.metrics.metrics import Labels


class StatisticSet(msgspec.Struct):
    """The number, the sum, the smallest and the largest of some values."""

    count: int
    sum: float
    least: float
    most: float

    @classmethod
    def of(cls, value: float) -> StatisticSet:
        """Return the set of one value."""
        return cls(1, value, value, value)

    def add(self, value: float) -> None:
        self.merge(StatisticSet.of(value))

    def merge(self, other: StatisticSet) -> None:
        """Add the values of another set."""
        self.count += other.count
        self.sum += other.sum
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)

    def times(self, factor: float) -> StatisticSet:
        """Return the set of the values in a smaller unit."""
        return StatisticSet(self.count, self.sum * factor, self.least * factor, self.most * factor)

    def all_as(self, value: float) -> StatisticSet:
        """Return the set of as many values that are all ``value``."""
        return StatisticSet(self.count, self.count * value, value, value)


OWN = "Sparkinesis"
"""The operation of the metrics that the KCL does not have."""

SHARD, STREAM, WORKER = "ShardId", "StreamId", "WorkerIdentifier"

_DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "ProcessTask": (SHARD, STREAM),
    "RenewAllLeases": (WORKER,),
    "TakeLeases": (WORKER,),
    OWN: (SHARD, STREAM),
}
"""The dimensions of an operation besides its name."""

_UNITS = {Unit.COUNT: "Count", Unit.BYTES: "Bytes", Unit.SECONDS: "Milliseconds"}

_NO_DIMENSION = re.compile(r"[^\x20-\x7e]")
_NO_NAMESPACE = re.compile(r"[^0-9A-Za-z.\-_/#: ]")
_LONGEST_NAMESPACE = 255
_LONGEST_DIMENSION = 1024


class PublishedMetrics(msgspec.Struct, frozen=True):
    """The choice of metrics: each metric, and each combination of dimensions, is billed."""

    level: Level
    worker: str
    """The value of ``WorkerIdentifier``; empty: there is no such dimension."""
    by_shard: bool = False
    by_stream: bool = False
    own: bool = True
    """True for the metrics that the KCL does not have, too."""


class Datum(NamedTuple):
    """A metric in CloudWatch: what distinguishes it from all others in its namespace."""

    name: str
    unit: str
    dimensions: tuple[tuple[str, str], ...]
    is_total: bool = False
    """True for a counter: only its sum counts."""


def is_published(metric: Metric, selection: PublishedMetrics) -> bool:
    """Return True if measurements of this metric reach CloudWatch at all."""
    return bool(_selected(metric, selection.level, selection.own))


def data_of(
    metric: Metric, labels: Labels, values: StatisticSet, selection: PublishedMetrics
) -> Iterator[tuple[Datum, StatisticSet]]:
    """Yield the data that CloudWatch gets of the values of a metric.

    labels: those of `Metric.labels`. values: in the metric's own unit.
    """
    of = dict(zip(metric.labels, labels, strict=True))
    for kcl in _selected(metric, selection.level, selection.own):
        if any(of[label] != value for label, value in kcl.when):
            continue
        dimensions = tuple(_dimensions(kcl, of, selection))
        for name in kcl.names:
            if metric.kind is Kind.HISTOGRAM and name.endswith("Success"):
                is_success = float(of["result"] in kcl.successes)
                yield Datum(name, "Count", dimensions), values.all_as(is_success)
            else:
                datum = Datum(name, _UNITS[metric.unit], dimensions, metric.kind is Kind.COUNTER)
                yield datum, values.times(1000.0 if metric.unit is Unit.SECONDS else 1.0)


def namespace_of(measured: Measured) -> str:
    """Return the namespace of a worker, fleet or query: the application's, or the query's name.

    Characters that a namespace must not have are replaced.
    """
    text = _NO_NAMESPACE.sub("_", measured.names[0]).lstrip(":").strip()
    if text.startswith("AWS/"):
        text = f"_{text}"
    return text[:_LONGEST_NAMESPACE] or "sparkinesis"


def namespace_problem(namespace: str) -> str | None:
    """Return what is wrong with a namespace; None if it can be used."""
    if not namespace or len(namespace) > _LONGEST_NAMESPACE or not namespace.strip():
        return f"it takes 1 to {_LONGEST_NAMESPACE} characters"
    if _NO_NAMESPACE.search(namespace) or namespace.startswith(":"):
        return "it takes letters, digits, spaces and . - _ / # :, and does not begin with a colon"
    if namespace.startswith("AWS/"):
        return "names that begin with AWS/ belong to AWS"
    return None


def worker_dimension(measured: Measured) -> str:
    """Return the value of ``WorkerIdentifier``: empty for a fleet and a query."""
    return measured.names[1] if measured.scope is Scope.WORKER else ""


@functools.lru_cache(maxsize=512)
def _selected(metric: Metric, level: Level, own: bool) -> tuple[KclName, ...]:
    names = metric.kcl if metric.kcl or not own else names_of(metric)
    return tuple(name for name in names if level is Level.DETAILED or name.level is level)


def names_of(metric: Metric) -> tuple[KclName, ...]:
    """Return the names of a metric: the KCL's, or else its own, such as ``DeadLetters``."""
    if metric.kcl:
        return metric.kcl
    name = "".join(word.capitalize() for word in metric.name.split("."))
    if metric.kind is Kind.HISTOGRAM:
        name = name.removesuffix("Duration") + "."
        if "result" not in metric.labels:
            name += "Time"
    return (KclName(OWN, name, metric.level),)


def _dimensions(
    kcl: KclName, of: Mapping[str, str], selection: PublishedMetrics
) -> Iterator[tuple[str, str]]:
    yield "Operation", kcl.operation
    values = {
        SHARD: of.get("shard") if selection.by_shard and kcl.by_shard else None,
        STREAM: of.get("stream") if selection.by_stream else None,
        WORKER: selection.worker or None,
    }
    for dimension in _DIMENSIONS.get(kcl.operation, ()):
        value = values[dimension]
        if value is not None:
            yield dimension, _dimension_value(value)


def _dimension_value(text: str) -> str:
    """Return a text in which all that a dimension's value must not have is replaced."""
    value = _NO_DIMENSION.sub("_", text[:_LONGEST_DIMENSION]).lstrip(":")
    return value if value.strip() else "_"
