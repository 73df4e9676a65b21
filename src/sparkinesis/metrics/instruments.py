"""OpenTelemetry's names of the metrics, and the instruments that all workers of a process share.

Names, units and attributes are those of the KCL for Java 3.5 where it has the metric (its
``OtelMetricNameTransformer`` and ``OtelMetricsScope``): times in ms, bytes of each batch as a
histogram. An SDK has one instrument of a name, with the callbacks of its first creation. So there
is one callback for each gauge, which reads those of all workers.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TypeAlias
from weakref import WeakKeyDictionary

import msgspec
from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    Meter,
    MeterProvider,
    Observation,
    get_meter_provider,
)

from sparkinesis.metrics.catalogue import CATALOGUE
from sparkinesis.metrics.metric import KclName, Kind, Measured, Metric, Unit, series_places
from sparkinesis.metrics.metrics import Labels, ReadGauges
from sparkinesis.metrics.tally import BUCKETS
from sparkinesis.public import __version__

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
    """Return the names of a metric: a measurement has the first name that fits its labels.

    The KCL's names come before its own.
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
"""The published names that the KCL does not form by its rule."""


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


_FRESH = 1.0
"""Seconds for which gauges that were read serve other instruments: those of one collection."""
_SIZES = tuple(4.0**n * 1024 for n in range(10))
"""The bounds of buckets of bytes: 1 KiB to 256 MiB."""

Put: TypeAlias = Callable[[float, Attributes], None]
"""Records a measurement by an instrument."""
Read: TypeAlias = dict[Metric, list[Observation]]


class Instruments:
    """The instruments of one meter. For any thread."""

    def __init__(self, meter: Meter, clock: Callable[[], float] = time.monotonic) -> None:
        self._meter = meter
        self._clock = clock
        self._lock = threading.Lock()
        self._puts: dict[OtelName, Put] = {}
        self._watched: list[tuple[ReadGauges, Attributes]] = []
        """The gauges of each worker, and the worker's attributes."""
        self._reading = threading.Lock()
        self._read: Read = {}
        self._read_at = float("-inf")
        self._served: set[Metric] = set()
        for metric in CATALOGUE:
            if metric.kind is Kind.GAUGE:
                self._observe(metric)

    def record(
        self,
        metric: Metric,
        labels: Labels,
        value: float = 1.0,
        *,
        attributes: Attributes,
        with_shards: bool = False,
    ) -> None:
        """Record a measurement of a counter or a histogram; ``attributes``: of its worker."""
        name = next(one for one in names_of(metric) if one.is_of(labels))
        found = with_labels(metric, name, labels, attributes, with_shards=with_shards)
        self._put(name, metric.help)(value * name.factor, found)

    def _put(self, name: OtelName, help_text: str) -> Put:
        """Return the function that records under a name. The first call makes the instrument."""
        found = self._puts.get(name)
        if found is None:
            with self._lock:
                found = self._puts.get(name) or self._make(name, help_text)
                self._puts[name] = found
        return found

    def watch(self, read: ReadGauges, attributes: Attributes) -> Callable[[], None]:
        """Read gauges with each collection; return the function that stops that."""
        entry = (read, attributes)
        with self._lock:
            self._watched.append(entry)

        def stop() -> None:
            with self._lock:
                self._watched = [one for one in self._watched if one is not entry]
            with self._reading:
                self._read_at = float("-inf")  # gauges of a reader that has ended are gone at once

        return stop

    def _make(self, name: OtelName, help_text: str) -> Put:
        if name.kind is Kind.COUNTER:
            counter: Counter = self._meter.create_counter(name.name, name.unit, help_text)
            return counter.add
        bounds = _SIZES if name.unit == "By" else [bound * name.factor for bound in BUCKETS]
        histogram: Histogram = self._meter.create_histogram(
            name.name, name.unit, help_text, explicit_bucket_boundaries_advisory=bounds
        )
        return histogram.record

    def _observe(self, metric: Metric) -> None:
        (name,) = names_of(metric)

        def observations(_: CallbackOptions) -> Iterable[Observation]:
            return self._of(metric)

        self._meter.create_observable_gauge(name.name, [observations], name.unit, metric.help)

    def _of(self, metric: Metric) -> Sequence[Observation]:
        """Return the values of one gauge. All gauges are read once for a collection.

        An SDK asks for one gauge after another, and does not say when a collection begins: when it
        asks for a gauge again.
        """
        with self._reading:
            now = self._clock()
            if metric in self._served or now - self._read_at > _FRESH:
                self._read, self._read_at, self._served = self._read_all(), now, set()
            self._served.add(metric)
            return self._read.get(metric, ())

    def _read_all(self) -> Read:
        with self._lock:
            watched = list(self._watched)
        found: Read = defaultdict(list)
        for read, scope in watched:
            for metric, labels, value in read():
                (name,) = names_of(metric)
                attributes = with_labels(metric, name, labels, scope)
                found[metric].append(Observation(value * name.factor, attributes))
        return found


def with_labels(
    metric: Metric, name: OtelName, labels: Labels, scope: Attributes, *, with_shards: bool = False
) -> Attributes:
    """Return the attributes of a measurement. Pure."""
    found = dict(scope)
    for place, attribute in kept_labels(metric, with_shards=with_shards):
        if labels[place]:
            found[attribute] = labels[place]
    if name.operation is not None:
        found[OPERATION] = name.operation
    return found


_of_providers: WeakKeyDictionary[MeterProvider, Instruments] = WeakKeyDictionary()
_lock = threading.Lock()
_GLOBAL: list[Instruments] = []


def instruments_of(provider: MeterProvider | None) -> Instruments:
    """Return the instruments of a meter provider; None: of the process's own (the global one).

    The global provider may be set later: until then, nothing is published.
    """
    with _lock:
        present = get_meter_provider()
        if provider is None or provider is present:
            if not _GLOBAL:
                _GLOBAL.append(_of_providers.get(present) or _made(present))
            return _GLOBAL[0]
        found = _of_providers.get(provider)
        if found is None:
            found = _of_providers[provider] = _made(provider)
        return found


def _made(provider: MeterProvider) -> Instruments:
    return Instruments(provider.get_meter("sparkinesis", __version__))
