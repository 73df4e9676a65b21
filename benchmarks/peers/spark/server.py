"""A local Kinesis in a process of its own that also tells which calls it got."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeAlias

from benchmarks.local_server import Client
from sparkinesis.local import LocalServer

Calls: TypeAlias = "Counter[tuple[str, str | None, str | None]]"
"""How many calls there were of an operation, on a shard, with this error; None for success."""


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
        client = Client(int(endpoint.rpartition(":")[2]))
        yield Server(endpoint, process.pid, client, ours)
        client.close()
    finally:
        ours.send(None)
        process.join()


def _serve(pipe: Connection, limits: bool) -> None:
    with LocalServer(limits=limits) as server:
        pipe.send(server.endpoint_url)
        while pipe.recv() is not None:
            log = server.kinesis.calls
            pipe.send(Counter((call.operation, call.shard, call.error) for call in log))
            log.clear()
