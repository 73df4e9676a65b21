"""What worker processes give and cost: records that take 2 ms of CPU, by one process and by two.

All records are there before a side starts. The rate is that of the middle of its course, when all
its processes are there and all its shards have records left; memory is the proportional share (PSS)
of all its processes then, the supervisor's included. The sides run in turn, in an order that
alternates. The local Kinesis shares the cores with them.

python -m benchmarks processes
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet import fill, server
from benchmarks.peers.processes import environment
from benchmarks.proc_stat import cpu_of, told
from benchmarks.report import Result

STREAM = "records"
SHARDS = 8
RECORDS = 1_000
"""The number of records in each shard."""
FROM, TO = 0.3, 0.8
"""The part of the records whose time counts."""
ROUNDS = 3
SIDES = {"one worker in the program's process": (), "processes=1": ("1",), "processes=2": ("2",)}
REQUIRED = 1.7
PATIENCE = 300.0


@dataclass(frozen=True)
class Run:
    records_per_second: float
    megabytes: float
    processes: int
    server_cores: float
    """CPU seconds a second of the local Kinesis."""


@contextmanager
def side(endpoint: str, counter: Path, processes: tuple[str, ...]) -> Iterator[int]:
    """A side runs within the block; its pid, which is also its session's id."""
    application = f"processes-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "benchmarks.processes_side", endpoint, STREAM, application]
    process = subprocess.Popen(
        [*command, str(counter), *processes],
        env=environment(endpoint),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def measure(endpoint: str, processes: tuple[str, ...]) -> Run:
    total = SHARDS * RECORDS
    with tempfile.NamedTemporaryFile() as file, side(endpoint, Path(file.name), processes) as pid:
        began, cpu = _wait_for(file.name, FROM * total), _server_cpu()
        mine = members(pid, b"processes_side", b"--multiprocessing-fork")
        megabytes = [told("smaps_rollup", "Pss", each) / 1024 for each in mine]
        ended = _wait_for(file.name, TO * total)
        cores = (_server_cpu() - cpu) / (ended - began)
    return Run((TO - FROM) * total / (ended - began), sum(megabytes), len(megabytes), cores)


def members(session: int, *parts: bytes) -> list[int]:
    """The processes of a session whose command has one of these parts."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with suppress(OSError):  # it may have just ended
            command = (folder / "cmdline").read_bytes()
            if os.getsid(pid) == session and any(part in command for part in parts):
                found.append(pid)
    return found


def _server_cpu() -> float:
    return sum(map(cpu_of, members(os.getsid(0), b"sparkinesis.local")))


def _wait_for(file: str, records: float) -> float:
    """Wait until so many records are processed; return the time."""
    until = time.monotonic() + PATIENCE
    while Path(file).stat().st_size < records:
        if time.monotonic() > until:
            raise TimeoutError(
                f"{Path(file).stat().st_size} of {records:.0f} records in {PATIENCE} s"
            )
        time.sleep(0.005)
    return time.monotonic()


def run() -> list[Result]:
    runs: dict[str, list[Run]] = {name: [] for name in SIDES}
    with server("--no-limits") as client:
        fill(client, STREAM, SHARDS, RECORDS)
        for number in range(ROUNDS):
            for name in list(SIDES)[:: 1 if number % 2 == 0 else -1]:
                found = measure(client.endpoint, SIDES[name])
                runs[name].append(found)
    return results(runs)


def results(runs: dict[str, list[Run]]) -> list[Result]:
    """The medians; the ratio is to processes=1."""
    base = statistics.median(run.records_per_second for run in runs["processes=1"])
    found = []
    for name, rounds in runs.items():
        rates = [run.records_per_second for run in rounds]
        rate = statistics.median(rates)
        note = (
            f"{min(rates):,.0f} to {max(rates):,.0f}; the local Kinesis took "
            f"{statistics.median(run.server_cores for run in rounds):.2f} cores"
        )
        required = REQUIRED if name == "processes=2" else None
        found.append(
            Result(f"2 ms of CPU a record: {name}", rate, "records/s", rate / base, required, note)
        )
        memory = statistics.median(run.megabytes for run in rounds)
        count = rounds[0].processes
        found.append(Result(f"memory: {name}", memory, "MiB of PSS", note=f"{count} processes"))
    return found
