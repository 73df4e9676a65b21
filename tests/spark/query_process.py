"""A query in a process of its own, which tests kill, and what it has written so far."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.pace import Deadline

ROOT = Path(__file__).parents[2]
FREE_PORT = {"SPARK_TESTING": "1"}
"""PySpark's own switch, by which a local Connect server takes a free port, and not 15002 always."""


@contextmanager
def query_process(
    module: str, arguments: list[str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The query in a process group of its own: Python and its JVM die by one kill -9."""
    with group_process([sys.executable, "-m", module, *arguments], log) as process:
        yield process


@contextmanager
def group_process(
    command: list[str], log: Path, environment: dict[str, str] | None = None, folder: Path = ROOT
) -> Iterator[subprocess.Popen[bytes]]:
    """A command in a process group of its own, which is killed in the end; its output in a log."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # all of the group are gone already
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(
    condition: Callable[[], object],
    process: subprocess.Popen[bytes],
    log: Path,
    seconds: float = 120,
    every: float = 0.005,
) -> None:
    """Until the condition, looked at so often, holds; fails with the log if the process ends."""
    deadline = Deadline(seconds)
    while not condition():
        assert process.poll() is None, log.read_text()[-3000:]
        assert not deadline.has_passed(), log.read_text()[-3000:]
        time.sleep(every)


def open_batches(output: Path, suffix: str = "json") -> set[str]:
    """Batches that a running query has begun (``started-N``) and not finished (``batch-N``)."""
    started = {path.name.removeprefix("started-") for path in output.glob("started-*")}
    return {n for n in started if not (output / f"batch-{n}.{suffix}").exists()}
