"""Lines of the CloudWatch embedded metric format (EMF). Pure.

The format takes numbers, and lists of at most 100 numbers. So a counter is the sum of the interval,
and a histogram or a gauge a list with the same smallest, largest and mean value; beyond 100 values,
their number and sum are smaller than what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from sparkinesis.metrics.cloudwatch.pending import Point
from sparkinesis.metrics.cloudwatch.statistic_set import StatisticSet

MOST_METRICS = 100
"""Metrics that one line may define (specification of the format)."""
MOST_VALUES = 100
"""Numbers that a list may have (ditto)."""

_Dimensions = tuple[tuple[str, str], ...]


def lines_of(namespace: str, points: Sequence[Point]) -> Iterator[bytes]:
    """Return a line, with its end, for each minute and combination of dimensions."""
    groups: dict[tuple[int, _Dimensions], list[Point]] = {}
    for point in points:
        groups.setdefault((point.minute, point.datum.dimensions), []).append(point)
    for (minute, dimensions), group in groups.items():
        for first in range(0, len(group), MOST_METRICS):
            part = group[first : first + MOST_METRICS]
            yield msgspec.json.encode(_document(namespace, minute, dimensions, part)) + b"\n"


def _document(
    namespace: str, minute: int, dimensions: _Dimensions, points: Sequence[Point]
) -> dict[str, object]:
    directive = {
        "Namespace": namespace,
        "Dimensions": [[name for name, _ in dimensions]],
        "Metrics": [{"Name": point.datum.name, "Unit": point.datum.unit} for point in points],
    }
    return {
        "_aws": {"Timestamp": minute * 60_000, "CloudWatchMetrics": [directive]},
        **dict(dimensions),
        **{
            point.datum.name: value_of(point.values, is_total=point.datum.is_total)
            for point in points
        },
    }


def value_of(values: StatisticSet, *, is_total: bool) -> float | list[float]:
    """Return the number or the list of numbers that stands for some values."""
    if values.count == 1 or is_total:
        return values.sum
    count = min(values.count, MOST_VALUES)
    others = count - 2
    if others == 0:
        return [values.least, values.most]
    rest = (values.sum / values.count * count - values.least - values.most) / others
    # Of a list that was shortened, one large value can outweigh all others.
    rest = min(max(rest, values.least), values.most)
    return [values.least, values.most, *[rest] * others]
