"""A test that hangs fails by its name with the stacks of all threads, and the others run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PLANTED = """
import re, threading, time
import pytest
from hypothesis import given, strategies as st

pytestmark = pytest.mark.limit(1)

def for_ever():
    while True:
        time.sleep(0.1)

def test_before():
    pass

def test_lock():
    threading.Thread(target=for_ever, daemon=True, name="another").start()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

@given(st.integers())
def test_example(number):
    assert number < 3 or for_ever()

@pytest.fixture
def hung():
    yield
    for_ever()

def test_teardown(hung):
    pass

def test_behind():
    pass
"""
_HANG = ("test_lock", "test_example", "test_teardown")


def _run(
    folder: Path, *options: str, tests: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text("from tests.conftest import *\n")
    (folder / "test_planted.py").write_text(_PLANTED)
    root = Path(__file__).parents[2]
    names = [f"test_planted.py::{test}" for test in tests] or ["test_planted.py"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *names],
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
    )


@pytest.mark.limit(300)
def test_each_of_many_processes_fails_for_its_test_and_another_goes_on(tmp_path: Path) -> None:
    options = ("-n", "1", "--dist", "loadscope", "--no-loadscope-reorder")
    done = _run(tmp_path, *options)
    assert done.returncode == 1, done.stderr
    failed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    assert failed == {f"test_planted.py::{test}" for test in _HANG}
    for test in _HANG:
        assert f"test_planted.py::{test} hangs: it has not ended after" in done.stdout
    for function in ("for_ever", "test_lock", "test_example", "hung"):
        assert f" in {function}\n" in done.stdout
    assert f"{len(_HANG)} failed, 3 passed" in done.stdout


def test_a_single_process_tells_the_test_with_which_it_ends(tmp_path: Path) -> None:
    done = _run(tmp_path, tests=("test_before", "test_lock"))
    assert done.returncode == 1
    assert "test_planted.py::test_lock hangs: it has not ended after" in done.stderr
    assert "in test_lock\n" in done.stderr
