"""The table of what `make compat` has run: for a terminal, as JSON, and in the page of the docs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.compat.environments import NEWEST
from tests.compat.running import SHOWN, Outcome

HEAD = ("environment", "Python", *SHOWN, "others", "Java", "passed", "failed", "skipped", "s")
BEGIN = "<!-- table: written by the command above -->"
END = "<!-- end of the table -->"


def row(outcome: Outcome) -> tuple[str, ...]:
    environment = outcome.environment
    versions = [outcome.versions.get(name, "-") for name in SHOWN]
    others = "newest" if environment.others == NEWEST else environment.others
    left = (environment.name, environment.python, *versions, others, environment.java)
    if outcome.not_run:
        return (*left, "not run", "", "", "")
    counts = (outcome.passed, len(outcome.failed), outcome.skipped, outcome.seconds)
    return (*left, *map(str, counts))


def table(outcomes: Sequence[Outcome]) -> str:
    rows = [HEAD, *map(row, outcomes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [
        [cell.ljust(width) for cell, width in zip(each, widths, strict=True)] for each in rows
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def remarks(outcomes: Sequence[Outcome]) -> list[str]:
    """A sentence for each environment that was not run, and for each test that failed."""
    told = [
        f"{each.environment.name}: not run: {each.not_run}" for each in outcomes if each.not_run
    ]
    return told + [
        f"{each.environment.name}: failed: {test}" for each in outcomes for test in each.failed
    ]


def as_json(outcomes: Sequence[Outcome]) -> str:
    return json.dumps([each.as_json() for each in outcomes], indent=2)


def write(outcomes: Sequence[Outcome], page: Path) -> None:
    """Replace the table of the page. Raises `ValueError` for a page without a place for one."""
    text = page.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: {BEGIN}")
    # Seconds are those of one machine.
    rows = [HEAD[:-1], *(row(each)[:-1] for each in outcomes)]
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    lines.insert(1, "|---" * len(rows[0]) + "|")
    told = "".join(f"\n{each}\n" for each in remarks(outcomes))
    body = "\n".join(lines)
    page.write_text(f"{before}{begin}\n\n{body}\n{told}\n{end}{after}", "utf-8")
