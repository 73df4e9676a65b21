"""Prints tables and lines on a terminal or into a pipe, and shortens the names in them.

Colours appear on a terminal only. What is not printable becomes escapes: the text may come from a
table that others write.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

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


_SHARD = re.compile(r"shardId-0*(\d+)")
_SEPARATORS = ":/._- "
_LONGEST = 6
"""The most characters of a shortened owner."""


def short_shard(name: str) -> str:
    """Return the number of a shard without the zeros before it; other names stay as they are."""
    return _SHARD.sub(r"\1", printable(name))


def short_shards(names: Collection[str]) -> Mapping[str, str]:
    """Return short names of shard ids or lease keys: ``shardId-000000000012`` becomes 12."""
    numbers = {name: short_shard(name) for name in names}
    start = _common(list(numbers.values()))
    return {name: number[len(start) :] for name, number in numbers.items()}


def short_owners(names: Collection[str]) -> Mapping[str, str]:
    """Return a name of at most six characters for each owner.

    Uses the names as they are, or without their common start and end. If these are too long or not
    unique, the owners are named w1, w2, ... in their order.
    """
    ordered = sorted(names)
    plain = [printable(name) for name in ordered]
    start = _common(plain)
    end = _common([name[len(start) :][::-1] for name in plain])
    parts = [name[len(start) : len(name) - len(end)] for name in plain]
    for short in (plain, [f"w{part}" if part.isdecimal() else part for part in parts]):
        if len(set(short)) == len(short) and all(0 < len(one) <= _LONGEST for one in short):
            return dict(zip(ordered, short, strict=True))
    return {name: f"w{number}" for number, name in enumerate(ordered, 1)}


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'s' * (number != 1)}"


def _common(names: list[str]) -> str:
    """Return the common start of two or more names, up to a separator."""
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    length = 0
    for at, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            break
        if one in _SEPARATORS:
            length = at + 1
    return first[:length]
