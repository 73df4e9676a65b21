"""The local Kinesis and DynamoDB in another process, which notes each call of each shard."""

from __future__ import annotations

import multiprocessing
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks import tls
from benchmarks.many_files import allow_many_files
from benchmarks.proc_stat import clock_of
from benchmarks.shards_side import INSTANT
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import CallRecord, Fault
from sparkinesis.local.lease_tables import LeaseTables

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

    def shards_read(self, streams: Sequence[str]) -> int:
        """Return the number of the shards that were read or subscribed to since `clear`."""
        return int(self._ask("shards_read", streams))

    def clear(self) -> None:
        """Forget all calls."""
        self._ask("clear")

    def calls(self) -> list[CallRecord]:
        """Return the calls since `clear`."""
        return list(self._ask("calls"))

    def put(self, stream: str, shards: int, records: int, seconds: float, seed: int) -> None:
        """Put records, at random instants of so many seconds, into random shards."""
        self._ask("put", stream, shards, records, seconds, seed)

    def delay(self, operation: str, ms: int) -> None:
        """Have each call of an operation take so many milliseconds, besides its work."""
        self._ask("delay", operation, ms)

    def begin_puts(self, streams: Sequence[str], shards: int) -> None:
        """Begin to put a record a second into each shard of each stream, evenly over the second."""
        self._ask("begin_puts", streams, shards)

    def end_puts(self) -> int:
        """Stop that, and return how many records were put."""
        return int(self._ask("end_puts"))

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
def serving(*, has_moto: bool = True) -> Iterator[Server]:
    """Run a server during the block.

    has_moto: False keeps the lease tables in the server's own process, which takes as many writes
    as a worker makes. Moto takes some hundred a second.
    """
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs, has_moto))
    process.start()
    assert process.pid is not None
    server = Server(ours, process.pid)
    try:
        yield server
    finally:
        server.stop()
        process.join()


def _serve(pipe: Connection, has_moto: bool) -> None:
    allow_many_files()
    tables = None if has_moto else LeaseTables()
    with LocalServer(
        dynamodb=has_moto, lease_tables=tables, certificate=tls.certificate()
    ) as server:
        asked = _Asked(server)
        pipe.send(server.endpoint_url)
        while (question := pipe.recv())[0] != "stop":
            pipe.send(getattr(asked, question[0])(*question[1:]))


class _Asked:
    """Answers the questions, in the server's process."""

    def __init__(self, server: LocalServer) -> None:
        self._kinesis = server.kinesis
        self._ends = threading.Event()
        self._putting: threading.Thread | None = None
        self._puts = 0

    def create(self, stream: str, shards: int) -> float:
        began = time.monotonic()
        limits, self._kinesis.limits = self._kinesis.limits, False  # on streams made in a second
        self._kinesis.call("CreateStream", StreamName=stream, ShardCount=shards)
        self._kinesis.limits = limits
        return time.monotonic() - began

    def delete(self, stream: str) -> None:
        self._kinesis.call("DeleteStream", StreamName=stream, EnforceConsumerDeletion=True)

    def delay(self, operation: str, ms: int) -> None:
        self._kinesis.faults = lambda call: Fault.delay(ms) if call.operation == operation else None

    def shards_read(self, streams: Sequence[str]) -> int:
        wanted = set(streams)
        return len(
            {
                (call.stream, call.shard)
                for call in self._kinesis.calls
                if call.operation in READS and call.stream in wanted and call.error is None
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
            self._put_one(stream, shards, rng.randrange(shards))

    def begin_puts(self, streams: Sequence[str], shards: int) -> None:
        self._ends.clear()
        self._puts = 0
        self._putting = threading.Thread(
            target=self._put_steadily, args=(streams, shards), daemon=True
        )
        self._putting.start()

    def end_puts(self) -> int:
        self._ends.set()
        assert self._putting is not None
        self._putting.join()
        return self._puts

    def _put_steadily(self, streams: Sequence[str], shards: int) -> None:
        targets = [(stream, shard) for stream in streams for shard in range(shards)]
        began = time.monotonic()
        while not self._ends.wait(max(0.0, began + self._puts / len(targets) - time.monotonic())):
            stream, shard = targets[self._puts % len(targets)]
            self._put_one(stream, shards, shard)
            self._puts += 1

    def _put_one(self, stream: str, shards: int, shard: int) -> None:
        self._kinesis.call(
            "PutRecord",
            StreamName=stream,
            PartitionKey="key",
            ExplicitHashKey=str(shard * (2**128 // shards) + 1),
            Data=INSTANT.pack(time.monotonic()),
        )
