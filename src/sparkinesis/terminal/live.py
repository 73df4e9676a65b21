"""Shows a view on a terminal and updates it in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from sparkinesis.terminal.layout import render
from sparkinesis.terminal.view import View, summary_line


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
