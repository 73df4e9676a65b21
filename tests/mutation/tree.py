"""A copy of the package in which faults are planted, and the runs of tests on it."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "sparkinesis"

SURVIVED = "survived"
HUNG = "hung"


class Tree:
    """The copy, in a ``with`` block. The working tree is never changed."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mutation-")
        self._src = Path(self._folder.name, "src")
        self._package = self._src / "sparkinesis"
        self._stamp = 0

    def __enter__(self) -> Tree:
        shutil.copytree(PACKAGE.parent, self._src)
        preload()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def write(self, file: str, text: str) -> None:
        """Give a file of the copy another text."""
        path = self._package / file
        path.write_text(text)
        # Bytecode is told by the second of the text: each text has another one.
        self._stamp += 1
        os.utime(path, (self._stamp, self._stamp))

    def test(self, tests: Sequence[str], limit: float, without: Iterable[str]) -> str:
        """Run tests on the copy until one fails: return its name, `SURVIVED` or `HUNG`."""
        left_out = [f"--deselect={test}" for test in without]
        return self._run(lambda: _pytest([*_PYTEST, *left_out, *tests]), limit)

    def simulate(self, seconds: float) -> str:
        """Play histories on the copy: return ``simulation``, `SURVIVED` or `HUNG`."""
        command = [sys.executable, "-m", "tests.simulation", "--seconds", f"{seconds:g}"]
        command += ["--seed", "1", "--jobs", "1"]
        found = self._run(lambda: os.execv(command[0], command), 10 * seconds + 60)
        return found if found in {SURVIVED, HUNG} else "simulation"

    def _run(self, do: Callable[[], int], limit: float) -> str:
        """Run what tests the copy in a process of its own, which is forked: imports take long."""
        with tempfile.TemporaryFile("w+") as out:
            process = os.fork()
            if not process:
                try:
                    os.setsid()
                    os.dup2(out.fileno(), 1)
                    os.dup2(out.fileno(), 2)
                    os.chdir(ROOT)
                    os.environ["PYTHONPATH"] = str(self._src)
                    sys.path.insert(0, str(self._src))
                    found = do()
                    sys.stdout.flush()  # which the exit does not do
                    os._exit(found)
                finally:
                    os._exit(70)
            code = _wait(process, limit)
            if code is None:
                return HUNG
            if code in {0, 5}:  # 5: no test was run
                return SURVIVED
            out.seek(0)
            failed = re.search(r"^(?:FAILED|ERROR) ([^\s\[]+)", out.read(), re.MULTILINE)
            return failed[1] if failed else f"exit code {code}"


def preload() -> None:
    """Import what tests need of others' packages, measure the pace, and forget this package."""
    for name in (*_OTHERS, "tests.pace"):
        importlib.import_module(name)
    for name in list(sys.modules):
        if name.partition(".")[0] == "sparkinesis" or name == "tests.check":
            del sys.modules[name]


def _pytest(arguments: list[str]) -> int:
    return int(pytest.main(arguments))


def _wait(process: int, limit: float) -> int | None:
    """Return the exit code of a process; None if it has not ended in time. It leaves nothing."""
    until = time.monotonic() + limit
    status: int | None = None
    while status is None and time.monotonic() < until:
        ended, found = os.waitpid(process, os.WNOHANG)
        if ended:
            status = found
        else:
            time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    if status is None:
        os.waitpid(process, 0)
        return None
    return os.waitstatus_to_exitcode(status)


_PYTEST = ("-n", "0", "-q", "-x", "-rfE", "--tb=no", "-p", "no:cacheprovider")
_OTHERS = (
    "boto3",
    "botocore.session",
    "google.protobuf.descriptor_pb2",
    "hypothesis.strategies",
    "moto.dynamodb",
    "msgspec",
    "pyarrow",
    "urllib3",
    "uvicorn",
    "xdist",
)
