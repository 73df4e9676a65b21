"""The local Kinesis and DynamoDB in another process, which notes each call of each shard."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.idle_shards_side import INSTANT
from benchmarks.many_files import allow_many_files
from benchmarks.proc_stat import clock_of
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import CallRecord

READS = ("GetRecords", "SubscribeToShard")


class Server:
    """The server's process, with the service's limits."""

    def __init__(self, pipe: Connection, pid: int) -> None:
        self._pipe = pipe
        self._pid = pid
        self.endpoint: str = pipe.recv()

    def create(self, stream: str, shards: int) -> float:
        """Create a stream; return the seconds that it took."""
        return float(self._ask("create", stream, shards))

    def delete(self, stream: str) -> None:
        """Delete a stream, whatever consumers it has."""
        self._ask("delete", stream)

    def shards_read(self, stream: str) -> int:
        """Return the number of a stream's shards that were read or subscribed to since `clear`."""
        return int(self._ask("shards_read", stream))

    def clear(self) -> None:
        """Forget all calls."""
        self._ask("clear")

    def calls(self) -> list[CallRecord]:
        """Return the calls since `clear`."""
        return list(self._ask("calls"))

    def put(self, stream: str, shards: int, records: int, seconds: float, seed: int) -> None:
        """Put records, at random instants of so many seconds, into random shards."""
        self._ask("put", stream, shards, records, seconds, seed)

    @property
    def cpu(self) -> float:
        """The CPU seconds of the server's process, without moto's."""
        return clock_of(self._pid)

    def _ask(self, *question: object) -> Any:
        self._pipe.send(question)
        return self._pipe.recv()

    def stop(self) -> None:
        self._pipe.send(("stop",))


@contextmanager
def serving() -> Iterator[Server]:
    """Run a server during the block."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs,))
    process.start()
    assert process.pid is not None
    server = Server(ours, process.pid)
    try:
        yield server
    finally:
        server.stop()
        process.join()


def _serve(pipe: Connection) -> None:
    allow_many_files()
    with LocalServer(dynamodb=True) as server:
        asked = _Asked(server)
        pipe.send(server.endpoint_url)
        while (question := pipe.recv())[0] != "stop":
            pipe.send(getattr(asked, question[0])(*question[1:]))


class _Asked:
    """Answers the questions, in the server's process."""

    def __init__(self, server: LocalServer) -> None:
        self._kinesis = server.kinesis

    def create(self, stream: str, shards: int) -> float:
        began = time.monotonic()
        self._kinesis.call("CreateStream", StreamName=stream, ShardCount=shards)
        return time.monotonic() - began

    def delete(self, stream: str) -> None:
        self._kinesis.call("DeleteStream", StreamName=stream, EnforceConsumerDeletion=True)

    def shards_read(self, stream: str) -> int:
        calls = self._kinesis.calls
        return len(
            {
                call.shard
                for call in calls
                if call.operation in READS and call.stream == stream and call.error is None
            }
        )

    def clear(self) -> None:
        self._kinesis.calls.clear()

    def calls(self) -> list[CallRecord]:
        return list(self._kinesis.calls)

    def put(self, stream: str, shards: int, records: int, seconds: float, seed: int) -> None:
        rng = random.Random(seed)
        began = time.monotonic()
        for at in sorted(rng.uniform(0.0, seconds) for _ in range(records)):
            time.sleep(max(0.0, began + at - time.monotonic()))
            hash_key = str(rng.randrange(shards) * (2**128 // shards) + 1)
            self._kinesis.call(
                "PutRecord",
                StreamName=stream,
                PartitionKey="key",
                ExplicitHashKey=hash_key,
                Data=INSTANT.pack(time.monotonic()),
            )
