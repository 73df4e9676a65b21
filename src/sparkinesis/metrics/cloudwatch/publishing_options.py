"""The options that `CloudWatchMetrics` and `EmfMetrics` have in common, and their publisher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from sparkinesis.errors import OptionError
from sparkinesis.metrics.cloudwatch.data import (
    PublishedMetrics,
    namespace_of,
    namespace_problem,
    worker_dimension,
)
from sparkinesis.metrics.cloudwatch.publisher import Publisher, Target
from sparkinesis.metrics.metric import Level, Measured, Scope

DEFAULT_MAX_SERIES = 10_000
"""The number that the KCL for Java queues."""

_LONGEST_INTERVAL = 3600.0


class PublishingOptions:
    """The options of an exporter that publishes as CloudWatch does; the exporter documents them."""

    __slots__ = ()

    namespace: str | None
    level: Literal["summary", "detailed"]
    shard_metrics: bool
    worker_metrics: bool
    own_metrics: bool
    flush_every: float

    def check(self, max_series: int = DEFAULT_MAX_SERIES) -> None:
        """Raise `OptionError` for a value that cannot be used."""
        namespace, flush_every = self.namespace, self.flush_every
        if namespace is not None:
            is_text = isinstance(namespace, str)
            problem = namespace_problem(namespace) if is_text else "it must be a string"
            if problem:
                raise OptionError(f"namespace is {namespace!r}; {problem}.")
        if self.level not in {each.value for each in Level}:
            raise OptionError(
                f"level is {self.level!r}; it must be 'summary' or 'detailed'. For no metrics, "
                "leave the exporter out."
            )
        is_number = isinstance(flush_every, int | float) and not isinstance(flush_every, bool)
        if not is_number or not 1 <= flush_every <= _LONGEST_INTERVAL:
            raise OptionError(
                f"flush_every is {flush_every!r}; it must be a number of seconds from 1 to "
                f"{_LONGEST_INTERVAL:g}."
            )
        is_whole = isinstance(max_series, int) and not isinstance(max_series, bool)
        if not is_whole or max_series < 1:
            raise OptionError(f"max_series is {max_series!r}; it must be a whole number from 1.")

    def selection(self, measured: Measured) -> PublishedMetrics:
        """Return what is published of a worker, fleet or query."""
        return PublishedMetrics(
            level=Level(self.level),
            worker=worker_dimension(measured) if self.worker_metrics else "",
            by_shard=self.shard_metrics,
            # As in the KCL, an application of one stream has no such dimension.
            by_stream=measured.place.has_several_streams or measured.scope is Scope.QUERY,
            own=self.own_metrics,
        )

    def publisher_to(
        self,
        target: Callable[[str], Target],
        measured: Measured,
        close_within: float,
        most: int = DEFAULT_MAX_SERIES,
    ) -> Publisher:
        """Return the publisher, which is not started. ``target``: makes a target of a namespace."""
        namespace = namespace_of(measured) if self.namespace is None else self.namespace
        return Publisher(
            target(namespace),
            self.selection(measured),
            flush_every=self.flush_every,
            close_within=close_within,
            most=most,
        )
