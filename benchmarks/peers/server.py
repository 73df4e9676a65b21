"""A local Kinesis with its limits in this process, which counts the calls."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import tls
from sparkinesis.local import LocalServer
from sparkinesis.local.faults import Call


class Calls:
    """Counts the calls of each stream or table; a fault plan without faults."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, call: Call) -> None:
        with self._lock:
            self._counts[call.stream or "", call.operation] += 1

    def of(self, name: str) -> int:
        """The calls so far for a stream and for the tables whose names begin with its name."""
        with self._lock:
            return sum(
                count
                for (stream, _), count in self._counts.items()
                if stream == name or stream.startswith(f"{name}-")
            )


@contextmanager
def counting_server(*, limits: bool = True) -> Iterator[tuple[LocalServer, Calls]]:
    calls = Calls()
    with LocalServer(
        faults=calls, dynamodb=True, limits=limits, certificate=tls.certificate()
    ) as server:
        yield server, calls


def put(kinesis: Any, stream: str, shard: int, shards: int, data: bytes) -> None:
    """Put a record into one of a stream's equal shards."""
    hash_key = str(shard * (2**128 // shards) + 1)
    kinesis.put_record(StreamName=stream, PartitionKey="key", ExplicitHashKey=hash_key, Data=data)
