"""Expressions of Prometheus over metrics of the catalogue: a wrong name or label is an error."""

from __future__ import annotations

from sparkinesis.metrics.metric import Kind, Metric


def series(metric: Metric, suffix: str = "", **matches: str) -> str:
    """Return ``name`` or ``name{label="value"}``.

    A value that begins with ``~`` is a pattern, one that begins with ``!`` is what must not be.

    ``suffix``: of a histogram, ``_bucket``, ``_count`` or ``_sum``.
    """
    if bool(suffix) != (metric.kind is Kind.HISTOGRAM):
        raise ValueError(f"{metric.name} is a {metric.kind.value}: not with {suffix!r}")
    known = labels(metric)
    if unknown := matches.keys() - known:
        raise ValueError(f"{metric.name} has no label {sorted(unknown)}")
    pairs = ",".join(_match(label, matches[label]) for label in known if label in matches)
    return f"{metric.prometheus_name}{suffix}" + (f"{{{pairs}}}" if pairs else "")


def labels(metric: Metric) -> tuple[str, ...]:
    """Return the labels of a metric's series."""
    return (*metric.scope.labels, *metric.series_labels)


def by(*grouping: str, of: Metric) -> str:
    """Return ``by (...)``."""
    if unknown := set(grouping) - set(labels(of)):
        raise ValueError(f"{of.name} has no label {sorted(unknown)}")
    return f"by ({', '.join(grouping)})"


def _match(label: str, value: str) -> str:
    if value.startswith("~"):
        return f'{label}=~"{value[1:]}"'
    return f'{label}!="{value[1:]}"' if value.startswith("!") else f'{label}="{value}"'
