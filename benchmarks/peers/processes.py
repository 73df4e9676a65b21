"""Runs a consumer in its own environment, and takes note of what it receives and costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.consumers.task import ID_BYTES, REGION, Task
from benchmarks.peers.environments import ROOT
from benchmarks.proc_stat import clock_of, running, stat_of, tree
from benchmarks.tls import BOTO3S

KILO = 1024
MIB = 1 << 20


@dataclass(frozen=True)
class Batch:
    """What a consumer tells of one batch; instants are those of the machine's monotonic clock."""

    process: int
    records: int
    size: int
    at: float
    told_at: float
    cpu: float
    """CPU seconds of the process until then."""


@dataclass
class Consumer:
    """A consumer that runs, and the batches it has told of so far."""

    process: subprocess.Popen[bytes]
    folder: Path
    started: float
    _pipe: int
    batches: list[Batch] = field(default_factory=list)
    _unread: bytes = b""

    @property
    def records(self) -> int:
        return sum(batch.records for batch in self.batches)

    def read(self) -> bool:
        """Read the batches that were told since; whether there were any."""
        try:
            text = os.read(self._pipe, 1 << 20)
        except BlockingIOError:
            return False
        *lines, self._unread = (self._unread + text).split(b"\n")
        self.batches += [Batch(*json.loads(line)) for line in lines]
        return bool(lines)

    def wait(self, is_enough: Callable[[], bool], patience: float, quiet: float) -> bool:
        """Read until enough has come (True), or the consumer has ended, or nothing more comes."""
        until = time.monotonic() + patience
        last = time.monotonic()
        while not is_enough():
            now = time.monotonic()
            if now > until or (self.batches and now > last + quiet):
                return False
            if self.read():
                last = time.monotonic()
            elif self.process.poll() is not None:
                return False
            else:
                time.sleep(0.005)
        return True

    def wait_for(self, records: int, patience: float, quiet: float) -> bool:
        """Wait until so many records have come."""
        return self.wait(lambda: self.records >= records, patience, quiet)

    def numbers(self) -> list[int]:
        """The numbers of all records that were received, repeated ones too."""
        files = self.folder.glob("ids-*")
        return [number for file in files for number in _numbers(file)]

    def numbers_of(self, process: int) -> list[int]:
        return _numbers(self.folder / f"ids-{process}")

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def cpu(self) -> float:
        """CPU seconds of the consumer's processes until the last batch that each told of.

        A process that tells of no batches, such as a JVM, counts until now.
        """
        told = {batch.process: batch.cpu for batch in self.batches}
        others = set(tree(running(), self.process.pid)) - set(told)
        return sum(told.values()) + sum(cpu_of(each) for each in others)

    def cpu_now(self) -> float:
        return sum(cpu_of(each) for each in tree(running(), self.process.pid))

    def memory_now(self) -> int:
        """Resident bytes of the consumer's processes."""
        return sum(memory_of(each, "VmRSS") for each in tree(running(), self.process.pid))

    def memory_peak(self) -> int:
        """The sum of the peaks of the consumer's processes, in bytes."""
        return sum(memory_of(each, "VmHWM") for each in tree(running(), self.process.pid))

    def end(self, seconds: float) -> None:
        """Ask the consumer to end, and kill it if that takes longer."""
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the consumer and its children, which form a session."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _numbers(file: Path) -> list[int]:
    data = file.read_bytes()
    return list(memoryview(data[: len(data) // ID_BYTES * ID_BYTES]).cast("Q"))


@contextmanager
def consumer(python: Path, module: str, **task: Any) -> Iterator[Consumer]:
    """Run a consumer during the block; ``task``: the fields of its task, but the folder."""
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        folder = Path(name)
        os.mkfifo(folder / "batches")
        pipe = os.open(folder / "batches", os.O_RDWR | os.O_NONBLOCK)
        arguments = Task(folder=name, **task)
        command = [str(python), "-m", f"benchmarks.peers.consumers.{module}", arguments.to_json()]
        with (folder / "log").open("wb") as log:
            started = time.monotonic()
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment(arguments.endpoint),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        running = Consumer(process, folder, started, pipe)
        try:
            yield running
        finally:
            running.kill()
            os.close(pipe)


def environment(endpoint: str) -> dict[str, str]:
    """The environment variables of a consumer: all of AWS is the local server."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "PYTHON", "VIRTUAL_ENV"))
    }
    trusted = {name: os.environ[name] for name in (BOTO3S,) if name in os.environ}
    return {
        **kept,
        **trusted,
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def cpu_of(process: int) -> float:
    """CPU seconds of a process and of its children that have ended."""
    try:
        return clock_of(process) + stat_of(process).reaped
    except OSError:
        return 0.0


def memory_of(process: int, kind: str) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    found = [line.split()[1] for line in status.splitlines() if line.startswith(f"{kind}:")]
    return int(found[0]) * KILO if found else 0
