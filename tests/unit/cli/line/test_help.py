"""The help of every command reads well at 80 columns, and so do the errors of its usage."""

from __future__ import annotations

import re

import pytest
import typer.main

from sparkinesis.cli.app import app
from tests.command import call

NAMES = [one.name for one in app.registered_commands if one.name is not None]
PAGES = [[], *([name] for name in NAMES)]


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_help_has_at_most_79_columns_and_no_types_of_python(
    page: list[str],
) -> None:
    shown = call(*page, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert max(map(len, shown.stdout.splitlines())) < 80
    assert shown.stdout.isascii(), "a fixed space is a space in the end"
    assert not re.search(r"<\w+>|\bTEXT\b|\{|None", shown.stdout)
    assert call(*page, "-h").stdout == shown.stdout


def test_the_first_page_lists_every_command_once() -> None:
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", call("--help").stdout, re.MULTILINE)
    assert sorted(listed) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_option_has_a_line_and_a_text(name: str) -> None:
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    shown = call(name, "--help").stdout
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
