"""Rounds in which each competitor has its turn, and what they come to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from benchmarks.peers.spark.competitors import Competitor
from benchmarks.peers.spark.running import QueryFailedError
from benchmarks.report import Result

Measured: TypeAlias = "dict[str, float]"
"""Values by the names of the figures, such as ``rows/s``."""
Runs: TypeAlias = "dict[str, list[Measured]]"
"""What each round measured, by the competitor's name."""
MORE_IS_BETTER = ("rows/s", "rows/s with the start")


def alternating(
    competitors: Sequence[Competitor],
    rounds: int,
    measure: Callable[[Competitor], Measured],
    say: Callable[[str], None],
) -> Runs:
    """Let each competitor have its turn in each round; every second round goes backwards.

    A round that fails measures nothing.
    """
    runs: Runs = {each.name: [] for each in competitors}
    for number in range(rounds):
        order = list(competitors) if number % 2 == 0 else list(reversed(competitors))
        for competitor in order:
            turn = f"round {number + 1} of {rounds}, {competitor.name}"
            say(turn)
            try:
                runs[competitor.name].append(measure(competitor))
            except QueryFailedError as error:
                runs[competitor.name].append({})
                say(f"{turn}, failed: {error}")
    return runs


def ratio(figure: str, ours: float, theirs: float) -> float | None:
    """The factor by which ours is better; None if it cannot be said."""
    above, below = (ours, theirs) if figure in MORE_IS_BETTER else (theirs, ours)
    return above / below if below else None


def results(title: str, runs: Runs, ours: str, units: Mapping[str, str]) -> list[Result]:
    """A row for each figure and competitor: the median, its spread, and ours beside it.

    A competitor of which every round failed has one row, which says so.

    ours: the name of the competitor to which the others are compared; above 1 it is better.
    """
    found = []
    for figure, unit in units.items():
        own = median([each[figure] for each in runs[ours] if figure in each])
        for name, measured in runs.items():
            values = [each[figure] for each in measured if figure in each]
            middle = median(values)
            if middle is None:
                continue
            found.append(
                Result(
                    f"{title}: {figure}, {name}",
                    middle,
                    unit,
                    None if name == ours or own is None else ratio(figure, own, middle),
                    note=spread(values, len(measured)),
                )
            )
    for name, measured in runs.items():
        if not any(measured):
            found.append(Result(f"{title}: {name}", len(measured), "failed", note="no round ended"))
    return found


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def spread(values: Sequence[float], rounds: int) -> str:
    """From the least to the most, such as ``3 to 5 in 5 rounds``."""
    failed = rounds - len(values)
    of = f"{len(values)} round{'s' if len(values) > 1 else ''}" + (
        f", {failed} failed" if failed else ""
    )
    return of if len(values) < 2 else f"{min(values):,.4g} to {max(values):,.4g} in {of}"
