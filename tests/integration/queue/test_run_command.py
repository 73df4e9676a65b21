"""`sparkinesis run` of an application that consumes a queue, and its health by HTTP."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkinesis.local import LocalServer
from tests.command import COMMAND
from tests.journal import PATIENCE
from tests.pace import eventually

APP = """
import logging

from sparkinesis.queue import NewQueue, QueueApplication, QueueOptions


def handle(record):
    with open("handled", "a") as file:
        file.write(record.data.decode() + "\\n")
    logging.getLogger("app").info("one is handled")


app = QueueApplication(
    "orders", handle, "us-east-1", "{endpoint}", options=QueueOptions(wait_time=1),
    create=NewQueue("shop", starting_position="trim_horizon"),
)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with LocalServer() as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName="shop", StreamModeDetails={"StreamMode": "ON_DEMAND"})
        kinesis.put_record(StreamName="shop", Data=b"one", PartitionKey="k")
        (tmp_path / "app.py").write_text(APP.format(endpoint=server.endpoint_url))
        yield tmp_path


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Path]:
    """The command with its log, once it has handled the record; it handles no other."""
    log = folder / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [COMMAND, "run", "app", "--log", "json", *options], cwd=folder, stderr=stderr
        )
    try:
        eventually((folder / "handled").exists)
        yield log
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    assert (folder / "handled").read_text() == "one\n"


def test_it_runs_until_a_signal_ends_it_and_serves_its_health(folder: Path) -> None:
    with running(folder, "--http", ":0") as log:
        eventually(lambda: "serves health" in log.read_text())
        (url,) = re.findall(r"serves health at (http://[0-9.:]+[0-9])", log.read_text())
        with urllib.request.urlopen(f"{url}/status", timeout=PATIENCE) as answer:
            status = json.load(answer)
        assert (status["records"], status["not_live"], status["not_ready"]) == (1, [], [])
        assert status["queue"].startswith("arn:aws:kinesis:us-east-1:123456789012:queue/")
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
            text = answer.read().decode()
        assert 'sparkinesis_queue_received_total{application="orders"' in text


def test_it_runs_in_several_processes_and_makes_the_queue_once(folder: Path) -> None:
    with running(folder, "--processes", "2") as log:
        eventually(lambda: log.read_text().count("Receiving from") == 2)
    said = [json.loads(line) for line in log.read_text().splitlines()]
    joined = set(re.findall(r"worker (\S+) of slot \d has joined", log.read_text()))
    (handled,) = [one for one in said if one["message"] == "one is handled"]
    assert handled["application"] == "orders"
    assert len(joined) == 2
    assert handled["worker"] in joined
