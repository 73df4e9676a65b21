"""Detects processes that grow, by their resources at the start and at the end.

Memory is judged by its slope over the last half, too: a process that has reached its final size is
sound, however large it is; a process that still grows a little each minute is not.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.soak.footprint import Footprint


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at one process. calm: with shards, workers and weather as they were at the start."""

    seconds: float
    footprint: Footprint
    calm: bool
    expected: float = 0.0
    """MiB that it holds with good reason, and more with time: what a server was given to keep."""
    processes: int = 1
    """Whose largest this is."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one process's growth. memory: MiB from start to end; slope: MiB a minute.

    sockets: a pool keeps as many connections as were ever used at once, and that is one for each of
    twelve shards where there were six at the start.
    """

    memory: float = 48.0
    slope: float = 2.0
    threads: int = 6
    sockets: int = 12


def growth(samples: Sequence[Sample], bounds: Bounds) -> list[str]:
    """Returns a text for each resource that grew beyond its bound."""
    calm = [sample for sample in samples if sample.calm]
    middle = (samples[0].seconds + samples[-1].seconds) / 2
    start = [sample for sample in calm if sample.seconds < middle]
    end = [sample for sample in calm if sample.seconds >= middle]
    if not start or not end:
        return ["it was not there at the start and at the end"]
    found = []
    for name, most in (("threads", bounds.threads), ("sockets", bounds.sockets)):
        before, after = (_median(each, name) for each in (start, end))
        if after - before > most:
            found.append(f"{before:g} {name} have become {after:g}; {most} more are allowed")
    before, after = (statistics.median(map(_memory, each)) for each in (start, end))
    slope = memory_slope([sample for sample in samples if sample.seconds >= middle])
    # One alone may be chance: a page more of a heap at the end, or a heap on its way to its size.
    if after - before > bounds.memory and slope > bounds.slope:
        found.append(
            f"{before:.0f} MiB have become {after:.0f}, and still {slope:.1f} more a minute; "
            f"{bounds.memory:g} and {bounds.slope:g} are allowed"
        )
    return found


def memory_slope(samples: Sequence[Sample]) -> float:
    """MiB a minute: the median slope between any two samples, which a few peaks do not move."""
    slopes = [
        60 * (_memory(b) - _memory(a)) / (b.seconds - a.seconds)
        for a, b in combinations(samples, 2)
        if b.seconds > a.seconds
    ]
    return statistics.median(slopes) if slopes else 0.0


def _memory(sample: Sample) -> float:
    return sample.footprint.memory - sample.expected


def _median(samples: Sequence[Sample], name: str) -> float:
    return float(statistics.median(getattr(sample.footprint, name) for sample in samples))
