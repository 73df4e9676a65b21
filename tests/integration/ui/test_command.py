"""`sparkinesis ui` as a process: its address, its end, and what it needs."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparkinesis.application import Application
from sparkinesis.cli.app import app as cli
from sparkinesis.local import LocalServer
from tests.integration.ui.test_requests import Make, Start
from tests.journal import PATIENCE, Journal

COMMAND = str(Path(sys.executable).with_name("sparkinesis"))


def place(server: LocalServer) -> list[str]:
    return ["--region", "us-east-1", "--endpoint", server.endpoint_url, "--port", "0"]


def test_it_prints_its_address_and_ends_by_ctrl_c(
    application: Make, start: Start, journal: Journal, server: LocalServer, stream: str
) -> None:
    running: Application = application(worker_id="w")
    start(running)
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    command = [COMMAND, "ui", stream, "--stream", stream, *place(server)]
    with subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith(f"The page of {stream}: http://127.0.0.1:"), line
            url = line.split()[-1]
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                assert stream in answer.read().decode()
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "Traceback" not in out + error


def test_without_its_package_it_says_what_to_install(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh.server.server", None)
    result = CliRunner().invoke(cli, ["ui", "app", *place(server)])
    assert result.exit_code == 1
    assert "pip install 'sparkinesis[ui]'" in result.stderr


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--worker", "ftp://x"], "--worker is 'ftp://x'"),
        (["--stream", "no such name!"], "no such name!"),
        ([], "no such table"),
    ],
)
def test_mistakes_are_told_in_a_line(server: LocalServer, options: list[str], why: str) -> None:
    result = CliRunner().invoke(cli, ["ui", "never-made", *options, *place(server)])
    assert result.exit_code == 1
    assert result.stderr.startswith("sparkinesis ui: ")
    assert why in result.stderr or "never-made" in result.stderr
