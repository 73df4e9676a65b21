"""The report: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.figures import Figure


@dataclass
class Report:
    """The figures of one run, and all that a reader needs to judge them."""

    command: str
    machine: str
    rounds: int
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figures = [
            {**asdict(each), "median": each.median, "low": each.spread[0], "high": each.spread[1]}
            for each in self.figures
        ]
        path.write_text(json.dumps({**vars(self), "figures": figures}, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Report:
        found: dict[str, Any] = json.loads(path.read_text())
        derived = ("median", "low", "high")
        figures = [
            Figure(**{name: value for name, value in each.items() if name not in derived})
            for each in found["figures"]
        ]
        figures = [replace(each, values=tuple(each.values)) for each in figures]
        return cls(**{**found, "figures": figures})


def joined(parts: Sequence[Report]) -> Report:
    """Return one report of runs that measured different cases on one machine.

    Raises `ValueError` for runs on different machines, or of different numbers of rounds.
    """
    first = parts[0]
    for each in parts[1:]:
        if (each.machine, each.rounds) != (first.machine, first.rounds):
            raise ValueError("These are runs on different machines, or of different rounds.")
    versions = {name: found for each in parts for name, found in each.versions.items()}
    return Report(
        "\n".join(each.command for each in parts),
        first.machine,
        first.rounds,
        versions,
        list(dict.fromkeys(reason for each in parts for reason in each.left_out)),
        [figure for each in parts for figure in each.figures],
    )


def machine() -> str:
    """This machine, as a reader wants to know it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        (name, *_) = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    except (OSError, ValueError):
        name = platform.machine()
    return (
        f"{os.cpu_count()} cores of {name}, {platform.system()}, Python {platform.python_version()}"
    )


def number(value: float) -> str:
    """Three significant digits, and no digits behind the point from 100."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def remark(figure: Figure) -> str:
    remarks = []
    if figure.lost:
        remarks.append(f"lost {figure.lost:,}")
    if figure.repeated:
        remarks.append(f"{figure.repeated:,} received twice")
    return ", ".join(remarks)


def cells(figure: Figure) -> list[str]:
    """The cells of a figure's row behind its measure."""
    low, high = figure.spread
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    return [
        figure.competitor,
        f"{number(figure.median)} {figure.unit}",
        f"{number(low)} - {number(high)}",
        ratio,
        remark(figure),
    ]


def print_report(report: Report, console: Console) -> None:
    """A table for each case; then the versions, the machine and whoever is left out."""
    for case in dict.fromkeys(figure.case for figure in report.figures):
        table = Table(title=case, title_justify="left", min_width=100)
        table.add_column("measured")
        table.add_column("who")
        for name in ("median", "rounds", "ratio"):
            table.add_column(name, justify="right")
        table.add_column("")
        its = [figure for figure in report.figures if figure.case == case]
        for measure in dict.fromkeys(figure.measure for figure in its):
            group = [figure for figure in its if figure.measure == measure]
            for figure in group:
                title = measure if figure is group[0] else ""
                table.add_row(title, *cells(figure), end_section=figure is group[-1])
        console.print(table)
    console.print("A ratio above 1 says: sparkinesis needs so many times less.")
    for name, found in report.versions.items():
        console.print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in found.items()))
    for sentence in report.left_out:
        console.print(sentence)
    console.print(f"{report.machine}; rounds: {report.rounds}.")
