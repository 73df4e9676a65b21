"""Servers that we did not write, from their package registries: kinesis-mock and two DynamoDBs."""

from __future__ import annotations

import hashlib
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
    """A program that this machine does not have or cannot build; the text says what to do."""


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
    """Install what is not there yet, in the versions that are written down beside this file.

    Raises `MissingToolError`, as `run` does.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    manifests = [HERE / name for name in ("package.json", "package-lock.json")]
    with made_once(CACHE / "node_modules", *manifests) as is_old:
        if is_old:
            print("Installing the servers and SDKs of npm (once) ...", flush=True)
            for manifest in manifests:
                shutil.copy(manifest, CACHE)
            run("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
    if DYNAMODB_LOCAL in dynamodbs:
        copy_libraries(CACHE / "dynamodb-local", HERE / "dynamodb_local")


def copy_libraries(built: Path, source: Path, *goals: str, of: str = "") -> None:
    """Have Maven copy the libraries of a folder's pom.xml, and reach other goals, once.

    of: what else tells one build from another, given to Maven too. Raises `MissingToolError`.
    """
    sources = sorted(path for path in source.rglob("*") if path.suffix in {".xml", ".java"})
    with made_once(built, *sources, of=of) as is_old:
        if is_old:
            print(f"Building {built.name}, with libraries of Maven Central (once) ...", flush=True)
            where = [f"-Doutput={built}", f"-DoutputDirectory={built / 'libraries'}"]
            where += [of] if of else []
            pom = str(source / "pom.xml")
            run("mvn", "-q", "-B", "-f", pom, *goals, "dependency:copy-dependencies", *where)


@contextmanager
def made_once(home: Path, *sources: Path, of: str = "") -> Iterator[bool]:
    """Yield whether a folder has to be made of its sources, and note that it was, if it was.

    Then it is empty, or was not there. of: what it depends on besides the sources.
    """
    digest = hashlib.sha256(b"".join([of.encode(), *(each.read_bytes() for each in sources)]))
    marker = home / "made-of"
    is_old = not marker.exists() or marker.read_text("utf-8") != digest.hexdigest()
    if is_old:
        shutil.rmtree(home, ignore_errors=True)
    yield is_old
    home.mkdir(parents=True, exist_ok=True)
    marker.write_text(digest.hexdigest(), "utf-8")


def run(*command: str, folder: Path = CACHE) -> None:
    """Run a command that installs something. Raises `MissingToolError` if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "it gave no reason").splitlines()
        raise MissingToolError(f"{' '.join(command[:4])} failed: {said[-1]}")


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
        libraries = CACHE / "dynamodb-local" / "libraries"
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
