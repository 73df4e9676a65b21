"""What is common to the options of `CloudWatchMetrics` and `EmfMetrics`."""

from __future__ import annotations

from sparkinesis.errors import OptionError
from sparkinesis.metrics.cloudwatch.names import (
    Selection,
    namespace_of,
    namespace_problem,
    worker_dimension,
)
from sparkinesis.metrics.metric import Level, Measured, Scope

DEFAULT_MAX_SERIES = 10_000
"""As many as the KCL for Java queues."""

_LONGEST_INTERVAL = 3600.0


def check_publishing(
    namespace: str | None, level: str, flush_every: float, max_series: int
) -> None:
    """Raise `OptionError` for a value that cannot be used."""
    if namespace is not None:
        is_text = isinstance(namespace, str)
        problem = namespace_problem(namespace) if is_text else "it must be a string"
        if problem:
            raise OptionError(f"namespace is {namespace!r}; {problem}.")
    if level not in {each.value for each in Level}:
        raise OptionError(
            f"level is {level!r}; it must be 'summary' or 'detailed'. For no metrics, leave the "
            "exporter out."
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


def level_of(level: str) -> Level:
    return Level(level)


def namespace_for(namespace: str | None, measured: Measured) -> str:
    return namespace_of(measured) if namespace is None else namespace


def selection_for(
    measured: Measured, level: Level, *, by_shard: bool, by_worker: bool, own: bool
) -> Selection:
    """Return what is published of a worker, fleet or query."""
    return Selection(
        level=level,
        worker=worker_dimension(measured) if by_worker else "",
        by_shard=by_shard,
        # As in the KCL, an application of one stream has no such dimension.
        by_stream=measured.place.has_several_streams or measured.scope is Scope.QUERY,
        own=own,
    )
