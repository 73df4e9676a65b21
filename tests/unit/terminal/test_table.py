"""Tables of rows: foreign text cannot command the terminal."""

from __future__ import annotations

import pytest

from sparkinesis.terminal.printing import print_table, say


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("worker\x1b[2J-1\nb", "worker\\x1b[2J-1\\nb"),
        ("[bold]worker[/bold]", "[bold]worker[/bold]"),
        ("w" * 300, "w" * 300),
    ],
)
@pytest.mark.parametrize("to_stderr", [False, True])
def test_foreign_text_is_one_line_of_a_pipe_as_it_stands(
    capsys: pytest.CaptureFixture[str], text: str, printed: str, *, to_stderr: bool
) -> None:
    print_table([{"owner": text}], to_stderr=to_stderr)
    say(text, to_stderr=to_stderr)
    lines = capsys.readouterr()[to_stderr].splitlines()
    assert [line.strip() for line in lines] == ["owner", printed, printed]
