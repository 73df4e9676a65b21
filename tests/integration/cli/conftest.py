"""A local Kinesis for commands that run as processes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from sparkinesis.local import LocalServer
from tests.command import COMMAND, place_of

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer(limits=None) as running:
        yield running


@pytest.fixture
def start(server: LocalServer) -> Iterator[Start]:
    """Starts a command with pipes, at the local server; those that still run are killed."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str, stdin: int | None = subprocess.PIPE) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [COMMAND, *arguments, *place_of(server)],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()
