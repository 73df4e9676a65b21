"""A Spark Connect server in a process of its own, started as a user starts one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from sparkinesis.local.java import use_java
from tests.spark.query_process import group_process, kill, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK = Path(pyspark.__file__).parent
START = SPARK / "sbin" / "start-connect-server.sh"
ANNOUNCED = r"Spark Connect server started at: .*:(\d+)"


class ConnectServer:
    """Its address, and how it dies."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self._process = process
        self.log = log
        self.port = port

    @property
    def remote(self) -> str:
        """What a client's builder takes."""
        return f"sc://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """kill -9 of its JVM and of all Python processes that the JVM has started."""
        kill(self._process)

    @contextmanager
    def session(self) -> Iterator[SparkSession]:
        """A new session of a client in this process, stopped in the end.

        Not by ``SparkSession.builder``: that decides for all of a process what its sessions are. A
        session that outlives its server keeps the process from ending, for minutes.
        """
        from pyspark.sql.connect.session import SparkSession as Session  # noqa: PLC0415

        session: SparkSession = Session.builder.remote(self.remote).create()  # type: ignore[assignment]
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def connect_server(folder: Path, additions: Mapping[str, str]) -> Iterator[ConnectServer]:
    """Start a server; it is killed in the end. Its Python is this one, which has sparkinesis.

    additions: to its environment.
    """
    use_java()
    log = folder / f"connect-{len(list(folder.glob('connect-*.log')))}.log"
    pairs = {
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
    }
    command = [
        *("bash", str(START), "--wait", "--master", "local[4]"),
        *(part for name, value in pairs.items() for part in ("--conf", f"{name}={value}")),
    ]
    environment = {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_PID_DIR": str(folder),
        "SPARK_LOG_DIR": str(folder),
        **additions,
    }
    with group_process(command, log, environment) as process:
        wait_until(lambda: re.search(ANNOUNCED, log.read_text()), process, log, every=0.1)
        found = re.search(ANNOUNCED, log.read_text())
        assert found
        yield ConnectServer(process, log, int(found[1]))
