"""The worker of the image and the local server of the compose file, as processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkinesis.local import LocalServer
from tests.command import COMMAND
from tests.pace import eventually
from tests.streams import put

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
MANIFEST: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "worker.yaml").read_text())
)
APP = DEPLOY / "docker" / "app.py"
ALL_NETWORKS = "0.0.0.0:9400"
ENTRYPOINT: list[str] = json.loads(
    (DEPLOY / "docker" / "Dockerfile").read_text().rpartition("ENTRYPOINT ")[2]
)


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


def counted(log: Path) -> int:
    """The records that the lines of app.py count."""
    lines = map(json.loads, log.read_text().splitlines())
    return sum(int(one["message"].split()[0]) for one in lines if one["logger"] == "root")


def test_the_worker_of_the_image_runs_and_ends_gracefully(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = [COMMAND, *ENTRYPOINT[1:]]
    program[program.index(ALL_NETWORKS)] = f"127.0.0.1:{port}"
    monkeypatch.chdir(APP.parent)
    worker = COMPOSE["services"]["worker"]["environment"]
    log = tmp_path / "log"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, worker[name])
    with LocalServer(port=0, dynamodb=True) as server:
        kinesis = server.client("kinesis")
        kinesis.create_stream(StreamName=worker["STREAM"], ShardCount=2)
        put(kinesis, worker["STREAM"], [b"a", b"b"])
        environment = {**worker, "ENDPOINT": server.endpoint_url}
        with running(program, log, **environment) as process:
            for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
                path = container()[probe]["httpGet"]["path"]
                eventually(lambda: answer(f"http://127.0.0.1:{port}{path}") == 200)  # noqa: B023
            eventually(lambda: counted(log) == 2)
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
    with running([COMMAND, *here], log) as process:
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
