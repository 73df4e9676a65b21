"""A printed program in a process of its own, which tests kill at chosen instants.

python -m tests.spark.lakes.program FILE
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.documents import ROOT, blocks
from tests.pace import Deadline
from tests.spark.query_process import group_process, kill, wait_until

PAGE = ROOT / "docs" / "where-the-rows-go.md"

SETTINGS = (
    "--conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false "
    "--conf spark.sql.shuffle.partitions=2"
)
"""What a test sets for each program, as `spark-submit` would."""


def printed(section: str, number: int = 0) -> str:
    """Return a Python program of a section of the page."""
    lines = PAGE.read_text("utf-8").splitlines()
    begin = lines.index(f"## {section}") + 1
    end = next(
        (n for n, line in enumerate(lines[begin:], begin + 1) if line.startswith("## ")),
        len(lines),
    )
    found = [b for b in blocks(PAGE) if b.language == "python" and begin < b.line < end]
    return found[number].text


class Program:
    """A program, its folder and its log. A run goes on where the last one was killed.

    kills: how often the program was killed at a chosen moment.
    """

    def __init__(
        self,
        text: str,
        folder: Path,
        environment: Mapping[str, str],
        *,
        name: str = "flights",
        jars: str = "",
    ) -> None:
        self.log = folder / f"{name}.log"
        self.checkpoint = Checkpoint(folder / "checkpoints" / name)
        self.kills = 0
        self._folder = folder
        self._file = folder / f"{name}.py"
        settings = f"{SETTINGS} --conf spark.local.dir={folder}" + (jars and f" --jars {jars}")
        self._environment = {
            **os.environ,
            **environment,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell",
        }
        self.write(text)

    def write(self, text: str) -> None:
        """Take another text from the next run on."""
        self._file.write_text(text.replace("/tmp/", f"{self._folder}/"))

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "tests.spark.lakes.program", str(self._file)]
        with group_process(command, self.log, self._environment) as process:
            yield process

    def run_until(self, condition: Callable[[], object], every: float = 0.2) -> None:
        """Run until the condition holds, and end the program then."""
        with self.running() as process:
            wait_until(condition, process, self.log, every=every)

    def kill_when(self, seen: Callable[[], bool]) -> None:
        """Kill the program at an instant at which ``seen`` holds, and holds still afterwards.

        The processes are stopped at first sight. If the instant is over by then, they go on.
        """
        while True:
            with self.running() as process:
                while True:
                    wait_until(seen, process, self.log, every=0.0005)
                    os.killpg(process.pid, signal.SIGSTOP)
                    if seen():
                        break
                    os.killpg(process.pid, signal.SIGCONT)
                kill(process)
                self.kills += 1
            if seen():
                return

    def fails(self) -> str:
        """Run until the program ends with an error; return its log."""
        before = len(self.log.read_text()) if self.log.exists() else 0
        with self.running() as process:
            deadline = Deadline(120)
            while process.poll() is None:
                assert not deadline.has_passed(), self.log.read_text()[-3000:]
                time.sleep(0.1)
        assert process.returncode != 0
        return self.log.read_text()[before:]


class Checkpoint:
    """What Spark's checkpoint says of the batches of a query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def planned(self) -> int:
        return newest(self.folder / "offsets")

    def committed(self) -> int:
        return newest(self.folder / "commits")

    def is_open(self) -> bool:
        """Whether a batch is planned and not committed."""
        return self.planned() > self.committed()

    def planned_at(self) -> int:
        """The nanosecond at which the newest batch was planned."""
        return (self.folder / "offsets" / str(self.planned())).stat().st_mtime_ns


def newest(folder: Path) -> int:
    """The largest number that is the name of a file; -1 without one."""
    if not folder.is_dir():
        return -1
    return max((int(each.name) for each in folder.iterdir() if each.name.isdigit()), default=-1)


def run(file: Path) -> None:
    """Run a program as it stands; a query starts again if the machine is too slow at first."""
    from pyspark.sql.streaming.query import StreamingQuery  # noqa: PLC0415
    from pyspark.sql.streaming.readwriter import DataStreamWriter  # noqa: PLC0415

    from examples.flights.query import start_patiently  # noqa: PLC0415

    start = DataStreamWriter.start

    def start_again(writer: DataStreamWriter, *args: Any, **options: Any) -> StreamingQuery:
        return start_patiently(lambda: start(writer, *args, **options))

    DataStreamWriter.start = start_again  # type: ignore[assignment, method-assign]
    exec(compile(file.read_text(), file, "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    run(Path(sys.argv[1]))
