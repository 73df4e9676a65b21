"""The names, units and dimensions of measurements in CloudWatch. Pure.

They are the KCL's where it has the metric: alarms and dashboards stay. The other metrics have the
operation `OWN` and their name in the catalogue, in CloudWatch's style.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from sparkinesis.metrics.cloudwatch.statistic_set import StatisticSet
from sparkinesis.metrics.metric import KclName, Kind, Level, Measured, Metric, Scope, Unit
from sparkinesis.metrics.metrics import Labels

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
_NOT_BY_SHARD = frozenset({"ExpiredIterator"})

_UNITS = {Unit.COUNT: "Count", Unit.BYTES: "Bytes", Unit.SECONDS: "Milliseconds"}
_FACTORS = {Unit.SECONDS: 1000.0}

_ALSO_SUCCESSES = {"CreateLease.": {"refused"}}
"""Results that the KCL counts as a success: a lease that another worker has created is there."""

_NO_DIMENSION = re.compile(r"[^\x20-\x7e]")
_NO_NAMESPACE = re.compile(r"[^0-9A-Za-z.\-_/#: ]")
_LONGEST_NAMESPACE = 255
_LONGEST_DIMENSION = 1024


class Selection(msgspec.Struct, frozen=True):
    """What is published: each metric and each combination of dimensions is billed."""

    level: Level
    worker: str
    """The value of ``WorkerIdentifier``; empty: there is no such dimension."""
    by_shard: bool = False
    by_stream: bool = False
    own: bool = True
    """True for the metrics that the KCL does not have, too."""


class Datum(NamedTuple):
    """A metric in CloudWatch: what tells it from all others in its namespace."""

    name: str
    unit: str
    dimensions: tuple[tuple[str, str], ...]
    is_total: bool = False
    """True for a counter, of which only the sum counts."""


class _Target(msgspec.Struct, frozen=True):
    """One name under which a metric is published."""

    operation: str
    names: tuple[str, ...]
    is_by_shard: bool
    dimensions: tuple[str, ...]
    when: tuple[tuple[int, str], ...]
    """The places of labels, and their values, that a measurement must have."""
    successes: frozenset[str]


def is_published(metric: Metric, selection: Selection) -> bool:
    """Return True if measurements of this metric reach CloudWatch at all."""
    return bool(_targets(metric, selection.level, selection.own))


def data_of(
    metric: Metric, labels: Labels, values: StatisticSet, selection: Selection
) -> Iterator[tuple[Datum, StatisticSet]]:
    """Return what CloudWatch gets of the values of a metric.

    labels: those of `Metric.labels`. values: in the metric's own unit.
    """
    for target in _targets(metric, selection.level, selection.own):
        if any(labels[place] != value for place, value in target.when):
            continue
        dimensions = _dimensions(metric, labels, target, selection)
        for name in target.names:
            if metric.kind is Kind.HISTOGRAM and name.endswith("Success"):
                result = labels[metric.labels.index("result")]
                is_success = float(result in target.successes)
                yield Datum(name, "Count", dimensions), values.all_as(is_success)
            else:
                unit = _UNITS[metric.unit]
                factor = _FACTORS.get(metric.unit)
                yield (
                    Datum(name, unit, dimensions, metric.kind is Kind.COUNTER),
                    values.copy() if factor is None else values.times(factor),
                )


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
def _targets(metric: Metric, level: Level, own: bool) -> tuple[_Target, ...]:
    names = metric.kcl if metric.kcl or not own else names_of(metric)
    return tuple(
        _target(metric, name) for name in names if level is Level.DETAILED or name.level is level
    )


def names_of(metric: Metric) -> tuple[KclName, ...]:
    """Return the names of a metric: the KCL's, or else its own."""
    return metric.kcl or (_own_name(metric),)


def _own_name(metric: Metric) -> KclName:
    name = metric.own_cloudwatch_name
    if metric.kind is Kind.HISTOGRAM:
        name = name.removesuffix("Duration") + "."
        if "result" not in metric.labels:
            name += "Time"
    return KclName(OWN, name, metric.level)


def _target(metric: Metric, name: KclName) -> _Target:
    return _Target(
        operation=name.operation,
        names=name.names,
        is_by_shard=name.name not in _NOT_BY_SHARD,
        dimensions=_DIMENSIONS.get(name.operation, ()),
        when=tuple((metric.labels.index(label), value) for label, value in name.when),
        successes=frozenset({"ok", *_ALSO_SUCCESSES.get(name.name, ())}),
    )


def _dimensions(
    metric: Metric, labels: Labels, target: _Target, selection: Selection
) -> tuple[tuple[str, str], ...]:
    found = [("Operation", target.operation)]
    for dimension in target.dimensions:
        if dimension == SHARD:
            is_wanted = selection.by_shard and target.is_by_shard
            value = _label(metric, labels, "shard") if is_wanted else None
        elif dimension == STREAM:
            value = _label(metric, labels, "stream") if selection.by_stream else None
        else:
            value = selection.worker or None
        if value is not None:
            found.append((dimension, _dimension_value(value)))
    return tuple(found)


def _label(metric: Metric, labels: Labels, name: str) -> str | None:
    return labels[metric.labels.index(name)] if name in metric.labels else None


def _dimension_value(text: str) -> str:
    """Return a text with what a dimension's value must not have replaced."""
    value = _NO_DIMENSION.sub("_", text[:_LONGEST_DIMENSION]).lstrip(":")
    return value if value.strip() else "_"
