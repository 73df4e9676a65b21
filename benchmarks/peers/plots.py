"""The plots of a report: which figures are drawn in which file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.chart import Bar, Group, svg
from benchmarks.peers.competitors import OURS
from benchmarks.peers.figures import Figure
from benchmarks.peers.report import Report, number

PLOTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "peers-cpu.svg": ("CPU seconds for a backlog, without the start", ("CPU less the start's",)),
    "peers-memory.svg": ("Peak memory with a backlog", ("peak memory",)),
    "peers-latency.svg": ("From the put to the record processor, median", ("median",)),
    "peers-idle.svg": (
        "Without records",
        ("CPU a minute", "calls a shard and minute", "memory"),
    ),
    "peers-failover.svg": ("After kill -9 of one of two workers", ("until records are processed",)),
}
"""Files, their titles, and the measures that they show."""


def drawn(report: Report) -> dict[str, str]:
    """The plots by file name; those of which the report has no figures are not there."""
    found = {}
    for name, (title, measures) in PLOTS.items():
        its = [each for each in report.figures if each.measure in measures and not each.lost]
        its = [each for each in its if not each.case.startswith("start")]
        if its:
            found[name] = svg(title, "shorter is better; the line is the spread", groups(its))
    return found


def groups(figures: Sequence[Figure]) -> list[Group]:
    """A group for each case and measure."""
    kinds = dict.fromkeys((each.case, each.measure) for each in figures)
    is_one = len({measure for _, measure in kinds}) == 1
    return [
        Group(
            case if is_one else f"{case}: {measure}",
            tuple(_bar(each) for each in figures if (each.case, each.measure) == (case, measure)),
        )
        for case, measure in kinds
    ]


def _bar(figure: Figure) -> Bar:
    low, high = figure.spread
    ratio = "" if figure.ratio is None else f" ({figure.ratio:.2f})"
    text = f"{number(figure.median)} {figure.unit}".strip() + ratio
    return Bar(figure.competitor, figure.median, low, high, text, figure.competitor == OURS)


def write(report: Report, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in drawn(report).items():
        (folder / name).write_text(text)
        written.append(folder / name)
    return written
