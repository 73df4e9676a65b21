"""A real Prometheus: its process, the targets that it scrapes, and its query API."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import pace
from tests.prometheus.journal import Totals
from tests.prometheus.setting import ROOT, SCRAPE_SECONDS

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"

Values = dict[tuple[str, ...], float]


def is_installed() -> bool:
    return shutil.which("prometheus") is not None


class Prometheus:
    """Scrapes the targets that it is told of. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._targets: list[str] = []
        self._url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prometheus:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_targets()
        config = {
            "global": {
                "scrape_interval": f"{SCRAPE_SECONDS}s",
                "evaluation_interval": f"{SCRAPE_SECONDS}s",
            },
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {
                    "job_name": "sparkinesis",
                    "file_sd_configs": [
                        {"files": [str(self._folder / "targets.json")], "refresh_interval": "1s"}
                    ],
                }
            ],
        }
        path = self._folder / "prometheus.yml"
        path.write_text(json.dumps(config))  # JSON is YAML
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={path}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        pace.eventually(self._is_ready)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def scrape(self, *ports: int) -> None:
        """Scrape these ports of this machine, too."""
        self._targets += [f"127.0.0.1:{port}" for port in ports]
        self._write_targets()

    def query(self, expression: str, *labels: str) -> Values:
        """Return the present values by these labels."""
        found = self._get("query", query=expression)["result"]
        return {
            tuple(one["metric"].get(label, "") for label in labels): float(one["value"][1])
            for one in found
        }

    def value(self, expression: str) -> float:
        """Return the one present value; 0 if there is none."""
        values = self.query(expression)
        assert len(values) <= 1, values
        return values.get((), 0.0)

    def range(self, expression: str, start: float, end: float) -> list[list[float]]:
        """Return all values of each series, one for each scrape."""
        found = self._get(
            "query_range", query=expression, start=start, end=end, step=SCRAPE_SECONDS
        )
        return [[float(value) for _, value in one["values"]] for one in found["result"]]

    def totals(self, worker: str) -> Totals:
        """Return the last counts of a worker, alive or not."""
        calls = "process_records_duration_seconds_count"
        return Totals(
            self.last("records_processed_total", worker=worker),
            self.last("bytes_processed_total", worker=worker),
            self.last(calls, worker=worker, result="ok"),
            self.last(calls, worker=worker, result="failed"),
        )

    def last(self, series: str, **labels: str) -> float:
        """Return the sum of the last values of series, told now or before."""
        pairs = ",".join(f'{label}="{value}"' for label, value in labels.items())
        return self.value(f"sum(last_over_time(sparkinesis_{series}{{{pairs}}}[2h]))")

    def rules(self) -> list[dict[str, Any]]:
        groups = self._get("rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def wait_for_scrape(self, port: int) -> None:
        """Wait until a scrape of this port has succeeded that began after this call."""
        since = time.time()
        up = f'up{{instance="127.0.0.1:{port}"}}'
        pace.eventually(lambda: self.value(f"timestamp({up})") > since and self.value(f"{up}") == 1)

    def _get(self, call: str, **arguments: Any) -> Any:
        url = f"{self._url}/api/v1/{call}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{arguments}: {error.read().decode()}") from error

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "prometheus.log").read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _write_targets(self) -> None:
        """In one step: Prometheus reads the file whenever it changes."""
        new = self._folder / "targets.new"
        new.write_text(json.dumps([{"targets": self._targets}] if self._targets else []))
        new.rename(self._folder / "targets.json")
