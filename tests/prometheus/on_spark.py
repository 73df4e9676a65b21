"""The query and the fleet of a run: a Spark driver, and what Prometheus says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests import pace
from tests.prometheus.journal import Journal, Totals
from tests.prometheus.server import Prometheus
from tests.prometheus.setting import FLEET, FLEET_APPLICATION, QUERY, ROOT, environment
from tests.prometheus.verdict import Fate


class OnSpark:
    """Owned by one thread."""

    def __init__(self, endpoint: str, folder: Path, prometheus: Prometheus) -> None:
        self._folder = folder
        self._prometheus = prometheus
        self._killed: dict[str, Totals] = {}
        """What Prometheus had said of each worker that was killed."""
        (folder / FLEET).mkdir()
        with (folder / "spark.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.prometheus.spark", endpoint, str(folder)],
                cwd=ROOT,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line, "Spark did not start; spark.log tells why"
        ports = [int(port) for port in line.split()]
        self._fleet_port = ports[1]
        prometheus.scrape(*ports)

    def wait_until_processing(self) -> None:
        pace.eventually(lambda: self._query_rows() > 0)
        pace.eventually(lambda: [*self._reported().values()].count(True) >= 2)

    def kill_worker(self) -> str:
        """``kill -9`` of the process of a worker, after Prometheus has seen it; return its name."""
        pace.eventually(lambda: any(self._reported().values()))
        worker = next(name for name, is_seen in self._reported().items() if is_seen)
        self._prometheus.wait_for_scrape(self._fleet_port)
        self._killed[worker] = self._prometheus.totals(worker)
        (pid,) = self._journals()[worker].pids
        os.kill(pid, signal.SIGKILL)
        return worker

    def judge(self, put: int) -> tuple[list[Fate], list[str]]:
        """Wait until everything is read, and compare; return what is wrong besides."""
        query = Journal(self._folder / f"{QUERY}.jsonl")
        pace.eventually(lambda: len(query.read().numbers) == put)
        pace.eventually(lambda: len(self._numbers()) == put)
        counted = query.totals.records
        pace.eventually(lambda: self._query_rows() >= counted)
        wrong = []
        if self._query_rows() != counted:
            wrong.append(f"the query had {counted:g} rows, Prometheus {self._query_rows():g}")
        lag = f'max(sparkinesis_query_lag_max_seconds{{query="{QUERY}"}})'
        pace.eventually(lambda: 0 <= self._prometheus.value(f"{lag} or vector(-1)") < 1)
        fleet = f'max(sparkinesis_lag_seconds{{application="{FLEET_APPLICATION}"}})'
        pace.eventually(lambda: 0 <= self._prometheus.value(f"{fleet} or vector(-1)") < 1)
        fates = [self._fate(name, journal) for name, journal in self._journals().items()]
        if len(fates) <= len(self._killed):
            wrong.append("no worker of the fleet followed the one that was killed")
        return [Fate(QUERY, Totals(counted), Totals(self._query_rows())), *fates], wrong

    def stop(self) -> None:
        self._process.terminate()
        try:
            code = self._process.wait(pace.seconds(90))
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        assert code == 0, f"Spark ended with {code}; spark.log tells why"

    def _fate(self, worker: str, journal: Journal) -> Fate:
        """Return a worker's counts; those of a living one once they have reached Prometheus."""
        scraped = self._killed.get(worker)
        counted = journal.totals
        if scraped is None:
            pace.eventually(lambda: self._prometheus.totals(worker).calls >= counted.calls)
        return Fate(worker, counted, self._prometheus.totals(worker), scraped)

    def _query_rows(self) -> float:
        return self._prometheus.last("query_rows_total", query=QUERY)

    def _journals(self) -> dict[str, Journal]:
        """By worker id, of all workers that ever were."""
        paths = sorted((self._folder / FLEET).glob("*.jsonl"))
        return {path.stem: Journal(path).read() for path in paths}

    def _reported(self) -> dict[str, bool]:
        """Whether Prometheus knows that a worker has processed; of those that were not killed."""
        return {
            name: self._prometheus.totals(name).records > 0
            for name, journal in self._journals().items()
            if name not in self._killed and journal.pids
        }

    def _numbers(self) -> set[int]:
        return set[int]().union(*(journal.numbers for journal in self._journals().values()))
