"""Prints an aligned table on a terminal or into a pipe; colours appear on a terminal only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkinesis.terminal.names import printable


def print_table(rows: Sequence[Mapping[str, str]], console: Console) -> Console:
    """Print rows with the columns of the first row.

    Long values are folded on a terminal. In a pipe, each row is one line of any length. Control
    characters become spaces: the rows may come from a table that others write.
    """
    if not console.is_terminal:
        console.width = 10_000
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in next(iter(rows), ()):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(value)) for value in row.values()))
    if rows:
        console.print(table)
    return console
