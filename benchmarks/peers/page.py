"""The figures of a report as Markdown, which is kept in the page docs/peers.md."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.figures import Figure
from benchmarks.peers.plots import PLOTS
from benchmarks.peers.report import Report, number, remark

BEGIN = "<!-- figures: written by the command below -->"
END = "<!-- end of the figures -->"


def markdown(report: Report) -> str:
    """A table for each case: a row for each competitor, a column for each measure."""
    parts = [
        f"{report.machine}; rounds: {report.rounds}. The command:",
        f"```shell\n{report.command}\n```",
    ]
    for case in dict.fromkeys(each.case for each in report.figures):
        its = [each for each in report.figures if each.case == case]
        measures = list(dict.fromkeys(each.measure for each in its))
        names = list(dict.fromkeys(each.competitor for each in its))
        cells = {(each.competitor, each.measure): _cell(each) for each in its}
        lines = [f"| {case} | {' | '.join(measures)} |", "|---" * (len(measures) + 1) + "|"]
        lines += [
            f"| {name} | {' | '.join(cells.get((name, each), '') for each in measures)} |"
            for name in names
        ]
        parts.append("\n".join(lines))
    versions = [
        f"- {name}: {', '.join(f'{key} {value}' for key, value in found.items())}"
        for name, found in report.versions.items()
    ]
    parts.append("\n".join(["Versions:", "", *versions]))
    if report.left_out:
        parts.append("\n".join(report.left_out))
    return "\n\n".join(parts)


def _cell(figure: Figure) -> str:
    text = f"{number(figure.median)} {figure.unit}".strip()
    if len(figure.values) > 1:
        low, high = figure.spread
        text += f" ({number(low)} - {number(high)})"
    if figure.ratio is not None:
        text += f", **{figure.ratio:.2f}**"
    if figure.lost or figure.repeated:
        text += f", {remark(figure)}"
    return text


def write(report: Report, page: Path) -> None:
    """Replace the figures of the page, and show the plots that lie beside the page.

    Raises `ValueError` for a page without a place for figures.
    """
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for figures: a line {BEGIN} and a line {END}.")
    images = [
        f"![{title}]({name})" for name, (title, _) in PLOTS.items() if (page.parent / name).exists()
    ]
    figures = "\n\n".join([markdown(report), *images])
    page.write_text(f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}", "utf-8")
