"""The worker of the image and the local server of the compose file, as processes of their own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkinesis.local import LocalServer
from tests.pace import eventually
from tests.streams import put

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
MANIFEST: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "worker.yaml").read_text())
)
APP = DEPLOY / "docker" / "app.py"
ALL_NETWORKS = 'http="0.0.0.0:9400"'


@contextlib.contextmanager
def running(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def answer(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url) as response:
            status: int = response.status
            return status
    except OSError:
        return None


def test_the_worker_of_the_image_runs_and_ends_gracefully(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = APP.read_text()
    assert ALL_NETWORKS in text
    app = tmp_path / "app.py"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    app.write_text(text.replace(ALL_NETWORKS, f'http="127.0.0.1:{port}"'))
    worker = COMPOSE["services"]["worker"]["environment"]
    log = tmp_path / "log"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, worker[name])
    with LocalServer(port=0, dynamodb=True) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName=worker["STREAM"], ShardCount=2)
        put(kinesis, worker["STREAM"], [b"a", b"b"])
        environment = {**worker, "ENDPOINT": server.endpoint_url}
        with running([sys.executable, str(app)], log, **environment) as process:
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                path = container()[probe]["httpGet"]["path"]
                eventually(lambda: answer(f"http://127.0.0.1:{port}{path}") == 200)  # noqa: B023
            eventually(lambda: sum(map(int, re.findall(r"(\d) records\n", log.read_text()))) == 2)
            assert answer(f"http://127.0.0.1:{port}/metrics") == 200
            process.terminate()
            eventually(lambda: process.poll() is not None)
            assert process.returncode == 0, log.read_text()


def test_the_command_of_the_local_server_is_one(tmp_path: Path) -> None:
    shell = shlex.split(COMPOSE["services"]["kinesis"]["command"])[-1]
    command = shlex.split(shell.rpartition("exec ")[2])
    assert command[0] == "sparkinesis"
    here = [*command[1:], "--port", "0"]
    here[here.index("0.0.0.0")] = "127.0.0.1"
    log = tmp_path / "log"
    program = [str(Path(sys.executable).with_name("sparkinesis")), *here]
    with running(program, log) as process:
        eventually(lambda: "http://" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()
    assert "flights" in log.read_text()


def container() -> dict[str, Any]:
    deployment = next(one for one in MANIFEST if one["kind"] == "Deployment")
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    container: dict[str, Any] = found
    return container


def test_the_manifest_gives_a_worker_time_to_end() -> None:
    deployment = next(one for one in MANIFEST if one["kind"] == "Deployment")
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    timeout = float(APP.read_text().partition("shutdown_timeout=")[2].partition(")")[0])
    assert grace >= timeout + 15
    stop = COMPOSE["services"]["worker"]["stop_grace_period"]
    assert int(stop.removesuffix("s")) >= timeout + 15
    assert container()["ports"] == [{"name": "health", "containerPort": 9400}]
    assert set(container()["env"][0]) == {"name", "value"}
    assert {one["name"] for one in container()["env"]} == {"APPLICATION", "STREAM", "AWS_REGION"}
