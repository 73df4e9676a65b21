"""The display of the demo: a live board on a terminal, short lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Collection
from types import TracebackType

from rich.columns import Columns
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from examples.active_users.board import Board

SECONDS_BETWEEN_LINES = 5.0
NOTES_SHOWN = 10
WIDTH_OFF_TERMINAL = 100


class Display:
    """Shows notes and the board; a context manager."""

    def __init__(self) -> None:
        width = None if Console().is_terminal else WIDTH_OFF_TERMINAL
        self.console = Console(width=width, highlight=False)
        self._started = time.monotonic()
        self._notes: list[Text] = []
        self._line_at = 0.0
        self._live = Live(console=self.console, refresh_per_second=8, transient=True)

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
        """Show an event."""
        line = Text(f"{self.seconds:5.1f} s  {text}")
        self._notes.append(line)
        if not self.console.is_terminal:
            self.console.print(line, soft_wrap=True)

    def show(self, board: Board, there: Collection[str], minute: float) -> None:
        """Show the present state. May be called at any rate."""
        active, now = board.active, time.time()
        given = ", ".join(f"{n:,} of {stream}" for stream, n in sorted(board.heartbeats.items()))
        counts = (
            f"{len(active)} active, {len(there)} there, {len(board.evictions)} evicted, "
            f"heartbeats: {given or 'none'}"
        )
        if self.console.is_terminal:
            ages = {user: (now - heard) / minute for user, heard in sorted(active.items())}
            users = [
                Text(f"{user} {age:4.1f}", "green" if age <= 1.2 else "yellow")
                for user, age in ages.items()
            ]
            panel = Panel(
                Columns(users, padding=(0, 2)), title=f"{counts}; minutes since the last heartbeat"
            )
            self._live.update(Group(panel, Text("\n").join(self._notes[-NOTES_SHOWN:])))
        elif self.seconds - self._line_at >= SECONDS_BETWEEN_LINES:
            self._line_at = self.seconds
            self.console.print(f"{self.seconds:5.1f} s  {counts}", soft_wrap=True)
