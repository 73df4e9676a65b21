"""`sparkinesis ui` as a process: its address, its end, and what it needs."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request

import pytest

from sparkinesis.application import Application
from sparkinesis.local import LocalServer
from tests.command import COMMAND, call, failure, place_of
from tests.integration.ui.test_requests import Make, Start
from tests.journal import PATIENCE, Journal


def test_it_prints_its_address_and_ends_by_ctrl_c(
    application: Make, start: Start, journal: Journal, server: LocalServer, stream: str
) -> None:
    running: Application = application(worker_id="w")
    start(running)
    journal.wait(lambda: len(journal.calls("initialize")) == 2)
    command = [COMMAND, "ui", stream, "--stream", stream, *place_of(server), "--port", "0"]
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
    assert "pip install 'sparkinesis[ui]'" in failure(call("ui", "app", *place_of(server)))
