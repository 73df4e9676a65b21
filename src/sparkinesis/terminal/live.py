"""Shows a view on a terminal and updates it in place.

Each shard and each owner has a line of its own while there is room; otherwise they stand side by
side.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from sparkinesis.errors import printable
from sparkinesis.terminal.printing import short_owners, short_shards
from sparkinesis.terminal.view import (
    LATE_MS,
    SIGN,
    GroupRow,
    ShardRow,
    View,
    behind,
    figures,
    lateness,
    one_line,
    rate_text,
    summary_line,
)


def can_update(console: Console) -> bool:
    """Return True if the console is a terminal that can be overwritten."""
    return console.is_terminal and not console.is_dumb_terminal


def print_line(view: View, console: Console) -> None:
    """Print the view as one plain line of any length."""
    console.print(summary_line(view), soft_wrap=True, markup=False, highlight=False)
    console.file.flush()


@contextmanager
def live_view(console: Console) -> Iterator[Callable[[View], None]]:
    """Yield a function that shows a view on the terminal's alternate screen. For one thread.

    Each view covers the whole screen, including the output of others. The last view is printed on
    the ordinary screen at the end.
    """
    last: View | None = None
    live = Live(
        console=console,
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )

    def show(view: View) -> None:
        nonlocal last
        last = view
        live.update(render(view, *console.size), refresh=True)

    try:
        with live:
            yield show
    finally:
        if last is not None:
            width, height = console.size
            # One line stays free for the prompt.
            console.print(render(last, width, height - 1))


_GAP = "  "
_OWNER_CELL = 39
"""The least width of an owner that shares a line: two fit into 80 columns."""
_NAME_CELL = 32
"""The most characters of a stream's name that shares a line; an identifier has some 30."""
_LAG, _RATE = 6, 8
_END = 3 + _LAG + 1 + _RATE
"""The width of a cell's end: the sign, the lag and the rate."""


