"""What the demo shows: a live board on a terminal, short lines anywhere else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.flights.board import Board
from examples.flights.events import Figures
from examples.flights.results import Results

SECONDS_BETWEEN_LINES = 5.0
NOTES_SHOWN = 8
WIDTH_OFF_TERMINAL = 100


class Display:
    """Progress and notes, from `show` and `note`; a context manager."""

    def __init__(self, total: int, carriers: Mapping[str, str]) -> None:
        width = None if Console().is_terminal else WIDTH_OFF_TERMINAL
        self.console = Console(width=width, highlight=False)
        self._total = total
        self._carriers = carriers
        self._started = time.monotonic()
        self._notes: list[Text] = []
        self._line_at = 0.0
        self._live = Live(console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()
        if self.console.is_terminal:
            for note in self._notes:
                self.console.print(note)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def note(self, text: str) -> None:
        """Something that happened once."""
        line = Text(f"{self.seconds:5.0f} s  {text}")
        self._notes.append(line)
        if not self.console.is_terminal:
            self.console.print(line, soft_wrap=True)

    def show(self, sent: int, results: Results) -> None:
        """How far things are. May be called as often as one likes."""
        if self.console.is_terminal:
            self._live.update(self._render(sent, results))
        elif self.seconds - self._line_at >= SECONDS_BETWEEN_LINES:
            self._line_at = self.seconds
            self.console.print(
                f"{self.seconds:5.0f} s  put {sent:,} of {self._total:,}, "
                f"out of Spark {results.rows:,} in {len(results.batches)} batches, "
                f"in the air {len(results.board.in_the_air)}",
                soft_wrap=True,
            )

    def _render(self, sent: int, results: Results) -> RenderableType:
        bars = Table.grid(padding=(0, 1))
        for label, count in (("put into Kinesis", sent), ("out of Spark", results.rows)):
            bar = ProgressBar(self._total, count, width=40)
            bars.add_row(label, bar, f"{count:,} of {self._total:,}")
        panels = Table.grid(expand=True)
        panels.add_row(_board(results.board), self._delays(results.figures))
        notes = Text("\n").join(self._notes[-NOTES_SHOWN:])
        return Group(bars, panels, notes)

    def _delays(self, figures: Mapping[str, Figures]) -> Panel:
        table = Table.grid(padding=(0, 2), expand=True)
        by_size = sorted(figures.items(), key=lambda item: -item[1].departures)
        for carrier, its in by_size[:9]:
            table.add_row(
                self._carriers[carrier], f"{its.departures:,}", f"{its.mean_delay:+.1f} min"
            )
        return Panel(table, title="Departures and their mean delay")


def _board(board: Board) -> Panel:
    flying = board.in_the_air
    busiest = Counter(carrier for carrier, _ in flying).most_common(5)
    lines = [
        f"{len(flying)} aircraft in the air, {len(board.heard)} known, {board.evicted} evicted",
        "  ".join(f"{carrier} {count}" for carrier, count in busiest),
        "",
    ]
    latest = sorted(flying.items(), key=lambda item: -item[1].at)
    lines += [
        f"{_clock(heard.at)}  {heard.origin} > {heard.dest}  {carrier}{heard.flight:<5} {tail}"
        for (carrier, tail), heard in latest[:6]
    ]
    return Panel("\n".join(lines), title="Live board")


def _clock(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%b %d %H:%M}"


def comparison(
    out_of_spark: Mapping[str, Figures],
    data_set: Mapping[str, Figures],
    carriers: Mapping[str, str],
) -> Table:
    """The figures by carrier side by side: out of Spark, and straight from the data set."""
    table = Table(box=None, padding=(0, 1), header_style="bold", show_edge=False)
    table.add_column("carrier", no_wrap=True)
    for what in ("departures", "arrivals", "mean delay"):
        table.add_column(f"{what}\nSpark", justify="right", min_width=7)
        table.add_column("\ndata set", justify="right", min_width=7)
    table.add_column("")
    none = Figures(0, 0, 0)
    for carrier in sorted(data_set.keys() | out_of_spark.keys()):
        ours, theirs = out_of_spark.get(carrier, none), data_set.get(carrier, none)
        cells = []
        for left, right in zip(_cells(ours), _cells(theirs), strict=True):
            cells += [left, right]
        same = Text("✓", "green") if ours == theirs else Text("✗", "bold red")
        table.add_row(carriers.get(carrier, carrier), *cells, same)
    return table


def _cells(figures: Figures) -> tuple[str, str, str]:
    return f"{figures.departures:,}", f"{figures.arrivals:,}", f"{figures.mean_delay:.2f}"
