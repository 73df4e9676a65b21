"""The display of the demo: a live board on a terminal, short lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.flights.board import Board
from examples.flights.events import Figures
from examples.flights.notes import Notes
from examples.flights.results import Results

NOTES_SHOWN = 8
CARRIERS_SHOWN = 9


class Display(Notes):
    """Shows the progress of the flights."""

    def __init__(self, total: int, carriers: Mapping[str, str]) -> None:
        super().__init__()
        self._total = total
        self._carriers = carriers

    def show(self, sent: int, results: Results) -> None:
        """Show the progress. May be called at any rate."""
        if self.console.is_terminal:
            self._live.update(self._render(sent, results))
        else:
            self.line(
                f"put {sent:,} of {self._total:,}, "
                f"out of Spark {results.rows:,} in {len(results.batches)} batches, "
                f"in the air {len(results.board.in_the_air)}"
            )

    def _render(self, sent: int, results: Results) -> RenderableType:
        bars = Table.grid(padding=(0, 1))
        for label, count in (("put into Kinesis", sent), ("out of Spark", results.rows)):
            bar = ProgressBar(self._total, count, width=30)
            bars.add_row(label, bar, f"{count:,} of {self._total:,}")
        panels = Table.grid(expand=True)
        panels.add_column(ratio=1)
        panels.add_column(ratio=1)
        panels.add_row(_board(results.board), self._delays(results.figures))
        notes = Text("\n").join(self._notes[-NOTES_SHOWN:])
        return Group(bars, panels, notes)

    def _delays(self, figures: Mapping[str, Figures]) -> Panel:
        by_size = sorted(figures.items(), key=lambda item: -item[1].departures)
        lines = [
            f"{self._carriers[carrier]:20.20}{its.departures:9,}{its.mean_delay:7.1f}"
            for carrier, its in by_size[:CARRIERS_SHOWN]
        ]
        return _panel("Departures, mean delay in minutes", lines)


def _board(board: Board) -> Panel:
    flying = board.in_the_air
    busiest = Counter(carrier for carrier, _ in flying).most_common(3)
    latest = sorted(flying.items(), key=lambda item: -item[1].at)[: CARRIERS_SHOWN - 3]
    lines = [
        "  ".join([f"{len(flying)} in the air", *(f"{name} {count}" for name, count in busiest)]),
        f"{len(board.heard):,} known, {board.evicted:,} evicted",
        "",
        *(
            f"{_clock(its.at)} {its.origin}>{its.dest} {carrier}{its.flight:<4} {tail}"
            for (carrier, tail), its in latest
        ),
    ]
    return _panel("Live board", lines)


def _panel(title: str, lines: list[str]) -> Panel:
    lines += [""] * (CARRIERS_SHOWN - len(lines))
    return Panel(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), title=title)


def _clock(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, timezone.utc):%b %d %H:%M}"


def comparison(
    out_of_spark: Mapping[str, Figures],
    data_set: Mapping[str, Figures],
    carriers: Mapping[str, str],
) -> Text:
    """Return a table of the figures by carrier, of Spark and of the data set."""
    table = Text(no_wrap=True)
    table.append(f"{'':22}{'departures':>18}{'arrivals':>18}{'mean delay':>16}\n", "bold")
    both = f"{'Spark':>9}{'data set':>9}"
    table.append(f"{'carrier':22}{both}{both}{'Spark':>7}{'data set':>9}\n", "bold")
    none = Figures(0, 0, 0)
    for carrier in sorted(data_set.keys() | out_of_spark.keys()):
        one, other = out_of_spark.get(carrier, none), data_set.get(carrier, none)
        table.append(
            f"{carriers.get(carrier, carrier):22.22}"
            f"{one.departures:9,}{other.departures:9,}"
            f"{one.arrivals:9,}{other.arrivals:9,}"
            f"{one.mean_delay:7.2f}{other.mean_delay:9.2f}  "
        )
        table.append(*(("✓\n", "green") if one == other else ("✗\n", "bold red")))
    return table
