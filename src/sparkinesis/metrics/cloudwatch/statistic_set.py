"""A statistic set: what CloudWatch needs of many values, however many there were."""

from __future__ import annotations

import msgspec


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
        """Return the set of as many values, each of which is ``value``."""
        return StatisticSet(self.count, self.count * value, value, value)
