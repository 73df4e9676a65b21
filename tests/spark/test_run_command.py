"""`sparkinesis run --workers`: a fleet on Spark, without a line of Spark in the program."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sparkinesis.local import LocalServer
from sparkinesis.local.java import use_java
from tests.command import COMMAND
from tests.pace import eventually, seconds
from tests.streams import put

APP = """
import threading

from sparkinesis import Application, WorkerOptions
from flights.rows import row


def handle(batch):
    with open({file!r}, "a") as file:
        file.writelines(row(record) for record in batch)
    if b"stuck" in [record.data for record in batch]:
        threading.Event().wait()


app = Application(
    {stream!r}, {stream!r}, handle, "us-east-1", {endpoint!r}, initial_position="trim_horizon",
    options=WorkerOptions(idle_time=0.25, shutdown_timeout=1000),
)
"""
PATIENCE = seconds(90)


def run(folder: Path, *arguments: str, **given: Any) -> subprocess.Popen[str]:
    use_java()
    command = [COMMAND, "run", *arguments]
    return subprocess.Popen(command, cwd=folder, text=True, stderr=subprocess.PIPE, **given)


@pytest.mark.parametrize("last", [b"20", pytest.param(b"stuck", marks=pytest.mark.long)])
def test_a_fleet_of_a_package_runs_until_sigterm(
    tmp_path: Path, stream_name: str, last: bytes
) -> None:
    package, file = tmp_path / "flights", tmp_path / "processed"
    package.mkdir()
    file.touch()
    (package / "__init__.py").touch()
    (package / "rows.py").write_text("def row(record):\n    return record.data.decode() + '\\n'\n")
    with LocalServer(port=0, dynamodb=True) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName=stream_name, ShardCount=2)
        text = APP.format(file=str(file), stream=stream_name, endpoint=server.endpoint_url)
        (package / "main.py").write_text(text)
        put(kinesis, stream_name, [*(b"%d" % n for n in range(20)), last])
        submit = ["--conf", "spark.ui.enabled=false", "--name", "of spark-submit"]
        arguments = ["--workers", "2", "--master", "local[2]", "--", *submit]
        process = run(tmp_path, "flights.main", *arguments)
        eventually(lambda: len(file.read_text().split()) == 21)
        process.send_signal(signal.SIGTERM)
        if last == b"stuck":
            process.send_signal(signal.SIGINT)  # at once, long before shutdown_timeout
        _, log = process.communicate(timeout=PATIENCE)
        rows = server.client("dynamodb").scan(TableName=stream_name)["Items"]
    assert process.returncode == 0, log
    assert sorted(file.read_text().split()) == sorted([*map(str, range(20)), last.decode()])
    assert log.count("The supervisor requests a shutdown within") >= 2
    assert all("leaseOwner" not in row for row in rows)


def test_a_spark_that_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "from sparkinesis import Application\n"
        "def handle(batch): ...\n"
        "app = Application('app-1', 'a', handle, 'us-east-1', 'http://127.0.0.1:9')\n"
    )
    for arguments, text in [
        (["--master", "nonsense"], "Spark did not start: "),
        (["--master", "sc://127.0.0.1:1", "--", "--conf", "a=b"], "which got its options when it"),
    ]:
        process = run(tmp_path, "app", "--log", "json", "--workers", "1", *arguments)
        _, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
        (line,) = [line for line in log.splitlines() if line.startswith("sparkinesis run: ")]
        assert text in line
