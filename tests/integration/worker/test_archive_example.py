"""The example that archives a stream: short, and nothing is missing from the lake."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.dataset as ds

from examples.archive import archive as example
from examples.flights.events import load_flights, to_events, to_json
from tests.integration.worker.scene import Scene
from tests.journal import PATIENCE
from tests.lake import visible_files, visible_rows
from tests.streams import put

FLIGHTS = 1200
"""More than a day's."""


def test_the_application_is_short() -> None:
    assert len(Path(example.__file__).read_text().splitlines()) < 40


def test_its_processors_can_be_made_in_another_process() -> None:
    application = example.archive("flights", "s3://lake/flights", region="eu-west-1")
    processor = pickle.loads(pickle.dumps(application.processor))()
    assert (processor.path, processor.max_age) == ("s3://lake/flights", 60.0)


def test_each_event_comes_into_the_lake(scene: Scene, tmp_path: Path) -> None:
    events = to_events(load_flights(FLIGHTS))
    lines = to_json(events)
    folder = tmp_path / "lake"
    place = ["--region", "us-east-1", "--endpoint", scene.server.endpoint_url, "--max-age", "0.5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.archive", scene.stream, str(folder), *place],
    )
    try:
        middle = len(lines) // 2
        put_all(scene.kinesis, scene.stream, lines[:middle])
        wait_for_rows(process, folder, middle)
        put_all(scene.kinesis, scene.stream, lines[middle:])
        wait_for_rows(process, folder, len(lines))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
    days = {Path(file).parts[0] for file in visible_files(folder)}
    assert {"day=2013-01-01", "day=2013-01-02"} <= days
    stored = (
        ds.dataset(folder, partitioning="hive")
        .to_table()
        .sort_by([("at", "ascending"), ("id", "ascending")])
    )
    assert stored.column("id").to_pylist() == events.column("id").to_pylist()
    assert stored.column("flight").to_pylist() == events.column("flight").to_pylist()
    assert stored.column("day").to_pylist() == pc.strftime(stored["at"], "%Y-%m-%d").to_pylist()


def put_all(kinesis: Any, stream: str, lines: list[bytes]) -> None:
    for at in range(0, len(lines), 100):
        put(kinesis, stream, lines[at : at + 100], key=f"key {at}")


def wait_for_rows(process: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    until = time.monotonic() + PATIENCE
    while not folder.exists() or len(visible_rows(folder)) < count:
        assert process.poll() is None
        assert time.monotonic() < until, visible_files(folder)
        time.sleep(0.05)
