"""What a demo tells as it goes: a live board on a terminal, short lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TypeVar

from rich.console import Console
from rich.live import Live
from rich.text import Text

SECONDS_BETWEEN_LINES = 5.0
WIDTH_OFF_TERMINAL = 100

_Notes = TypeVar("_Notes", bound="Notes")


class Notes:
    """Shows notes, and on a terminal a live board; a context manager."""

    def __init__(self) -> None:
        width = None if Console().is_terminal else WIDTH_OFF_TERMINAL
        self.console = Console(width=width, highlight=False)
        self._started = time.monotonic()
        self._notes: list[Text] = []
        self._line_at = 0.0
        self._live = Live(console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self: _Notes) -> _Notes:
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

    def line(self, text: str) -> None:
        """Show a line of the progress, unless the last one was shown a moment ago."""
        if self.seconds - self._line_at >= SECONDS_BETWEEN_LINES:
            self._line_at = self.seconds
            self.console.print(f"{self.seconds:5.1f} s  {text}", soft_wrap=True)
