"""The report of a benchmark: a table for people, JSON for programs."""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import tls


@dataclass(frozen=True, slots=True)
class Result:
    """One measured value."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    """The factor by which the result beats the baseline of the same run."""
    required: float | None = None
    """The ratio below which the benchmark counts as failed."""
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.required is None or (self.ratio is not None and self.ratio >= self.required)


def medians(
    *calls: Callable[[], object],
    rounds: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Median seconds of each call, all called in turn so that noise meets them alike.

    One round before warms up. Python's garbage collector runs as it does in a reader: to make an
    object per record costs its runs, too, but each call begins with nothing to collect.
    """
    seconds: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        for call, taken in zip(calls, seconds, strict=True):
            gc.collect()
            start = clock()
            call()
            if number:
                taken.append(clock() - start)
    return [statistics.median(taken) for taken in seconds]


def print_table(title: str, results: Sequence[Result], console: Console | None = None) -> None:
    table = Table(title=title + tls.note(), title_justify="left", min_width=100)
    table.add_column("measured")
    table.add_column("value", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("required", justify="right")
    table.add_column("how")
    for result in results:
        ratio = "" if result.ratio is None else f"{result.ratio:.{1 if result.ratio >= 2 else 2}f}x"
        style = "" if result.required is None else "[green]" if result.ok else "[red]"
        table.add_row(
            result.name,
            f"{result.value:,.4g} {result.unit}"
            if result.value < 1000
            else f"{result.value:,.0f} {result.unit}",
            f"{style}{ratio}",
            "" if result.required is None else f"{result.required:g}x",
            result.note,
        )
    (console or Console()).print(table)


def write_json(results: Sequence[Result], path: Path) -> None:
    """Write the results as a list of objects, one each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_over_tls = tls.certificate() is not None
    written = [{**asdict(result), "tls": is_over_tls} for result in results]
    path.write_text(json.dumps(written, indent=2) + "\n")
