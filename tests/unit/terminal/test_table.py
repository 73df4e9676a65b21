"""Tables of rows: foreign text cannot command the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from sparkinesis.terminal.table import print_table


def _printed(*rows: dict[str, str]) -> str:
    output = io.StringIO()
    print_table(rows, Console(file=output))
    return output.getvalue()


def test_control_characters_are_printed_as_spaces() -> None:
    printed = _printed({"owner": "worker\x1b[2J-1", "title": "a\nb"})
    assert "\x1b" not in printed
    assert "worker [2J-1" in printed
    assert "a b" in printed


def test_markup_is_printed_as_it_stands() -> None:
    assert "[bold]worker[/bold]" in _printed({"owner": "[bold]worker[/bold]"})


def test_a_row_in_a_pipe_is_one_line() -> None:
    lines = _printed({"owner": "w" * 300}).splitlines()
    assert "w" * 300 in [line.strip() for line in lines]
