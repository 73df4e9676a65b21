"""A local Kinesis in a process of its own that also tells which calls it got."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeAlias

from benchmarks import tls
from benchmarks.local_server import JSON
from benchmarks.local_server import Client as OneConnection
from sparkinesis.local import LocalServer

Calls: TypeAlias = "Counter[tuple[str, str | None, str | None]]"
"""How many calls there were of an operation, on a shard, with this error; None for success."""


IDLE = 1.0
"""Seconds after which a connection is not used again: the server closes it some time."""


class Client(OneConnection):
    """Connects again after a pause."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint)
        self._used = time.monotonic()

    def send(self, operation: str, body: bytes, encoding: str = JSON) -> bytes:
        if time.monotonic() - self._used > IDLE:
            self.close()
        answer = super().send(operation, body, encoding)
        self._used = time.monotonic()
        return answer


@dataclass(frozen=True)
class Server:
    endpoint: str
    pid: int
    client: Client
    _pipe: Connection

    def forget_calls(self) -> None:
        self.calls()

    def calls(self) -> Calls:
        """The calls since the last question."""
        self._pipe.send("calls")
        found: Calls = self._pipe.recv()
        return found


@contextmanager
def serving(*, limits: bool) -> Iterator[Server]:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, limits), daemon=True)
    process.start()
    try:
        endpoint = ours.recv()
        assert process.pid is not None
        client = Client(endpoint)
        yield Server(endpoint, process.pid, client, ours)
        client.close()
    finally:
        ours.send(None)
        process.join()


def asked(pipe: Connection) -> bool:
    """Wait for a question; whether there is one, or the other process has ended."""
    try:
        return pipe.recv() is not None
    except EOFError:
        return False


def _serve(pipe: Connection, limits: bool) -> None:
    with LocalServer(limits=limits, certificate=tls.certificate()) as server:
        pipe.send(server.endpoint_url)
        while asked(pipe):
            log = server.kinesis.calls
            pipe.send(Counter((call.operation, call.shard, call.error) for call in log))
            log.clear()
