"""An error of a command is one line and exit code 1."""

from __future__ import annotations

import pytest

from sparkinesis.lease.table.table import LeaseTable
from tests.command import Command, failure


@pytest.mark.parametrize(
    ("command", "options", "text"),
    [
        ("leases", ["--watch-for", "0"], "There is no lease table"),
        ("leases", ["--stream", "arn:aws:s3:::x"], "a stream's ARN looks like"),
        ("leases", ["--profile", "nope"], "nope"),
        ("reset", ["--stream", "nope", "--to", "soon", "--yes"], "The position is 'soon'"),
        ("top", [], "There is no lease table"),
        ("top", ["--json", "--once"], "There is no lease table"),
        ("top", ["--stream", "arn:aws:s3:::x"], "a stream's ARN looks like"),
        ("ui", ["--worker", "ftp://x"], "--worker is 'ftp://x'"),
        ("ui", ["--stream", "no such name!"], "no such name!"),
        ("ui", ["--port", "0"], "There is no lease table"),
        ("exporter", ["--http", "9401"], "--http is '9401'; it must be"),
    ],
)
def test_an_error_is_one_line_and_exit_1(
    call: Command, command: str, options: list[str], text: str
) -> None:
    assert text in failure(call(command, *options, app="no-such-application"))


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("leases", ["--stream", "nope"]),
        ("top", ["--stream", "nope"]),
        ("reset", ["--stream", "nope", "--to", "latest", "--yes"]),
    ],
)
def test_an_error_is_all_that_a_process_says(
    table: LeaseTable, run: Command, command: str, options: list[str]
) -> None:
    assert "There is no stream 'nope'" in failure(run(command, *options))


def test_an_application_name_that_cannot_be_one_is_refused(call: Command) -> None:
    assert "'a b'" in failure(call("doctor", "--stream", "s", app="a b"))
