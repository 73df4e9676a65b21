"""Servers that we did not write, from their package registries: kinesis-mock and two DynamoDBs."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".venv" / "interop"
"""The folder of the installed servers, which git ignores."""
REGION = "us-east-1"

DYNALITE: Final = "dynalite"
DYNAMODB_LOCAL: Final = "DynamoDB Local"
DYNAMODBS = (DYNALITE, DYNAMODB_LOCAL)

_PATIENCE = 60.0


class MissingToolError(Exception):
    """A program that this machine does not have; the text says which, and what to do."""


def require_tools(dynamodbs: Sequence[str]) -> None:
    """Raise `MissingToolError` unless the servers can be installed and run here."""
    instead = "is needed here: install it, or leave out what needs it (see --help)"
    require(f"Node.js 18 or newer, for kinesis-mock and dynalite, {instead}", "node", "npm")
    if DYNAMODB_LOCAL in dynamodbs:
        require(f"Java 17 or newer and Maven, for DynamoDB Local, {instead}", "java", "mvn")


def require(why: str, *programs: str) -> None:
    """Raise `MissingToolError` unless the programs are there. ``why``: what follows the names."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise MissingToolError(f"{' and '.join(missing)} cannot be found, and {why}.")


def install(dynamodbs: Sequence[str]) -> None:
    """Install what is not there yet, in the versions that are written down beside this file."""
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, CACHE / name)
    if is_stale(CACHE / "node_modules" / ".package-lock.json", HERE / "package-lock.json"):
        print("Installing kinesis-mock, dynalite and an SDK (once) ...", flush=True)
        run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    libraries = CACHE / "dynamodb-local"
    if DYNAMODB_LOCAL in dynamodbs and is_stale(libraries, HERE / "pom.xml"):
        print("Installing DynamoDB Local (once) ...", flush=True)
        shutil.rmtree(libraries, ignore_errors=True)
        where = ["-f", str(HERE / "pom.xml"), f"-DoutputDirectory={libraries}"]
        run("mvn", "-q", "-B", "dependency:copy-dependencies", *where)
        libraries.touch()


def is_stale(made: Path, by: Path) -> bool:
    return not made.exists() or made.stat().st_mtime < by.stat().st_mtime


def run(*command: str) -> None:
    """Run a command that installs something; end this process with its output if it fails."""
    done = subprocess.run(command, cwd=CACHE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


@contextmanager
def kinesis_mock(folder: Path) -> Iterator[str]:
    """A Kinesis; yields its endpoint."""
    port, tls_port = _free_port(), _free_port()
    environment = {
        "KINESIS_MOCK_PLAIN_PORT": str(port),
        "KINESIS_MOCK_TLS_PORT": str(tls_port),
        "LOG_LEVEL": "ERROR",
        "SHARD_LIMIT": "100",
    }
    program = CACHE / "node_modules" / "kinesis-local" / "main.js"
    log = folder / "kinesis-mock.log"
    environment["KINESIS_MOCK_CERT_PATH"] = str(program.with_name("server.json"))
    with _server(["node", str(program)], log, port, environment) as endpoint:
        _wait_for(lambda: client("kinesis", endpoint).list_streams(), log)
        yield endpoint


@contextmanager
def dynamodb(name: str, folder: Path) -> Iterator[str]:
    """One of `DYNAMODBS`; yields its endpoint."""
    port = _free_port()
    if name == DYNALITE:
        program = CACHE / "node_modules" / "dynalite" / "cli.js"
        command = ["node", str(program), "--port", str(port), "--createTableMs", "50"]
    else:
        main = "software.amazon.dynamodb.services.local.main.ServerRunner"
        libraries = CACHE / "dynamodb-local"
        paths = [f"-Djava.library.path={libraries}", "-cp", f"{libraries}/*"]
        command = ["java", "-Xmx256m", *paths, main, "-inMemory", "-port", str(port)]
    log = folder / "dynamodb.log"
    with _server(command, log, port, {}) as endpoint:
        _wait_for(lambda: client("dynamodb", endpoint).list_tables(), log)
        yield endpoint


def client(service: str, endpoint: str) -> Any:
    once = Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30)
    return boto3.client(service, region_name=REGION, endpoint_url=endpoint, config=once)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def _server(
    command: list[str], log: Path, port: int, environment: Mapping[str, str]
) -> Iterator[str]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=CACHE,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_for(call: Any, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        with suppress(BotoCoreError, ClientError):
            call()
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"A server does not answer:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)
