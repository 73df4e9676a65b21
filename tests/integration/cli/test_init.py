"""The project that `sparkinesis init` writes works as it is written."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.command import COMMAND, call, failure

FILES = {"app.py", "test_app.py", "README.md"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "deep" / "project"
    result = call("init", str(folder), "--stream", "payments")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Wrote {folder / 'app.py'}, ")
    assert f"\ncd {folder}\n" in result.stdout
    assert "sparkinesis run app:app" in result.stdout
    assert {one.name for one in folder.iterdir()} == FILES
    return folder


def test_its_test_passes_and_ruff_finds_nothing(project: Path) -> None:
    for command in (
        ["pytest", "-q", "-p", "no:cacheprovider"],
        ["ruff", "check", "--isolated", "--select", "E,F,W,I,B,UP,SIM,RUF,ANN", "."],
        ["ruff", "format", "--isolated", "--check", "."],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=project,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "payments-app" in (project / "app.py").read_text()


def test_its_steps_agree_on_the_environments_region(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    with background("local", "--streams", "payments:2", "--port", "0", "--json") as local:
        url = json.loads(local.readline())["endpoint"]
        monkeypatch.setenv("KINESIS_ENDPOINT", url)
        monkeypatch.chdir(project)
        with background("run", "app:app") as application:
            put = [COMMAND, "put", "payments", "--key", "ann", "--endpoint", url]
            subprocess.run(put, input=b"first\n", capture_output=True, check=True)
            assert application.readline() == b"ann first\n"


@contextmanager
def background(*arguments: str) -> Iterator[IO[bytes]]:
    """Run a command until the end of the block, and yield its output."""
    with subprocess.Popen(
        [COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait() == 0


def test_no_file_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_app.py").write_text("mine")
    assert failure(call("init")).startswith("There is test_app.py already")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("test_app.py", "mine")]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "app.py").symlink_to(tmp_path / "elsewhere.py")
    assert failure(call("init", "other")).startswith("other cannot be written to: File exists")
    assert not (tmp_path / "elsewhere.py").exists()
    (tmp_path / "file").write_text("")
    error = failure(call("init", "file/below"))
    assert re.match("file/below cannot be written to: Not a directory", error)
    assert failure(call("init", "new", "--stream", "a/b")).startswith("--stream is 'a/b'; a stream")
    assert not (tmp_path / "new").exists()


def test_the_working_directory_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = call("init").stdout
    assert "cd " not in shown
    assert "sparkinesis local --streams events:2\n" in shown
    assert {one.name for one in tmp_path.iterdir()} == FILES