def render(view: View, width: int, height: int) -> Group:
    """Return the view as at most ``height`` lines of at most ``width`` columns."""
    head = [
        Text.assemble((one_line(view.title), "bold"), f"{_GAP}{one_line(view.summary)}"),
        Text(_GAP.join(figures(view))),
    ]
    wrap = textwrap.TextWrapper(max(width, 20), max_lines=2, placeholder=" ...").wrap
    said = [line for message in view.messages for line in wrap(one_line(message))]
    said = said[: max(0, min(height // 5, height - 3))]
    gap = [Text()] if height >= 16 else []
    room = height - len(head) - len(said) - len(gap) * (2 if said else 1)
    lines = [*head, *gap, *_tables(view, width, room, gap)]
    if said:
        lines += [*gap, *map(Text, said)]
    for line in lines:
        line.no_wrap = True
        line.rstrip()
        line.truncate(width, overflow="crop")
    return Group(*lines[: max(height, 0)])


_Cell: TypeAlias = "list[str | tuple[str, str]]"
"""Pieces of a line: text, or (text, style)."""


Row = TypeVar("Row", bound=ShardRow | GroupRow)


@dataclass(frozen=True)
class _Table(Generic[Row]):
    """A table in two layouts: one row per line, or several cells per line.

    Each line, and each cell, begins with a text of its own, and ends with the lag and the rate.
    """

    heading: str
    """The heading of ``begin``."""
    begin: Callable[[Row], str]
    title: str
    """The heading above the cells."""
    brief: Callable[[Row], str]
    """The begin of a cell; all are equally wide."""
    rows: Sequence[Row]
    worst: Sequence[Row]
    """The rows with the worst first, for a screen that does not hold all cells."""
    state: Callable[[Row], str]
    """The word under which rows that are left out are counted."""
    unit: str
    across: int
    """The number of cells that fit side by side."""

    @property
    def as_lines(self) -> int:
        return len(self.rows) + 1 if self.rows else 0

    @property
    def as_cells(self) -> int:
        return math.ceil(len(self.rows) / self.across) + 1 if self.rows else 0

    def fit(self, room: int) -> list[Text]:
        """Return at most ``room`` lines: all rows, or the worst and a count of the rest."""
        if not self.rows or room < 1:
            return []
        if self.as_lines <= room:
            heading = f"{self.heading}{'behind':>{_LAG + 4}}{self.unit:>{_RATE + 3}}"
            return [Text(heading, "bold"), *map(self._line, self.rows)]
        if self.as_cells <= room:
            return [Text(self.title, "bold"), *self._grid(self.rows, room - 1)]
        shown = max(0, room - 2) * self.across
        left = Counter(map(self.state, self.worst[shown:]))
        more = f"... {left.total()} more"
        if any(left):
            more += ": " + ", ".join(f"{n} {state}" for state, n in left.most_common())
        worst = self._grid(self.worst[:shown], room - 2)
        return [*([Text(self.title, "bold")] if room > 1 else []), *worst, Text(more)]

    def _line(self, row: Row) -> Text:
        end = f"{rate_text(row.rate):>{_RATE + 3}}{_GAP}{one_line(row.note)}"
        return Text.assemble(self.begin(row), _lag(row, _LAG + 1), end)

    def _cell(self, row: Row) -> _Cell:
        last = rate_text(row.rate)
        if isinstance(row, ShardRow) and row.rate is None:
            last = row.state[:_RATE]
        return [self.brief(row), _lag(row, _LAG), f" {last:>{_RATE}}"]

    def _grid(self, rows: Sequence[Row], most: int) -> list[Text]:
        if not rows:
            return []
        height = min(most, math.ceil(len(rows) / self.across))
        lines = []
        for at in range(height):
            parts: _Cell = []
            for row in rows[at::height]:
                parts += [_GAP, *self._cell(row)] if parts else self._cell(row)
            lines.append(Text.assemble(*parts))
        return lines


def _across(width: int, cell: int) -> int:
    """Return how many cells fit side by side."""
    return max(1, (width + len(_GAP)) // (cell + len(_GAP)))


def _tables(view: View, width: int, room: int, gap: list[Text]) -> list[Text]:
    """Lay out the tables; if they do not fit, those above the shards keep a quarter each."""
    names = short_owners(
        {row.name for row in view.owners} | {s.owner for s in view.shards if s.owner}
    )
    owners, shards = _owner_table(view, names, width), _shard_table(view, names, width)
    above = [table for table in (owners, _stream_table(view, width)) if table.rows]
    room -= len(gap) * max(0, len(above) + bool(shards.rows) - 1)
    for wishes in ([one.as_lines for one in above], [one.as_cells for one in above]):
        if any(sum(wishes) + rows <= room for rows in (shards.as_lines, shards.as_cells)):
            break
    else:
        spare = max(room - shards.as_cells, 0) // max(1, len(above))
        wishes = [min(one.as_cells, max(spare, room // 4 + 1)) for one in above]
    shown = [table.fit(wish) for table, wish in zip(above, wishes, strict=True)]
    shown.append(shards.fit(room - sum(map(len, shown))))
    lines: list[Text] = []
    for table in shown:
        lines += [*(gap if lines and table else []), *table]
    return lines


def _short_name(stream: str) -> str:
    """Return a stream's name of at most `_NAME_CELL` characters: the start and the end."""
    name = one_line(stream)
    if len(name) <= _NAME_CELL:
        return name
    return f"{name[: _NAME_CELL // 2]}…{name[1 - _NAME_CELL // 2 :]}"


def _stream_table(view: View, width: int) -> _Table[GroupRow]:
    name = min(_widest([*(row.name for row in view.streams), "stream"]), max(20, width // 2))
    count = max(_widest(str(row.shards) for row in view.streams), 6)
    narrow = min(name, _NAME_CELL)
    rows = sorted(view.streams, key=_worst_first)
    return _Table(
        f"{'stream':{name}}{_GAP}{'shards':>{count}}",
        lambda row: f"{_left(row.name, name)}{_GAP}{row.shards:>{count}}",
        f"streams, worst lag first: shards, behind, {view.rate_unit}",
        lambda row: f"{_left(_short_name(row.name), narrow)} {row.shards:>{count}}",
        rows,
        rows,
        lambda row: "not read" if row.is_amiss else "",
        view.rate_unit,
        _across(width, narrow + 1 + count + _END),
    )


def _shard_table(view: View, names: Mapping[str, str], width: int) -> _Table[ShardRow]:
    ids = _shard_names(view)
    by = {row.owner: names[row.owner] if row.owner else "-" for row in view.shards}
    shard = _widest(ids.values())
    owner = _widest([*by.values(), "-"])
    state = _widest([*(row.state for row in view.shards), "state"])
    # Numbers alone line up on the right.
    place = _left if any(row.stream for row in view.shards) else _right
    wide, wide_owner = max(shard, 5), max(owner, 5)
    return _Table(
        f"{place('shard', wide)}{_GAP}{'owner':{wide_owner}}{_GAP}{'state':{state}}",
        lambda row: (
            f"{place(ids[row.shard], wide)}{_GAP}{_left(by[row.owner], wide_owner)}{_GAP}"
            f"{_left(row.state, state)}"
        ),
        f"shards, worst lag first: shard, owner, behind, {view.rate_unit}",
        lambda row: f"{place(ids[row.shard], shard)} {_left(by[row.owner], owner)}",
        sorted(view.shards, key=_late_first),
        sorted(view.shards, key=_worst_first),
        lambda row: row.state,
        view.rate_unit,
        _across(width, shard + 1 + owner + _END),
    )


def _shard_names(view: View) -> Mapping[str, str]:
    """Return a short name of each shard; of several streams, behind the stream's name."""
    alone = short_shards([row.shard for row in view.shards if not row.stream])
    ids = {row.shard: row.shard.rpartition(":")[2] for row in view.shards if row.stream}
    numbers = short_shards(set(ids.values()))
    several = {
        row.shard: f"{_short_name(row.stream)}/{numbers[ids[row.shard]]}"
        for row in view.shards
        if row.stream
    }
    return {**alone, **several}


def _owner_table(view: View, names: Mapping[str, str], width: int) -> _Table[GroupRow]:
    narrow = _widest(names[row.name] for row in view.owners)
    many = _widest(str(row.shards) for row in view.owners)
    short, count = max(narrow, 5), max(many, 6)
    # The full names are shown only if one of them was shortened.
    is_legend = any(names[row.name] != row.name for row in view.owners)
    full = _widest(row.name for row in view.owners) if is_legend else 0
    full = min(full, max(0, width - short - _LAG - _RATE - 20))
    across = _across(width, _OWNER_CELL)
    cell = (width + len(_GAP)) // across - len(_GAP)
    rest = max(0, cell - narrow - 1 - 1 - many - _END)

    def begin(name: str, full_name: str, shards: object) -> str:
        legend = f"{_GAP}{_left(full_name, full)}" if full else ""
        return f"{_left(name, short)}{legend}{_GAP}{shards:>{count}}"

    def brief(row: GroupRow) -> str:
        name = row.name if is_legend else ""
        note = f"{row.note}: {name}" if row.is_amiss else name
        return f"{_left(names[row.name], narrow)} {_left(note, rest)} {row.shards:>{many}}"

    rows = sorted(view.owners, key=lambda row: row.name)
    return _Table(
        begin("owner", "", "shards"),
        lambda row: begin(names[row.name], row.name, row.shards),
        f"owners: shards, behind, {view.rate_unit}",
        brief,
        rows,
        sorted(rows, key=_worst_first),
        lambda _: "",
        view.rate_unit,
        across,
    )


_Rank: TypeAlias = "tuple[bool, int, int, str]"


def _worst_first(row: ShardRow | GroupRow) -> _Rank:
    """Return the sort key of a row; ties are sorted by name.

    Rows amiss without a lag come first, then rows by falling lag, then rows without a lag.
    """
    lag = -1 if row.millis_behind is None else row.millis_behind
    name = row.shard if isinstance(row, ShardRow) else row.name
    return (not (row.is_amiss and lag < 0), -lag, len(name), name)


def _late_first(row: ShardRow) -> _Rank:
    """Sort like `_worst_first`, but by name where no lag is late: rows that are watched stay."""
    first, lag, length, name = _worst_first(row)
    return (first, lag if lag <= -LATE_MS else 0, length, name)


def _lag(row: ShardRow | GroupRow, width: int) -> tuple[str, str]:
    """Return the sign in three columns, then the lag in ``width`` columns; and their colour."""
    lag = row.millis_behind
    late = "very-late" if row.is_amiss and lag is None else lateness(lag)
    colour = {"": "green", "late": "yellow", "very-late": "red"}[late]
    text = f"{SIGN[late]:>3}{behind(lag):>{width}}"
    return text, "" if lag is None and not row.is_amiss else colour


def _widest(names: Iterable[str]) -> int:
    return max((cell_len(printable(name)) for name in names), default=0)


def _left(text: str, width: int) -> str:
    return set_cell_size(printable(text), width)


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text
