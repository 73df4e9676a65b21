"""Counts the records that a query has lost, repeated, or seen differently."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Losses:
    put: int
    seen: int
    """Distinct records."""
    repeated: int
    """Rows beyond the first of their record."""

    @property
    def lost(self) -> int:
        return self.put - self.seen


def losses(put: int, rows: Iterable[int]) -> Losses:
    """Compare the records 0 to put - 1 with the rows that came.

    Raises `ValueError` for a row that is no record.
    """
    found = list(rows)
    distinct = set(found)
    strange = [number for number in distinct if not 0 <= number < put]
    if strange:
        raise ValueError(f"rows that were never put: {sorted(strange)[:5]}")
    return Losses(put, len(distinct), len(found) - len(distinct))


@dataclass(frozen=True)
class Evaluations:
    """Batches whose rows were asked for twice."""

    batches: int
    differing: int
    """Batches of which one evaluation returned other rows than the other."""
    apart: int
    """Rows by which they differ, over all batches."""


def evaluations(counted_and_collected: Sequence[tuple[int, int]]) -> Evaluations:
    """Compare the rows that were counted in each batch with those that were collected."""
    apart = [abs(counted - collected) for counted, collected in counted_and_collected]
    return Evaluations(len(apart), sum(each > 0 for each in apart), sum(apart))


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that is not below this percentage of the values."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
