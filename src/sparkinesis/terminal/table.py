"""Prints tables and lines on a terminal or into a pipe; colours appear on a terminal only.

What is not printable becomes escapes: the text may come from a table that others write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sparkinesis.errors import printable


def print_table(rows: Sequence[Mapping[str, str]], *, to_stderr: bool = False) -> None:
    """Print rows with the columns of the first row.

    Long values are folded on a terminal. In a pipe, each row is one line of any length.
    """
    console = Console(stderr=to_stderr, highlight=False)
    if not console.is_terminal:
        console.width = 10_000
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in next(iter(rows), ()):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(value)) for value in row.values()))
    if rows:
        console.print(table)


def say(line: str = "", *, to_stderr: bool = False, style: str | None = None) -> None:
    """Print a line of any length."""
    console = Console(stderr=to_stderr, highlight=False)
    console.print(printable(line), style=style, soft_wrap=True, markup=False)
