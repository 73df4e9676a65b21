"""Metrics as lines of the CloudWatch embedded metric format (EMF): Logs makes metrics of them.

The format takes numbers, and lists of at most 100 numbers. So a counter is the sum of the interval,
and a histogram or a gauge a list with the same smallest, largest and mean value; beyond 100 values,
their number and sum are smaller than what was measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from sparkinesis.errors import OptionError
from sparkinesis.metrics.cloudwatch.data import StatisticSet
from sparkinesis.metrics.cloudwatch.publisher import Fate, Point, Sent
from sparkinesis.metrics.cloudwatch.publishing_options import PublishingOptions
from sparkinesis.metrics.metric import Measured
from sparkinesis.metrics.metrics import Metrics
from sparkinesis.public import public_metrics

MOST_METRICS = 100
"""Metrics that one line may define (specification of the format)."""
MOST_VALUES = 100
"""Numbers that a list may have (as above)."""

_CLOSE_WITHIN = 3.0

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


@public_metrics
@dataclass(frozen=True, slots=True)
class EmfMetrics(PublishingOptions):
    """Writes metrics as lines of the CloudWatch embedded metric format (EMF).

    CloudWatch Logs makes metrics of such lines, where Lambda, ECS, EKS or the CloudWatch agent
    passes them on. Names, units and dimensions are those of `CloudWatchMetrics`.

    Raises `OptionError` for a value that cannot be used.
    """

    path: str | None = None
    """The file to append to, such as ``/dev/stderr``; None: standard output."""
    namespace: str | None = None
    """Default: the application's name."""
    level: Literal["summary", "detailed"] = "summary"
    """``"detailed"`` adds what the KCL publishes at its level DETAILED."""
    shard_metrics: bool = False
    """True adds the dimension ``ShardId``: each shard then has metrics of its own."""
    worker_metrics: bool = True
    """False leaves out the dimension ``WorkerIdentifier``."""
    own_metrics: bool = True
    """False publishes only what the KCL publishes, too."""
    flush_every: float = 60.0
    """Seconds between two writes. Each writes a line for each combination of dimensions."""

    def __post_init__(self) -> None:
        self.check()
        if self.path is not None and (not isinstance(self.path, str) or not self.path):
            raise OptionError(f"path is {self.path!r}; it must be the path of a file, or None.")

    def open(self, measured: Measured) -> Metrics:
        """Begin to write the metrics of a worker, fleet or query."""
        target = partial(EmfLines, path=self.path)
        return self.publisher_to(target, measured, _CLOSE_WITHIN).start()


class EmfLines:
    """A file, or standard output, that gets the lines. A file may be renamed at any time."""

    def __init__(self, namespace: str, path: str | None) -> None:
        self.name = "standard output" if path is None else path
        self._namespace = namespace
        self._path = path

    def send(self, points: Sequence[Point]) -> Sent:
        lines = b"".join(lines_of(self._namespace, points))
        try:
            if self._path is None:
                sys.stdout.write(lines.decode())
                sys.stdout.flush()
            else:
                with Path(self._path).open("ab") as file:
                    file.write(lines)
        except (OSError, ValueError) as error:  # ValueError: standard output was closed
            return Sent(Fate.LOST, str(error), type(error).__name__)
        return Sent(Fate.PUBLISHED)

    def close(self) -> None:
        """Do nothing: no file is open."""
