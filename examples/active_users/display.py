"""The display of the demo: a live board on a terminal, short lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Collection

from rich.columns import Columns
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from examples.active_users.board import Board
from examples.flights.notes import Notes

NOTES_SHOWN = 10


class Display(Notes):
    """Shows notes and the board."""

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
        else:
            self.line(counts)
