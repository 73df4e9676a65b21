"""The tests of docs/testing.md run as they are printed, as do those of a user of the package.

That of a query is in `tests/spark/test_testing_kit.py`, which has a session.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sparkinesis.errors import ServiceError
from sparkinesis.queue.finding import Queues
from tests.documents import ROOT, blocks

PROGRAMS = {
    block.text.splitlines()[0].removeprefix("# ").removesuffix(".py"): block.text
    for block in blocks(ROOT / "docs" / "testing.md")
    if block.language == "python"
}


def run_pytest(folder: Path, **files: str) -> str:
    """Run pytest on test files, as a user does; return what it prints."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def has_queues() -> bool:
    """False with a boto3 that is older than queues, as `make compat` has one."""
    try:
        Queues("eu-west-1")
    except ServiceError:
        return False
    return True


def test_the_documented_tests_of_applications_pass(tmp_path: Path) -> None:
    programs = {
        name: text
        for name, text in PROGRAMS.items()
        if name != "test_query" and (has_queues() or "sparkinesis.queue" not in text)
    }
    tests = sum(text.count("\ndef test_") for text in programs.values())
    assert f"{tests} passed" in (said := run_pytest(tmp_path, **programs)), said


def test_a_session_without_the_kit_does_not_load_it(tmp_path: Path) -> None:
    """pytest loads the plugin at each start, also in projects that never use it."""
    test = """
import sys

def test_it():
    loaded = {name.partition('.')[0] for name in sys.modules}
    assert not loaded & {'boto3', 'botocore', 'pyarrow', 'pyspark', 'uvicorn'}
"""
    assert "1 passed" in (said := run_pytest(tmp_path, test_it=test)), said
