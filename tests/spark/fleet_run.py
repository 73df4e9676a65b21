"""A fleet under test: its driver's process, the lease table, and what its processors wrote down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkinesis.lease.table.table import LeaseTable
from tests import pace
from tests.spark.cluster import CORES, Cluster
from tests.spark.query_process import group_process, kill, wait_until

DRIVER = Path(__file__).with_name("fleet_driver.py")
LOST_AFTER = pace.seconds(3.0)
"""Seconds after which a driver and a worker that do not hear of each other part."""


class FleetRun:
    """One driver, from its start until it is killed or shut down."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, folder: Path, table: LeaseTable
    ) -> None:
        self._process = process
        self._log = log
        self._folder = folder
        self._table = table

    def ask(self, command: str) -> dict[str, Any]:
        """What the driver answers to a command."""
        results = self._folder / "results.jsonl"
        before = len(_lines(results))
        with (self._folder / "commands").open("a") as commands:
            commands.write(command + "\n")
        self.wait(lambda: len(_lines(results)) > before, every=0.05)
        answer: dict[str, Any] = _lines(results)[before]
        return answer

    def wait(self, condition: Callable[[], object], every: float = 0.2) -> float:
        """Until the condition holds; returns the seconds that it took."""
        began = time.monotonic()
        wait_until(condition, self._process, self._log, every=every)
        return time.monotonic() - began

    def running(self) -> set[str]:
        """The workers that run."""
        workers: Mapping[str, str] = self.ask("status")["workers"]
        return {worker for worker, state in workers.items() if state == "running"}

    def owners(self) -> dict[str, str | None]:
        """Owners of unfinished leases."""
        leases = self._table.leases(consistent=True)
        return {lease.key: lease.owner for lease in leases if not lease.is_finished}

    def kill_driver(self) -> None:
        """kill -9 of its Python and its JVM."""
        kill(self._process)

    def all_owned_by(self, workers: set[str]) -> bool:
        """Whether each of these has leases, and nobody else has."""
        return set(self.owners().values()) == workers


@contextmanager
def start_fleet(
    cluster: Cluster,
    py_files: list[Path],
    endpoint: str,
    stream: str,
    folder: Path,
    *,
    workers: int,
    failover_time: float,
    checkpoints: str = "each",
    settings: Mapping[str, str] | None = None,
) -> Iterator[FleetRun]:
    """Submit a driver. The folder is the fleet's, also of the next driver's."""
    log = _prepare(folder)
    with cluster.submit(
        _arguments(endpoint, stream, folder, workers, failover_time, checkpoints),
        py_files=py_files,
        settings=settings or {},
        log=log,
        application=DRIVER,
        cores=CORES,
    ) as process:
        yield _running(process, log, folder, endpoint, stream)


@contextmanager
def start_connect_fleet(
    endpoint: str, stream: str, folder: Path, *, workers: int, failover_time: float, remote: str
) -> Iterator[FleetRun]:
    """Run a driver that is a client of a Spark Connect server. remote: the server's URL."""
    log = _prepare(folder)
    arguments = _arguments(endpoint, stream, folder, workers, failover_time, "each")
    environment = {
        **os.environ,
        "SPARK_REMOTE": remote,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    with group_process([sys.executable, str(DRIVER), *arguments], log, environment) as process:
        yield _running(process, log, folder, endpoint, stream)


def _arguments(endpoint: str, stream: str, folder: Path, *more: object) -> list[str]:
    """The driver's: ``more`` are the workers, the failover time, and when to checkpoint."""
    return [endpoint, stream, str(folder), *map(str, more), str(LOST_AFTER)]


def _prepare(folder: Path) -> Path:
    """The next driver's log."""
    (folder / "commands").write_text("")
    (folder / "results.jsonl").write_text("")
    return folder / f"driver-{len(list(folder.glob('driver-*')))}.log"


def _running(
    process: subprocess.Popen[bytes], log: Path, folder: Path, endpoint: str, stream: str
) -> FleetRun:
    table = LeaseTable(stream, "eu-west-1", endpoint, retry=pace.retry())
    run = FleetRun(process, log, folder, table)
    run.wait(lambda: "joined" in log.read_text(), every=0.2)
    return run


def events(folder: Path) -> list[dict[str, Any]]:
    """What all processors of a folder wrote, in order of time."""
    found = [line for path in folder.glob("events-*.jsonl") for line in _lines(path)]
    return sorted(found, key=lambda event: float(event["at"]))


def processed(folder: Path) -> list[str]:
    """The ids of all records that were processed, in order of time, as often as they were."""
    return [id_ for event in events(folder) for id_ in event.get("ids", ())]


def _lines(path: Path) -> list[Any]:
    """The lines that are whole; a killed writer may leave a part of one."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
