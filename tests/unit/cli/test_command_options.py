"""What a shell completes, and the help of commands."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sparkinesis.cli import command_options
from tests import pace
from tests.command import call, commands


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [
        (["sparkinesis", "re"], 1, (["sparkinesis", "re"], 1)),
        (["sparkinesis", "top", ""], 2, (["sparkinesis", "top", ""], 2)),
        (["sparkinesis", "top"], 2, (["sparkinesis", "top"], 2)),
        (
            ["s", "top", "--endpoint", "http", ":", "//h", ":", "1", "ab"],
            8,
            (["s", "top", "--endpoint", "http://h:1", "ab"], 4),
        ),
        (["s", "top", "--stream", "=", "fl"], 4, (["s", "top", "--stream=fl"], 2)),
        (["s", "top", "--stream", "="], 3, (["s", "top", "--stream="], 2)),
        (["s", "top", "--stream", "1", ":", "a", ":"], 6, (["s", "top", "--stream", "1:a:"], 3)),
    ],
)
def test_words_that_bash_split_are_joined(
    words: list[str], at: int, expected: tuple[list[str], int]
) -> None:
    assert command_options.joined(words, at) == expected


def test_an_answer_that_never_comes_is_not_waited_for() -> None:
    over = threading.Event()

    def pages() -> Iterator[list[str]]:
        yield ["a"]
        over.wait()
        yield ["b"]

    began = time.monotonic()
    assert command_options._within(0.2, pages) == ["a"]
    assert time.monotonic() - began < pace.seconds(2)
    over.set()


WORDS = [words for words, _ in commands()]
NAMES = {words[0] for words in WORDS}
PAGES = [[], ["queues"], *WORDS]


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_help_has_at_most_79_columns_and_no_types_of_python(page: list[str]) -> None:
    shown = call(*page, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert max(map(len, shown.stdout.splitlines())) < 80
    assert shown.stdout.isascii(), "a fixed space is a space in the end"
    assert not re.search(r"<\w+>|\bTEXT\b|\{|None", shown.stdout)
    assert call(*page, "-h").stdout == shown.stdout


def test_the_first_page_lists_every_command_once() -> None:
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", call("--help").stdout, re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


@pytest.mark.parametrize(("words", "command"), list(commands()), ids=map(" ".join, WORDS))
def test_every_option_has_a_line_and_a_text(words: list[str], command: Any) -> None:
    shown = call(*words, "--help").stdout
    for param in command.params:
        start = param.metavar if param.param_type_name == "argument" else max(param.opts, key=len)
        assert re.search(rf"^  (-\w, )?{re.escape(start)}( |,|$)", shown, re.MULTILINE), start
        assert param.help, start


def test_paragraphs_arguments_defaults_and_panels() -> None:
    shown = call("reset", "--help").stdout
    assert shown.startswith("Usage: sparkinesis reset [OPTIONS] APP\n\n  Move an application")
    assert (
        "\n  The application may run: workers lose their shards and take them again at\n" in shown
    )
    assert "\n  --to POSITION    latest, trim_horizon," in shown
    assert "[required]" in shown
    assert "\n  -y, --yes        Do not ask for confirmation.\n" in shown
    assert "\nWhere:\n  --region REGION          The AWS region." in shown
    local = call("local", "--help").stdout
    assert "[default: 4566]" in local
    assert "  --limits / --no-limits  " in local
    assert "[default: --limits]" in local
    assert "[default: --stream-delay-ms]" in local
    assert "--to several|single" in call("convert-leases", "--help").stdout
    assert "[default: 8]" in call("leases", "--help").stdout


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (["rset"], "No such command 'rset'. Did you mean 'reset'?"),
        (["reset", "--to", "latest"], "Missing argument 'APP'."),
        (["reset", "app"], "Missing option '--to'."),
        (["reset", "app", "--to", "latest", "--strem", "s"], "No such option: --strem"),
    ],
)
def test_an_error_of_usage_is_one_line_below_the_usage(line: list[str], error: str) -> None:
    result = call(*line)
    assert (result.returncode, result.stdout) == (2, "")
    usage, hint, nothing, told = result.stderr.splitlines()
    assert usage.startswith("Usage: sparkinesis ")
    assert re.fullmatch(r"Try 'sparkinesis( reset)? --help' for help\.", hint)
    assert nothing == ""
    assert told.startswith(f"Error: {error}")
    assert "--strem" not in told or "--stream" in told
