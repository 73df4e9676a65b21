"""Figures out of samples: medians, spreads, and by how much sparkinesis is ahead."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.competitors import OURS


@dataclass(frozen=True)
class Sample:
    """One value, of one round. Less is better for all that is measured."""

    case: str
    measure: str
    unit: str
    competitor: str
    value: float
    lost: int = 0
    """The records that were put and not received."""
    repeated: int = 0
    """The records that were received more than once."""


@dataclass(frozen=True)
class Figure:
    """The values of one competitor in all rounds, and what they are compared with."""

    case: str
    measure: str
    unit: str
    competitor: str
    values: tuple[float, ...]
    lost: int
    """The most records that one of the rounds lost."""
    repeated: int
    ratio: float | None
    """This median by that of sparkinesis: above 1, sparkinesis is better. None: not comparable."""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)


def figures(samples: Iterable[Sample], against: Mapping[str, str] | None = None) -> list[Figure]:
    """One figure for each case, measure and competitor, in the order of the first samples.

    ``against``: the cases that are only sparkinesis', by the case with the others' values.
    """
    groups: dict[tuple[str, str, str], list[Sample]] = {}
    for each in samples:
        groups.setdefault((each.case, each.measure, each.competitor), []).append(each)
    for case, other in (against or {}).items():
        if any(group[0] == case for group in groups):
            theirs = [key for key in groups if key[0] == other and not key[2].startswith(OURS)]
            for _, measure, competitor in theirs:
                groups[case, measure, competitor] = groups[other, measure, competitor]
    order = {case: number for number, case in enumerate(dict.fromkeys(key[0] for key in groups))}
    ours = {key[:2]: group for key, group in groups.items() if key[2] == OURS}
    return [
        _figure(case, measure, competitor, group, ours.get((case, measure), []))
        for (case, measure, competitor), group in sorted(
            groups.items(), key=lambda item: order[item[0][0]]
        )
    ]


def _figure(
    case: str, measure: str, competitor: str, group: Sequence[Sample], ours: Sequence[Sample]
) -> Figure:
    has_all = not any(each.lost for each in (*group, *ours))
    base = statistics.median(each.value for each in ours) if ours else 0.0
    median = statistics.median(each.value for each in group)
    return Figure(
        case,
        measure,
        group[0].unit,
        competitor,
        tuple(each.value for each in group),
        max(each.lost for each in group),
        max(each.repeated for each in group),
        median / base if has_all and base and competitor != OURS else None,
    )
