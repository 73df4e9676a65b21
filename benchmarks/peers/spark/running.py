"""Runs a query in a process of its own, and receives what it tells."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.peers.spark.competitors import REGION, Competitor
from benchmarks.peers.spark.query import Task
from benchmarks.tls import BOTO3S

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 300.0

Told: TypeAlias = "dict[str, Any]"


class QueryFailedError(Exception):
    """The query has failed; the message is the source's."""


@dataclass(frozen=True)
class Query:
    process: subprocess.Popen[str]
    _told: queue.Queue[str | None]
    log: Path

    def next(self, seconds: float = PATIENCE) -> Told | None:
        """What the query tells next; None if it is silent for so long.

        Raises `QueryFailedError`.
        """
        try:
            line = self._told.get(timeout=seconds)
        except queue.Empty:
            return None
        if line is None:
            raise QueryFailedError("The query's process has ended: " + self.log.read_text()[-2000:])
        told: Told = json.loads(line)
        if "failed" in told:
            raise QueryFailedError(told["failed"])
        return told


@contextmanager
def running(competitor: Competitor, task: Task) -> Iterator[Query]:
    """Run the query during the block."""
    with tempfile.TemporaryDirectory(prefix="peers-spark-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.peers.spark.query", task.to_json()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env=environment(competitor, folder),
                start_new_session=True,
            )
        told: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_receive, args=(process, told), daemon=True)
        reader.start()
        try:
            yield Query(process, told, log)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the JVM too
            process.wait()
            reader.join()
            if process.stdout is not None:
                process.stdout.close()


def _receive(process: subprocess.Popen[str], told: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            told.put(line)
    told.put(None)


def environment(competitor: Competitor, folder: str) -> dict[str, str]:
    source = competitor.source or ROOT
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    trusted = {name: os.environ[name] for name in (BOTO3S,) if name in os.environ}
    return {
        **kept,
        **trusted,
        "PYTHONPATH": os.pathsep.join([str(source / "src"), str(ROOT)]),
        "TMPDIR": folder,
        "SPARK_LOCAL_DIRS": folder,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
