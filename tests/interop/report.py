"""Prints the outcome of scenarios as a table."""

from __future__ import annotations

from collections.abc import Sequence

from tests.interop.judge import Verdict

FIGURES = ("put", "read", "lost", "out of order", "repeated", "explained")
"""The headings of `figures`."""


def figures(verdict: Verdict | None) -> Sequence[str]:
    """Return the cells of a verdict; None: the scenario could not be played."""
    if verdict is None:
        return ["-"] * len(FIGURES)
    found = (
        verdict.put,
        verdict.read,
        verdict.lost,
        verdict.out_of_order,
        verdict.repeated,
        verdict.explained,
    )
    return [f"{figure:,}" for figure in found]


def print_table(rows: Sequence[Sequence[str]], texts: int) -> None:
    """Print rows, the headings first. ``texts``: columns on the left that hold texts."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    print()
    for row in rows:
        cells = (
            text.ljust(width) if at < texts else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
