"""Shows a view on a terminal and updates it in place."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live

from sparkinesis.terminal.view import View, render, summary_line


def can_update(console: Console) -> bool:
    """Return True if the console is a terminal that can be overwritten."""
    return console.is_terminal and not console.is_dumb_terminal


def print_line(view: View, console: Console) -> None:
    """Print the view as one plain line of any length."""
    console.print(summary_line(view), soft_wrap=True, markup=False, highlight=False)
    console.file.flush()


class LiveView:
    """A terminal's alternate screen; a context manager, for one thread.

    Each view covers the whole screen, including the output of others. The last view is printed on
    the ordinary screen at the end.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: View | None = None
        self._live = Live(
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def show(self, view: View) -> None:
        self._last = view
        self._live.update(render(view, *self._console.size), refresh=True)

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()
        if self._last is not None:
            width, height = self._console.size
            # One line stays free for the prompt.
            self._console.print(render(self._last, width, height - 1))
