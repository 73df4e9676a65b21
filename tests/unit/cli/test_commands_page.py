"""The page of commands shows the help that commands print, and an example of each."""

from __future__ import annotations

from tests.command import commands
from tests.unit.cli.commands_page import EXAMPLES, PAGE, page


def test_the_page_is_that_of_the_commands() -> None:
    """Else make it by ``python -m tests.unit.cli.commands_page > docs/commands.md``."""
    assert PAGE.read_text("utf-8") == page()


def test_each_command_has_an_example() -> None:
    """A new command gets one in ``EXAMPLES`` of ``tests/unit/cli/commands_page.py``."""
    assert EXAMPLES.keys() == {" ".join(words) for words, _ in commands()}
