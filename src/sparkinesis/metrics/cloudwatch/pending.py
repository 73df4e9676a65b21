"""Statistic sets that are not published yet, by minute. Bounded, whatever CloudWatch does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sparkinesis.metrics.cloudwatch.names import Datum
from sparkinesis.metrics.cloudwatch.statistic_set import StatisticSet

MOST_DATA = 1000
"""Data that one PutMetricData may have (API reference)."""
MOST_BYTES = 900_000
"""Bytes that a request may have are 1 MB; the rest is for what surrounds the data."""


class Point(NamedTuple):
    """A datum and its values in one minute."""

    minute: int
    """Minutes since the epoch."""
    datum: Datum
    values: StatisticSet


class Pending:
    """What is to be published. Values of the same datum and minute become one set.

    most: the points that are held; beyond them, the oldest are dropped, and counted in ``dropped``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._minutes: dict[int, dict[Datum, StatisticSet]] = {}
        self._count = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def put(self, minute: int, datum: Datum, values: StatisticSet) -> None:
        """Add values of a datum in a minute."""
        data = self._minutes.setdefault(minute, {})
        found = data.get(datum)
        if found is not None:
            found.merge(values)
            return
        data[datum] = values
        self._count += 1
        if self._count > self._most:
            self._drop_oldest()

    def take(self, most: int = MOST_DATA, most_bytes: int = MOST_BYTES) -> list[Point]:
        """Remove and return the oldest points, as many as one request may have."""
        taken: list[Point] = []
        size = 0
        for minute in sorted(self._minutes):
            data = self._minutes[minute]
            while data and len(taken) < most:
                datum = next(iter(data))
                size += size_of(datum)
                if taken and size > most_bytes:
                    return taken
                taken.append(Point(minute, datum, data.pop(datum)))
                self._count -= 1
            if data:
                return taken
            del self._minutes[minute]
        return taken

    def give_back(self, points: Iterable[Point]) -> None:
        """Put back points that were surely not published."""
        for point in points:
            self.put(*point)

    def _drop_oldest(self) -> None:
        oldest = min(self._minutes)
        data = self._minutes[oldest]
        del data[next(iter(data))]
        if not data:
            del self._minutes[oldest]
        self._count -= 1
        self.dropped += 1


def size_of(datum: Datum) -> int:
    """Return the bytes of a datum in a request, at most.

    That is for the longest form of a request, in which botocore before 1.40 makes it: each field
    has its whole path, and characters are escaped.
    """
    texts = sum(len(name) + len(value) for name, value in datum.dimensions)
    return 600 + 120 * len(datum.dimensions) + 3 * (texts + len(datum.name) + len(datum.unit))
