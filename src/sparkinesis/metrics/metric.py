"""The description of a metric: its kind, its unit, its labels, and its name in each system."""

from __future__ import annotations

from enum import Enum
from functools import cache

import msgspec

from sparkinesis.public import public_metrics


class Kind(Enum):
    """The way in which a metric's values add up."""

    COUNTER = "counter"
    """Grows only. Each measurement is an amount to add."""
    GAUGE = "gauge"
    """A value that is read at each scrape; see `sparkinesis.metrics.metrics.Metrics.watch`."""
    HISTOGRAM = "histogram"
    """Values whose number, sum and distribution count."""


class Unit(Enum):
    """The unit of a metric's values. Durations are measured in seconds throughout."""

    COUNT = "1"
    BYTES = "By"
    SECONDS = "s"


class Level(Enum):
    """The KCL's metrics levels: detailed metrics cost more where each one is billed."""

    SUMMARY = "summary"
    DETAILED = "detailed"


class Scope(Enum):
    """The thing that a metric is about. It gives each metric the first of its labels."""

    WORKER = "worker"
    """Labels ``application`` and ``worker``."""
    FLEET = "fleet"
    """Label ``application``."""
    QUERY = "query"
    """Label ``query``: the name or id of a Spark query."""

    @property
    def labels(self) -> tuple[str, ...]:
        return _SCOPE_LABELS[self]


_SCOPE_LABELS = {
    Scope.WORKER: ("application", "worker"),
    Scope.FLEET: ("application",),
    Scope.QUERY: ("query",),
}


class AwsPlace(msgspec.Struct, frozen=True):
    """The place of an application in AWS, for exporters whose own options do not say otherwise.

    Holds no secret.
    """

    region: str | None = None
    """The AWS region; None: that of the environment."""
    endpoint: str | None = None
    """The URL of a local server, which stands for all of AWS; None: AWS."""
    credentials: object = None
    """A `CredentialSource`; None: those that boto3 finds."""
    has_several_streams: bool = False
    """True if records of several streams are processed."""


NO_PLACE = AwsPlace()


@public_metrics
class Measured(msgspec.Struct, frozen=True):
    """The worker, fleet or Spark query that is measured: the argument of `MetricsExporter.open`."""

    scope: Scope
    names: tuple[str, ...]
    """The values of the scope's labels: application and worker, application, or query."""
    place: AwsPlace = NO_PLACE

    @classmethod
    def worker(cls, application: str, worker: str, place: AwsPlace = NO_PLACE) -> Measured:
        """Return the worker of an application."""
        return cls(Scope.WORKER, (application, worker), place)

    @classmethod
    def fleet(cls, application: str, place: AwsPlace = NO_PLACE) -> Measured:
        """Return the fleet of an application."""
        return cls(Scope.FLEET, (application,), place)

    @classmethod
    def query(cls, name: str) -> Measured:
        """Return a Spark query; ``name``: its name, or its id if it has none."""
        return cls(Scope.QUERY, (name,))

    @property
    def labels(self) -> dict[str, str]:
        """The labels of all of its series: ``{"application": ..., "worker": ...}`` of a worker."""
        return dict(zip(self.scope.labels, self.names, strict=True))


class KclName(msgspec.Struct, frozen=True):
    """A metric's name in CloudWatch, as the KCL for Java publishes it.

    Times are milliseconds there. Of a histogram, a name that ends with ``Time`` is its values, and
    one that ends with ``Success`` is 1 or 0 for each of them, by the label ``result``. A name that
    is empty or ends with a dot stands for both: ``<name>Success`` and ``<name>Time``.
    """

    operation: str
    """The dimension ``Operation``."""
    name: str
    level: Level = Level.SUMMARY
    when: tuple[tuple[str, str], ...] = ()
    """Pairs of a label and its value: only these measurements count."""
    by_shard: bool = True
    """False if the dimension ``ShardId`` is never given."""
    successes: tuple[str, ...] = ("ok",)
    """The values of the label ``result`` that count as a success."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are published."""
        is_both = not self.name or self.name.endswith(".")
        return (f"{self.name}Success", f"{self.name}Time") if is_both else (self.name,)


class Metric(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One metric of `sparkinesis.metrics.catalogue`. Compared by identity, as each is made once."""

    name: str
    """Words joined by dots, such as ``records.processed``."""
    kind: Kind
    unit: Unit
    labels: tuple[str, ...] = ()
    """The labels besides those of the scope, in the order in which measurements give them."""
    level: Level = Level.SUMMARY
    scope: Scope
    help: str
    """Sentences for people."""
    kcl: tuple[KclName, ...] = ()
    """Its names in CloudWatch; none: the KCL has no such metric, and its name there is its own."""
    otel_name: str | None = None
    """The KCL's metric whose name it has in OpenTelemetry, if none of `kcl`; "": no one's."""

    @property
    def series_labels(self) -> tuple[str, ...]:
        """The labels that distinguish series where each series is kept."""
        return tuple(self.labels[place] for place in series_places(self))

    def check(self, labels: tuple[str, ...]) -> None:
        """Raise ValueError if a measurement has the labels of another metric."""
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, and was given {labels!r}")

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus: with unit, and ``_total`` for a counter."""
        words = ["sparkinesis", *self.name.split(".")]
        suffix = {Unit.BYTES: "bytes", Unit.SECONDS: "seconds"}.get(self.unit)
        if suffix is not None and suffix not in words:
            words.append(suffix)
        if self.kind is Kind.COUNTER:
            words.append("total")
        return "_".join(words)


@cache
def series_places(metric: Metric) -> tuple[int, ...]:
    """Return the places of the labels that distinguish series where each series is kept.

    Counters and histograms have no ``shard``: shards come and go, and the series of a shard that
    has ended would stay for ever.
    """
    is_left_out = metric.kind is not Kind.GAUGE
    return tuple(
        place for place, label in enumerate(metric.labels) if not is_left_out or label != "shard"
    )
