"""The view of `sparkinesis top` and a fleet's `watch`, fitted into a terminal. Pure.

Each shard and each owner has a line of its own while there is room; otherwise they stand side by
side.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.text import Text

from sparkinesis.terminal.names import printable, short_owners, short_shards

LATE_MS, VERY_LATE_MS = 10_000, 60_000
"""The smallest lags that are marked with ``!`` and with ``!!``."""

_GAP = "  "
_OWNER_CELL = 39
"""The least width of an owner that shares a line: two fit into 80 columns."""
_NAME_CELL = 32
"""The most characters of a stream's name that shares a line; an identifier has some 30."""
_LAG, _RATE = 6, 8


@dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard."""

    shard: str
    """The shard's id, or the key of its lease."""
    owner: str | None
    state: str
    millis_behind: int | None
    """The lag in milliseconds; None if unknown."""
    rate: float | None
    """The rate in the view's unit; None if unknown; the compact layout then shows the state."""
    note: str = ""
    is_amiss: bool = False
    """True for a fault that the lag does not show; the row comes first if its lag is unknown."""
    stream: str = ""
    """The stream's name in a view of several streams; the shard is then the key of the lease."""


@dataclass(frozen=True, slots=True)
class OwnerRow:
    """One owner of shards."""

    owner: str
    shards: int
    millis_behind: int | None
    """The largest lag of its shards."""
    rate: float | None
    note: str = ""
    is_amiss: bool = False


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One of several streams."""

    stream: str
    shards: int
    """The number of shards that are not finished."""
    millis_behind: int | None
    """The largest lag of its shards."""
    rate: float | None
    note: str = ""
    is_amiss: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """An application at one moment."""

    title: str
    summary: str
    rate_unit: Literal["records/s", "KB/s"]
    owners: tuple[OwnerRow, ...] = ()
    shards: tuple[ShardRow, ...] = ()
    messages: tuple[str, ...] = ()
    """The messages, most important first; the last ones are left out if room is short."""
    is_partial: bool = False
    """True if shards that the view does not show have records: the overall lag may be larger."""
    streams: tuple[StreamRow, ...] = ()
    """The streams of an application of several; empty for one that reads a single stream."""

    @property
    def millis_behind(self) -> int | None:
        """The largest known lag."""
        return largest(row.millis_behind for row in self.shards)

    @property
    def rate(self) -> float | None:
        """The rate of all owners; None if no rate is known."""
        return total(row.rate for row in self.owners)


def largest(lags: Iterable[int | None]) -> int | None:
    """Return the largest known lag; None if no lag is known."""
    return max((lag for lag in lags if lag is not None), default=None)


def total(rates: Iterable[float | None]) -> float | None:
    """Return the sum of the known rates; None if no rate is known."""
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def behind(millis: int | None) -> str:
    """Return a lag as text of at most six characters."""
    if millis is None:
        return "-"
    seconds = millis / 1000
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    if seconds < 99.5 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 99.95 else f"{hours / 24:.0f} d"


def rate_text(rate: float | None) -> str:
    """Return a rate as text of at most eight characters; "-" if it is unknown."""
    if rate is None:
        return "-"
    if rate < 99.95:
        return f"{rate:.1f}"
    if rate < 99_999.5:
        return f"{rate:,.0f}"
    return f"{rate / 1e3:.1f}k" if rate < 999_950 else f"{rate / 1e6:.1f}M"


def figures(view: View) -> list[str]:
    """Return the totals of the view: shards by state, owners, the largest lag, and the rate."""
    states = Counter(row.state for row in view.shards)
    counts = ", ".join(f"{n} {_plain(state)}" for state, n in states.most_common())
    lag, rate = view.millis_behind, view.rate
    known = "lag unknown" if lag is None else f"{_sign(lag)} {behind(lag)} behind".lstrip()
    if view.is_partial:
        known = "lag unknown" if not lag else f"at least {known}"
    return [
        f"{_number(len(view.shards), 'shard')}{f' ({counts})' if counts else ''}",
        _number(len(view.owners), "owner"),
        known,
        "rate unknown" if rate is None else f"{rate_text(rate)} {view.rate_unit}",
    ]


def summary_line(view: View) -> str:
    """Return the view as one line."""
    return f"{_plain(view.title)}: {_plain(view.summary)}; {', '.join(figures(view))}"


def render(view: View, width: int, height: int) -> Group:
    """Return the view as at most ``height`` lines of at most ``width`` columns."""
    head = [
        Text.assemble((_plain(view.title), "bold"), f"{_GAP}{_plain(view.summary)}"),
        Text(_GAP.join(figures(view))),
    ]
    said = [
        line
        for message in view.messages
        for line in textwrap.wrap(_plain(message), max(width, 20), max_lines=2, placeholder=" ...")
    ][: max(0, min(height // 5, height - 3))]
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


class _Table(NamedTuple):
    """The rows of a table, in two layouts: one row per line, or several cells per line."""

    heading: str
    """The heading above ``lines``."""
    lines: Sequence[_Cell]
    title: str
    """The heading above ``cells``."""
    cells: Sequence[_Cell]
    """The rows as cells, in the order of ``lines``, all equally wide."""
    cells_of_worst: Sequence[_Cell]
    """The cells with the worst first, for a screen that does not hold all of them."""
    states: Sequence[str]
    """The states of the rows, in the order of ``cells_of_worst``."""
    across: int
    """The number of cells that fit side by side."""

    @property
    def as_lines(self) -> int:
        return len(self.lines) + 1 if self.lines else 0

    @property
    def as_cells(self) -> int:
        return math.ceil(len(self.cells) / self.across) + 1 if self.cells else 0

    def fit(self, room: int) -> list[Text]:
        """Return at most ``room`` lines: all rows, or the worst and a count of the rest."""
        if not self.lines or room < 1:
            return []
        if self.as_lines <= room:
            return [Text(self.heading, "bold"), *(Text.assemble(*line) for line in self.lines)]
        if self.as_cells <= room:
            return [Text(self.title, "bold"), *self._grid(self.cells, room - 1)]
        shown = max(0, room - 2) * self.across
        left = Counter(self.states[shown:])
        more = f"... {left.total()} more"
        if any(left):
            more += ": " + ", ".join(f"{n} {state}" for state, n in left.most_common())
        worst = self._grid(self.cells_of_worst[:shown], room - 2)
        return [*([Text(self.title, "bold")] if room > 1 else []), *worst, Text(more)]

    def _grid(self, cells: Sequence[_Cell], most: int) -> list[Text]:
        if not cells:
            return []
        height = min(most, math.ceil(len(cells) / self.across))
        lines = []
        for at in range(height):
            parts: _Cell = []
            for cell in cells[at::height]:
                parts += [_GAP, *cell] if parts else cell
            lines.append(Text.assemble(*parts))
        return lines


def _tables(view: View, width: int, room: int, gap: list[Text]) -> list[Text]:
    """Lay out the tables; if they do not fit, those above the shards keep a quarter each."""
    names = short_owners(
        {row.owner for row in view.owners} | {s.owner for s in view.shards if s.owner}
    )
    owners, shards = _owner_table(view, names, width), _shard_table(view, names, width)
    above = [table for table in (owners, _stream_table(view, width)) if table.lines]
    room -= len(gap) * max(0, len(above) + bool(shards.lines) - 1)
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
    name = _plain(stream)
    if len(name) <= _NAME_CELL:
        return name
    return f"{name[: _NAME_CELL // 2]}…{name[1 - _NAME_CELL // 2 :]}"


def _stream_table(view: View, width: int) -> _Table:
    name = min(_widest([*(row.stream for row in view.streams), "stream"]), max(20, width // 2))
    count = max(_widest(str(row.shards) for row in view.streams), 6)

    def line(row: StreamRow) -> _Cell:
        return [
            f"{_left(row.stream, name)}{_GAP}{row.shards:>{count}}",
            _lag(row, _LAG + 1),
            f"{rate_text(row.rate):>{_RATE + 3}}{_GAP}{_plain(row.note)}",
        ]

    narrow = min(name, _NAME_CELL)

    def brief(row: StreamRow) -> _Cell:
        return [
            f"{_left(_short_name(row.stream), narrow)} {row.shards:>{count}}",
            _lag(row, _LAG),
            f" {rate_text(row.rate):>{_RATE}}",
        ]

    rows = sorted(view.streams, key=_worst_first)
    cell = narrow + 1 + count + 3 + _LAG + 1 + _RATE
    heading = (
        f"{'stream':{name}}{_GAP}{'shards':>{count}}"
        f"{'behind':>{_LAG + 4}}{view.rate_unit:>{_RATE + 3}}"
    )
    return _Table(
        heading,
        [line(row) for row in rows],
        f"streams, worst lag first: shards, behind, {view.rate_unit}",
        [brief(row) for row in rows],
        [brief(row) for row in rows],
        ["not read" if row.is_amiss else "" for row in rows],
        max(1, (width + len(_GAP)) // (cell + len(_GAP))),
    )


def _shard_table(view: View, names: Mapping[str, str], width: int) -> _Table:
    ids = _shard_names(view)
    has_streams = any(row.stream for row in view.shards)
    shard = _widest(ids.values())
    owner = _widest([*(names[row.owner] for row in view.shards if row.owner), "-"])
    state = _widest([*(row.state for row in view.shards), "state"])
    cell = shard + 1 + owner + _LAG + 3 + 1 + _RATE
    place = _left if has_streams else _right  # numbers alone line up on the right

    def line(row: ShardRow) -> _Cell:
        return [
            f"{place(ids[row.shard], max(shard, 5))}{_GAP}",
            f"{_left(names[row.owner] if row.owner else '-', max(owner, 5))}{_GAP}",
            _left(row.state, state),
            _lag(row, _LAG + 1),
            f"{rate_text(row.rate):>{_RATE + 3}}{_GAP}{_plain(row.note)}",
        ]

    def brief(row: ShardRow) -> _Cell:
        last = row.state[:_RATE] if row.rate is None else rate_text(row.rate)
        by = names[row.owner] if row.owner else "-"
        return [
            f"{place(ids[row.shard], shard)} {_left(by, owner)}",
            _lag(row, _LAG),
            f" {last:>{_RATE}}",
        ]

    worst = sorted(view.shards, key=_worst_first)
    rows = sorted(view.shards, key=_late_first)
    heading = (
        f"{place('shard', max(shard, 5))}{_GAP}{'owner':{max(owner, 5)}}{_GAP}{'state':{state}}"
        f"{'behind':>{_LAG + 4}}{view.rate_unit:>{_RATE + 3}}"
    )
    title = f"shards, worst lag first: shard, owner, behind, {view.rate_unit}"
    across = max(1, (width + len(_GAP)) // (cell + len(_GAP)))
    return _Table(
        heading,
        [line(row) for row in rows],
        title,
        [brief(row) for row in rows],
        [brief(row) for row in worst],
        [row.state for row in worst],
        across,
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


def _owner_table(view: View, names: Mapping[str, str], width: int) -> _Table:
    short = _widest([*(names[row.owner] for row in view.owners), "owner"])
    # The full names are shown only if one of them was shortened.
    is_legend = any(names[row.owner] != row.owner for row in view.owners)
    full = _widest(row.owner for row in view.owners) if is_legend else 0
    full = min(full, max(0, width - short - _LAG - _RATE - 20))
    count = max(_widest(str(row.shards) for row in view.owners), 6)

    def line(row: OwnerRow) -> _Cell:
        return [
            _left(names[row.owner], short),
            f"{_GAP}{_left(row.owner, full)}" if full else "",
            f"{_GAP}{row.shards:>{count}}",
            _lag(row, _LAG + 1),
            f"{rate_text(row.rate):>{_RATE + 3}}{_GAP}{_plain(row.note)}",
        ]

    across = max(1, (width + len(_GAP)) // (_OWNER_CELL + len(_GAP)))
    cell = (width + len(_GAP)) // across - len(_GAP)
    narrow = _widest(names[row.owner] for row in view.owners)
    many = _widest(str(row.shards) for row in view.owners)
    rest = max(0, cell - narrow - 1 - 1 - many - 3 - _LAG - 1 - _RATE)

    def brief(row: OwnerRow) -> _Cell:
        name = row.owner if is_legend else ""
        note = f"{row.note}: {name}" if row.is_amiss else name
        return [
            f"{_left(names[row.owner], narrow)} {_left(note, rest)} {row.shards:>{many}}",
            _lag(row, _LAG),
            f" {rate_text(row.rate):>{_RATE}}",
        ]

    rows = sorted(view.owners, key=lambda row: row.owner)
    worst = sorted(rows, key=_worst_first)
    heading = (
        f"{'owner':{short}}{_GAP + ' ' * full if full else ''}{_GAP}{'shards':>{count}}"
        f"{'behind':>{_LAG + 4}}{view.rate_unit:>{_RATE + 3}}"
    )
    title = f"owners: shards, behind, {view.rate_unit}"
    return _Table(
        heading,
        [line(row) for row in rows],
        title,
        [brief(row) for row in rows],
        [brief(row) for row in worst],
        [""] * len(rows),
        across,
    )


_Rank: TypeAlias = "tuple[bool, int, int, str]"


def _worst_first(row: ShardRow | OwnerRow | StreamRow) -> _Rank:
    """Return the sort key of a row; ties are sorted by name.

    Rows amiss without a lag come first, then rows by falling lag, then rows without a lag.
    """
    lag = -1 if row.millis_behind is None else row.millis_behind
    if isinstance(row, ShardRow):
        name = row.shard
    else:
        name = row.owner if isinstance(row, OwnerRow) else row.stream
    return (not (row.is_amiss and lag < 0), -lag, len(name), name)


def _late_first(row: ShardRow) -> _Rank:
    """Sort like `_worst_first`, but keep shards with small lags in place, for easy watching."""
    first, lag, length, name = _worst_first(row)
    return (first, lag if lag <= -LATE_MS else 0, length, name)


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _lag(row: ShardRow | OwnerRow | StreamRow, width: int) -> tuple[str, str]:
    """Return the sign in three columns, then the lag in ``width`` columns; and their colour."""
    lag = row.millis_behind
    sign = "!!" if row.is_amiss and lag is None else _sign(lag)
    colour = {"": "green", "!": "yellow", "!!": "red"}[sign]
    text = f"{sign:>3}{behind(lag):>{width}}"
    return text, "" if lag is None and not row.is_amiss else colour


def _sign(millis: int | None) -> str:
    if millis is None or millis < LATE_MS:
        return ""
    return "!" if millis < VERY_LATE_MS else "!!"


def _plain(text: str) -> str:
    return " ".join(printable(text).split())


def _widest(names: Iterable[str]) -> int:
    return max((cell_len(printable(name)) for name in names), default=0)


def _left(text: str, width: int) -> str:
    return set_cell_size(printable(text), width)


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text
