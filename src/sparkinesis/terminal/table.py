"""A table on a terminal, or in a pipe: aligned, and coloured on a terminal only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_table(rows: Sequence[Mapping[str, str]], console: Console) -> Console:
    """Print rows that all have the columns of the first. On a terminal, long values are folded.

    In a pipe, each row is one line, however long.
    """
    if not console.is_terminal:
        console.width = 10_000
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in next(iter(rows), ()):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(value) for value in row.values()))
    if rows:
        console.print(table)
    return console
